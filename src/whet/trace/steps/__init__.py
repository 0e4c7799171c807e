"""What an agent did, step by step, for people and for proposers to read.

Read `steps.py` first. `text.py` renders steps as text, `summary.py` counts them.
"""
