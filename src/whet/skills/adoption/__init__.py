"""Writing to files of the user, safely, and taking it back. transaction.py holds the flow."""
