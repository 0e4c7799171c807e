"""`criteria`: a proposer without a model. It turns the checks that fail most often into rules.

Read `proposer.py` first.
"""
