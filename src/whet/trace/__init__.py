"""Derive conversations, steps and training rows from recorded exchanges.

Everything here is a pure function of what the gateway recorded. Read `conversations/graph.py` first: it
turns the exchanges of a rollout into a graph of messages. `training/`, `steps/`, `replay/` and `export/`
build on it.
"""
