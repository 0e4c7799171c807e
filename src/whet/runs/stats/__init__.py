"""Statistics of runs: means with intervals, paired differences, comparisons, summaries.

Pure functions of scores. Missing scores are never zero: `losses.py` gives the bounds that they leave open.
"""
