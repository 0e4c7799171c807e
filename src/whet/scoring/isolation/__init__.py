"""Runs code that may hang or crash in a process of its own, with a time limit.

Read `run.py` first. `programs.py` is the program that the process runs; `search.py` searches regular expressions.
"""
