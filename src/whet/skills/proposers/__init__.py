"""Proposers: what writes candidate skills. Nothing here may import the gate.

Read `base.py` first: the protocol, what a proposer is given and what it returns. `driver.py` asks a
proposer and applies its edits. `criteria/`, `llm.py`, `agent.py` and `rules_file.py` are the four that
ship.
"""
