"""Rollouts for search, exam and test: run once, stored, and paid from one budget.

Read `runner.py` first. `budget.py` and `spending.py` hold the limits, `splits.py` divides the tasks,
`audit.py` measures the noise, `final_test.py` runs the held-out test.
"""
