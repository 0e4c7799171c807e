"""Certificates: the evidence that a skill is better, in a form that others can check.

Read `certificate.py` first. `text.py` renders it, `checks/` recomputes it against its run folder.
"""
