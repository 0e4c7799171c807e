"""Documents of a skill: parse them, edit them, compare and merge versions, and store every version of a run.

Read `document.py` and `edits.py` first. `store.py` keeps versions by digest, `history.py` records their results.
"""
