"""Plots as SVG: shapes with classes, whose style is in `plots.css`. Nothing here knows what is plotted.

Read `drawing.py` first, then `evidence.py`.
"""
