"""The folders of a box on the host's disk: making, copying, measuring and comparing them.

Read `folder.py` first. No function here follows a link that an agent left.
"""
