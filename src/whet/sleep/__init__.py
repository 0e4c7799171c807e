"""Learning overnight from a developer's own agent sessions. Start with night.py: the whole night, top to bottom."""
