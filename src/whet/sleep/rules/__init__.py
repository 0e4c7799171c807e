"""Rules out of what people said to their agents. Start with find.py."""
