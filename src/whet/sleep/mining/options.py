"""The options of `whet tasks mine`."""

from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import Field, field_validator

from whet.runs.options import Options


class MineKind(StrEnum):
    """What a task is made from."""

    COMMIT = "commit"
    """A commit that changes code and its tests."""
    FAULT = "fault"
    """A fault that is put into code which tests cover: a past fix that is taken back, or a small change."""


class MineOptions(Options):
    """Which tasks to make from a repository, and where to put them."""

    repository: Path = Path()
    """The git repository. It is only read."""
    to: Path = Path("tasks")
    """Folder for the tasks."""
    limit: int = Field(default=20, ge=1)
    """Stop when this many tasks are proved."""
    since: str | None = None
    """Only commits since this day, such as 2026-01-31."""
    kind: tuple[MineKind, ...] = (MineKind.COMMIT, MineKind.FAULT)
    """commit (commits that change code and tests), fault (small faults in tested code), or both: commit,fault."""
    seed: int = 0
    """Chooses the faults. The same seed chooses the same faults."""
    python: Path | None = None
    """Python whose packages the tests may import (default: the one in .venv or venv of the repository)."""
    concurrency: int = Field(default=2, ge=1)
    """Candidates that are tried at the same time."""

    @field_validator("since")
    @classmethod
    def _since_is_a_day(cls, since: str | None) -> str | None:
        if since is None:
            return None
        try:
            return datetime.fromisoformat(since).isoformat()  # git takes a day without a time for that day, but now
        except ValueError:
            raise ValueError(f"is '{since}'; expected a day such as 2026-01-31") from None
