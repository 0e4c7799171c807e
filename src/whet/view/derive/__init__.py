"""Traces and full text for the pages, derived in a process of its own and kept in the user's cache folder.

Read `traces.py` first: it is all that pages call. `trace_file.py` reads what `trace_writer.py` writes, `worker.py` is
the process, `search.py` the full text of a run, and `align.py` compares two traces.
"""
