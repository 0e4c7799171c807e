"""Checks before money is spent: of tasks (`tasks.py`), agents (`agents.py`) and local models (`models.py`)."""
