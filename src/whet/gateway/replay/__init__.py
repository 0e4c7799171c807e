"""Replies that do not come from a model: from the cache (`cache.py`) or from a recording (`recording.py`)."""
