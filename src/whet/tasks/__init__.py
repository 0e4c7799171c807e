"""Task objects, and reading them from Harbor folders, JSONL and Parquet."""

from whet.tasks.env import resolve_env
from whet.tasks.read import TaskSource, read_readable_tasks, read_tasks
from whet.tasks.selection import select_tasks
from whet.tasks.task import Split, Task, TaskLimits, TaskTool

__all__ = [
    "Split",
    "Task",
    "TaskLimits",
    "TaskSource",
    "TaskTool",
    "read_readable_tasks",
    "read_tasks",
    "resolve_env",
    "select_tasks",
]
