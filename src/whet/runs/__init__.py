"""Runs: a plan of rollouts, the scheduler that executes it, and the store that keeps the results.

Read `run.py` first, then `scheduler.py`. `store/` is the SQLite file of a run, `stats/` computes
summaries and comparisons, `results.py` reads what is stored.
"""
