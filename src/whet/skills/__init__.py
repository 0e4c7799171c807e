"""Skills: their documents and edits, the search for better ones, and the exam that proves them."""
