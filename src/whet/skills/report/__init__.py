"""The report of a sharpen run: its data, its text, its charts and its HTML page.

Read `text.py` first.
"""
