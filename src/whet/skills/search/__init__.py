"""The search for better skills on training tasks, and the flow from search to exam.

Read `two_tiers.py` first: it runs a search (`ratchet.py`, `race.py` or `pareto.py`), then the gate. `shorten.py`
removes rules that do not help from a certified skill.
"""
