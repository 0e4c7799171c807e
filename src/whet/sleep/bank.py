"""The bank: proved tasks of a repository, in families, and the copies of them that ask for a habit."""

from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict


class TaskKind(StrEnum):
    """What judges a task."""

    COMMAND = "command"
    """A verification command that failed before the session's work and passes after it."""
    COMMIT = "commit"
    """The tests of the commit that the session's work became."""
    FAULT = "fault"
    """The tests that an injected fault breaks."""
    HISTORY = "history"
    """The tests of a commit that no session made."""


class BankTask(BaseModel):
    """A task that was proved in a box: the untouched tree fails, the known solution passes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    kind: TaskKind
    repository: str
    family: str
    """Tasks of one family are about the same part of a repository. They are never split."""
    sessions: tuple[str, ...] = ()
    """The sessions that it was made from; none if it comes from history."""
    at: AwareDatetime
    """When the work was done: the newest families are the exam."""
    folder: Path
    proof: str
    """What was proved, in one line."""


def split_families(tasks: list[BankTask]) -> tuple[list[BankTask], list[BankTask]]:
    """Split tasks by family into train and exam. The newest half of the families is the exam.

    With an odd number of families the exam gets the larger part.
    """
    newest: dict[str, AwareDatetime] = {}
    for task in tasks:
        newest[task.family] = max(task.at, newest.get(task.family, task.at))
    ordered = sorted(newest, key=lambda family: (newest[family], family))
    train = set(ordered[: len(ordered) // 2])
    return [one for one in tasks if one.family in train], [one for one in tasks if one.family not in train]
