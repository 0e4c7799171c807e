"""The ledger of levels: in how many runs validation tasks were used to certify, and what chance of error that makes.

What is certified holds run by run. Whoever certifies on the same tasks again and again should know how often it was.
Tasks are known by their digests, whatever set they were drawn into: another seed or split is no fresh set.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.files import write_atomic
from whet.ids import digest, new_name
from whet.paths import user_state

LEDGER = "exams.jsonl"
"""A line for each run that held an exam, below the folder where whet keeps what it must remember. It names no task."""
RUN_ID = "run-id"
"""Where a run folder says which run it is, so that one which is resumed counts once."""


class LedgerEntry(BaseModel):
    """What a set of validation tasks was used for."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    runs: int
    """Certification runs that used any of these tasks."""
    alpha: float
    """Of all these runs: up to so many of them are expected to have certified what is no better."""
    tasks: int
    again: int
    """How many tasks there are, and how many of them earlier runs have used."""
    entry: str | None = None
    """Digest of this run's line in the ledger, which carries those of all lines before it; None before it has one."""

    def __str__(self) -> str:
        """
        >>> str(LedgerEntry(runs=7, alpha=0.7, tasks=30, again=12))
        'these 30 validation tasks (12 used before) have been used in 7 certification runs, cumulative alpha 0.70'
        """
        these = f"these {self.tasks} validation tasks ({self.again} used before)"
        runs = f"{self.runs} certification run{'s' * (self.runs != 1)}"
        return f"{these} have been used in {runs}, cumulative alpha {self.alpha:.2f}"


@dataclass(frozen=True, slots=True)
class _Line:
    """What one run used."""

    run: str
    alpha: float
    tasks: frozenset[str]
    """Their digests. Lines of earlier versions have one for the whole set."""
    text: str

    @property
    def digest(self) -> str:
        return digest(self.text.encode())


def set_digest(tasks: Mapping[str, str]) -> str:
    """Of a set of tasks, by the digest of each; whatever their order."""
    return digest(*sorted(one.encode() for one in tasks.values()))


def count_uses(run: Path, tasks: Mapping[str, str], env: Mapping[str, str]) -> LedgerEntry:
    """In how many runs any of these tasks were used before this one."""
    with _opened(env) as ledger:
        earlier, _ = _up_to(_lines(ledger), _id_of(run))
        return _count(earlier, None, tasks)


def enter(run: Path, tasks: Mapping[str, str], alpha: float, env: Mapping[str, str]) -> LedgerEntry:
    """Enter a run whose first exam begins, unless it is there; in how many runs these tasks were used up to it."""
    with _opened(env) as ledger:
        lines = _lines(ledger)
        earlier, own = _up_to(lines, _id_of(run))
        if own is None:
            facts = {"run": _id_of(run), "alpha": alpha, "tasks": sorted(set(tasks.values()))}
            text = json.dumps({**facts, "previous": lines[-1].digest if lines else ""})
            ledger.write(text + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
            own = _line(text)
        return _count(earlier, own, tasks)


def find_entry(run: Path, tasks: Mapping[str, str], env: Mapping[str, str]) -> LedgerEntry | None:
    """What was said of a run when it was entered, computed again; None when this ledger does not know it. Nothing is
    written. ValueError when lines before it were changed or taken out."""
    file, name = user_state(env) / LEDGER, run / RUN_ID
    if not file.is_file() or not name.is_file():
        return None
    lines = [line for one in file.read_text(encoding="utf-8").splitlines() if (line := _line(one)) is not None]
    earlier, own = _up_to(lines, name.read_text(encoding="utf-8"))
    if own is None:
        return None
    before = ""
    for line in (*earlier, own):
        if json.loads(line.text).get("previous", before) != before:
            raise ValueError(f"{file}: a line before that of run {line.run} was changed or taken out")
        before = line.digest
    return _count(earlier, own, tasks)


def _up_to(lines: list[_Line], run: str) -> tuple[list[_Line], _Line | None]:
    """The lines before that of a run, and its own."""
    place = next((place for place, line in enumerate(lines) if line.run == run), None)
    return (lines, None) if place is None else (lines[:place], lines[place])


def _count(earlier: list[_Line], own: _Line | None, tasks: Mapping[str, str]) -> LedgerEntry:
    these = set(tasks.values())
    # Earlier versions of whet wrote one digest for a whole set.
    overlapping = [line for line in earlier if line.tasks & {*these, set_digest(tasks)}]
    whole = any(set_digest(tasks) in line.tasks for line in overlapping)
    counted = [*overlapping, *([own] if own else [])]
    return LedgerEntry(
        runs=len(counted),
        alpha=fsum(line.alpha for line in counted),
        tasks=len(these),
        again=len(these) if whole else len(these & {one for line in overlapping for one in line.tasks}),
        entry=own.digest if own else None,
    )


def _id_of(run: Path) -> str:
    file = run / RUN_ID
    if not file.is_file():
        write_atomic(file, new_name())
    return file.read_text(encoding="utf-8")


@contextmanager
def _opened(env: Mapping[str, str]) -> Iterator[TextIO]:
    """The ledger, with all others kept waiting. What is written goes to its end."""
    folder = user_state(env)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / LEDGER).open("a+", encoding="utf-8") as ledger:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            yield ledger
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}; name another place: XDG_STATE_HOME") from error


def _lines(ledger: TextIO) -> list[_Line]:
    ledger.seek(0)
    text = ledger.read()
    if text and not text.endswith("\n"):  # whoever wrote it was killed over it
        ledger.write("\n")
    return [line for one in text.splitlines() if (line := _line(one)) is not None]


def _line(text: str) -> _Line | None:
    """None for what was not written to its end."""
    try:
        found: dict[str, Any] = json.loads(text)
        tasks = found["tasks"] if "tasks" in found else [found["set"]]
        return _Line(found["run"], float(found["alpha"]), frozenset(tasks), text)
    except (ValueError, KeyError, TypeError):
        return None
