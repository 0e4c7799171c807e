"""The SQLite file of a run: tasks, rollouts, attempts, exchanges and logs.

Read `store.py` first. `schema.py` declares the tables, `blobs.py` stores content once, `writer.py` is the
one thread that writes, `damage.py` explains a file that cannot be read.
"""
