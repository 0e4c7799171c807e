"""Tasks: what they are, and reading them from Harbor folders, JSONL and Parquet."""

from whet.tasks.env import resolve_env
from whet.tasks.read import read_tasks
from whet.tasks.task import Limits, Task, Tool

__all__ = ["Limits", "Task", "Tool", "read_tasks", "resolve_env"]
