"""Programs in a box whose calls the host answers.

Read `server.py` first. `client.py` is the program inside the box; `untrusted.py` is `whet-untrusted`, with which a
judge runs the agent's work.
"""
