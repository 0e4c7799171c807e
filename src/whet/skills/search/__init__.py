"""The search for better skills on training tasks.

Read `two_tiers.py` first: search greedily, then certify. `base.py` has the ratchet; `race.py` and
`pareto.py` are other strategies; `shorten.py` removes rules that are not needed.
"""
