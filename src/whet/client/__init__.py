"""Clients of `whet serve`, and the models of what they send and get. `models.py` is the wire."""
