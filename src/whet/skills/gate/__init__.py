"""The statistics that decide whether a candidate skill is better: e-process, exam, gate.

Read `gate.py` first, then `exam.py` and `sequential_test.py`. `eprocess.py` has the e-process, `alpha_ledger.py`
counts how often validation tasks were used.
"""
