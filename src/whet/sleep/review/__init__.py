"""What a person decides about proposals. adopt.py writes them into the user's files and takes them back."""
