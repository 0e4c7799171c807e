"""What a skill says, and how it is changed.

Read `document.py` and `edits.py` first. `store.py` keeps every version of a skill in a run,
`history.py` records where each version came from.
"""
