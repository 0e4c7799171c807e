"""Replay a recorded rollout up to a call, so that it can be forked there.

Read `session.py` first. `equivalence.py` decides whether a new request equals a recorded one.
"""
