"""When exams were opened: rollouts of an incumbent stand for its present score for a day and no longer.

Written down, so that a run that is resumed leaves the same exams at the same places.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from whet.skills.journal import write_whole

DAY = 24 * 3600.0


class ExamTimes(Protocol):
    """What an exam's age is asked of."""

    def is_stale(self, exam: str, attempts: int) -> bool:
        """Whether an exam that has seen so many attempts is too old for another."""
        ...

    def ended(self, exam: str, attempts: int) -> None:
        """So many attempts on an exam have a verdict."""
        ...


class Timeless:
    """Exams that do not age: nothing changes while they last."""

    def is_stale(self, exam: str, attempts: int) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def ended(self, exam: str, attempts: int) -> None:
        """Nothing to write down."""


class WrittenTimes:
    """The exams of one run folder, by the clock."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock
        self._known: dict[str, dict[str, float]] = (
            json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        )

    def is_stale(self, exam: str, attempts: int) -> bool:
        """An attempt that has its verdict is never put in doubt again, nor is an exam that was left taken up."""
        known = self._known.setdefault(exam, {"opened": self._clock(), "ended": 0})
        if "left_after" in known:
            return known["left_after"] <= attempts
        if known["ended"] > attempts:
            return False
        is_old = self._clock() - known["opened"] > DAY
        if is_old:
            known["left_after"] = attempts
        self._write()
        return is_old

    def ended(self, exam: str, attempts: int) -> None:
        """So many attempts on an exam have a verdict."""
        if self._known[exam]["ended"] < attempts:
            self._known[exam]["ended"] = attempts
            self._write()

    def _write(self) -> None:
        write_whole(self._file, json.dumps(self._known, indent=1) + "\n")
