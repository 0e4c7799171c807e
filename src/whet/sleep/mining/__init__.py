"""Tasks and rules from transcripts and from git history. Everything found here is proved before it is used."""
