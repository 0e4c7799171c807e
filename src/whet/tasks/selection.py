"""Selects among tasks: by split, by id, and the first of them."""

import difflib
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from whet.errors import UserError
from whet.tasks.task import Split, Task

LISTED = 20
"""Ids that an error lists."""


def select_tasks(
    tasks: Sequence[Task], patterns: Sequence[str] = (), split: Split | None = None, limit: int | None = None
) -> list[Task]:
    """The first `limit` tasks of a split whose ids match one of the patterns. UserError when nothing matches.

    >>> select_tasks([Task(id="fix-1", instruction="Fix it.", answer="4")], ["fix-*"])[0].id
    'fix-1'
    """
    found = [task for task in tasks if split in {None, task.split}]
    if not found:
        counts = Counter(str(task.split or "none") for task in tasks)
        listing = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
        raise UserError(f"`split` is '{split}', which no task has; the splits of these tasks: {listing}")
    for pattern in patterns:
        if not any(fnmatchcase(task.id, pattern) for task in found):
            raise UserError(f"`task` is '{pattern}', which matches no task; {_suggest(pattern, found)}")
    matching = [task for task in found if not patterns or any(fnmatchcase(task.id, one) for one in patterns)]
    return matching[:limit]


def _suggest(pattern: str, tasks: Sequence[Task]) -> str:
    ids = [task.id for task in tasks]
    close = difflib.get_close_matches(pattern, ids, n=1)
    more = f", and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    listing = f"the tasks are: {', '.join(ids[:LISTED])}{more}"
    return f"did you mean '{close[0]}'? ({listing})" if close else listing
