"""The alpha ledger: how many certification runs used each validation task, and the cumulative alpha of these runs.

The guarantee of a certificate holds per run, so users should know how often they certified on the same tasks. Tasks
are identified by their digests: another seed or split is not a fresh set.
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
from whet.ids import digest, new_name
from whet.paths import user_state, write_atomic

LEDGER = "exams.jsonl"
"""File in the state folder of whet, with one line per run that had an exam. It contains no task names."""
RUN_ID = "run-id"
"""File in a run folder with the id of the run, so that a resumed run counts once."""


class LedgerEntry(BaseModel):
    """How often validation tasks were used."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    runs: int
    """Certification runs that used any of these tasks."""
    alpha: float
    """Sum of alpha over these runs: the expected number of wrong certificates is at most this."""
    tasks: int
    again: int
    """Number of tasks, and number of them that earlier runs used."""
    entry: str | None = None
    """Digest of this run's line in the ledger, which includes the digest of the line before; None if it has no line."""

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
    """Digests of the tasks. Earlier versions stored one digest for the whole set."""
    text: str

    @property
    def digest(self) -> str:
        return digest(self.text.encode())


def set_digest(tasks: Mapping[str, str]) -> str:
    """The digest of a set of tasks, in any order."""
    return digest(*sorted(one.encode() for one in tasks.values()))


def count_uses(run: Path, tasks: Mapping[str, str], env: Mapping[str, str]) -> LedgerEntry:
    """Count the earlier runs that used any of these tasks."""
    with _open(env) as ledger:
        earlier, _ = _up_to(_lines(ledger), _id_of(run))
        return _count(earlier, None, tasks)


def enter(run: Path, tasks: Mapping[str, str], alpha: float, env: Mapping[str, str]) -> LedgerEntry:
    """Enter a run before its first exam, unless it has a line already; count the uses up to this run."""
    with _open(env) as ledger:
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
    """Recompute the entry of a run; None when the ledger has no line for it. ValueError when lines before it were
    changed or removed."""
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
            raise ValueError(f"{file}: a line before the line of run {line.run} was changed or removed")
        before = line.digest
    return _count(earlier, own, tasks)


def _up_to(lines: list[_Line], run: str) -> tuple[list[_Line], _Line | None]:
    """The lines before the line of a run, and its own line."""
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
def _open(env: Mapping[str, str]) -> Iterator[TextIO]:
    """Open the ledger for appending, with an exclusive lock."""
    folder = user_state(env)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / LEDGER).open("a+", encoding="utf-8") as ledger:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            yield ledger
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written: {error.strerror}; set XDG_STATE_HOME to a writable folder"
        ) from error


def _lines(ledger: TextIO) -> list[_Line]:
    ledger.seek(0)
    text = ledger.read()
    if text and not text.endswith("\n"):  # the writer was killed in the middle of a line
        ledger.write("\n")
    return [line for one in text.splitlines() if (line := _line(one)) is not None]


def _line(text: str) -> _Line | None:
    """None for an incomplete line."""
    try:
        found: dict[str, Any] = json.loads(text)
        tasks = found["tasks"] if "tasks" in found else [found["set"]]
        return _Line(found["run"], float(found["alpha"]), frozenset(tasks), text)
    except (ValueError, KeyError, TypeError):
        return None
