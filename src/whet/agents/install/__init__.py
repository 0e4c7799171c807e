"""Installs the agents' command-line programs at pinned versions.

Read `run.py` first: an install is made once, whole or not at all. `packages.py` lists the pinned packages,
`lock.py` fetches them and checks every file against the hashes in `locks/`.
"""
