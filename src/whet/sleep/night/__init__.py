"""One night. flow.py reads from top to bottom: harvest, rules, tasks, sharpen, stage."""
