"""The conversations of a rollout, as a graph of messages built from its exchanges.

Read `graph.py` first. `tree.py` stores each message once, `slices.py` finds the messages in raw bytes,
`replies.py` reads what a model answered.
"""
