"""Task objects, and reading them from Harbor folders, JSONL and Parquet."""

from whet.tasks.env import resolve_env
from whet.tasks.read import read_tasks
from whet.tasks.task import Task, TaskLimits, TaskTool

__all__ = ["Task", "TaskLimits", "TaskTool", "read_tasks", "resolve_env"]
