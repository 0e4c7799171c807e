"""REST: one file per kind of thing. `parts.py` says what the routes are given, `errors.py` how they refuse."""
