"""A run in one line: its state, how far it is, what came of it, and what it cost. Kept until the run changes."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whet.errors import UserError
from whet.look.numbers import money, plural, thousands
from whet.runs.stats.means import Interval
from whet.runs.stats.summary import Tally, total
from whet.runs.stats.use import Unit
from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
from whet.skills.documents.history import TERMS
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.terms import CERTIFY_TERMS, RAISED
from whet.skills.run_folders import RunKind, describe_verdict
from whet.view.library import Library, RunEntry, read_file_stamp, read_stamp
from whet.view.snapshot import Snapshot, Stamp

CERTIFIED_KINDS = (RunKind.SHARPEN, RunKind.CERTIFY)
"""Runs that end with a certificate, or without one."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A run in one line."""

    name: str
    kind: RunKind
    running: bool = False
    planned: int = 0
    done: int = 0
    """Rollouts with a score, and rollouts whose score is missing."""
    mean: Interval | None = None
    missing: tuple[tuple[str, int], ...] = ()
    """How many scores are missing, by cause."""
    cost: float | None = None
    budget: Budget | None = None
    """What a run of sharpening may use."""
    used: str = ""
    """What it has used of that, in words."""
    verdict: str = ""
    """What came of a run of sharpening, in a few words; while it runs, what it does."""
    seconds_left: float | None = None
    changed: float | None = None
    """When something last happened."""
    problem: str = ""
    """Why it cannot be read."""

    @property
    def lost(self) -> int:
        """How many scores are missing."""
        return sum(count for _, count in self.missing)


@dataclass
class Overviews:
    """The overviews of all runs. Safe to use from several threads."""

    library: Library
    _kept: dict[str, tuple[object, Overview]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def all(self) -> list[Overview]:
        """Every run, by name."""
        return [self.of(entry) for entry in self.library.entries()]

    def of(self, entry: RunEntry) -> Overview:
        """The run as it is now."""
        with self._lock:
            kept = self._kept.get(entry.name)
        key = self._key(entry, kept)
        if kept is not None and kept[0] == key:
            return kept[1]
        made = _read(self.library, entry)
        with self._lock:
            self._kept[entry.name] = (key, made)
        return made

    def keys(self) -> tuple[object, ...]:
        """Something that changes when any run is written to, begins or ends."""
        with self._lock:
            kept = dict(self._kept)
        return tuple((entry.name, self._key(entry, kept.get(entry.name))) for entry in self.library.entries())

    def _key(self, entry: RunEntry, kept: tuple[object, Overview] | None) -> tuple[Stamp, bool]:
        """What an overview was made of. Whoever begins to write a run changes its files, so only for files that have
        changed, and for runs that ran, the lock is looked at."""
        stamp = self.stamp(entry)
        same = kept is not None and kept[0] == (stamp, False)
        return stamp, not same and self.library.is_running(entry)

    def stamp(self, entry: RunEntry) -> Stamp:
        """Something that changes when the run, or a part of it, is written to."""
        folders = [entry.path, *(self.library.entry(name).path for name in entry.parts)]
        return (*(one for folder in folders for one in read_stamp(folder)), read_file_stamp(entry.path / CERTIFICATE))


def _read(library: Library, entry: RunEntry) -> Overview:
    try:
        parts = [library.count(name) for name in entry.stores]
        verdict = describe_result(
            entry, [part for part, found in zip(entry.stores, parts, strict=True) if found.running]
        )
    except (UserError, ValueError) as error:
        return Overview(entry.name, entry.kind, problem=str(error), changed=_modified(entry.path))
    return _describe(entry, parts, verdict)


def _describe(entry: RunEntry, parts: Sequence[Snapshot], verdict: str) -> Overview:
    whole, running = total(part.whole for part in parts), any(part.running for part in parts)
    progress = parts[0].progress(time.time()) if running and len(parts) == 1 else None
    certified = entry.kind in CERTIFIED_KINDS
    budget = read_budget(entry) if certified else None
    changes = [part.last_change for part in parts if part.last_change is not None]
    return Overview(
        name=entry.name,
        kind=entry.kind,
        running=running,
        planned=whole.planned,
        done=progress.done if progress else whole.planned - whole.not_run,
        # The parts of a run of sharpening measure different skills on different tasks.
        mean=None if certified else whole.mean(),
        missing=missing_by_cause(whole),
        cost=whole.cost,
        budget=budget,
        used=describe_use(budget, parts) if budget else "",
        verdict=verdict,
        seconds_left=progress.seconds_left if progress else None,
        changed=max(changes, default=_modified(entry.path)),
    )


def missing_by_cause(tally: Tally) -> tuple[tuple[str, int], ...]:
    """How many scores are missing for each cause, the most frequent first."""
    return tuple((str(cause), count) for cause, count in tally.missing.most_common())


def describe_result(entry: RunEntry, running: Sequence[str]) -> str:
    """What came of a run of sharpening, in a few words, or which of its parts is running; empty for other runs."""
    if entry.parent is not None or entry.kind not in CERTIFIED_KINDS:
        return ""
    file = entry.path / CERTIFICATE
    if file.is_file():
        return describe_verdict(read_certificate(file))
    if not running:
        return "not finished"
    return f"no result yet; {' and '.join(name.rpartition('/')[2] for name in running)} running"


def describe_use(budget: Budget, parts: Sequence[Snapshot]) -> str:
    """What a run of sharpening has used of its budget: "290 of 680 rollouts", "$1.20 of $5.00". Rollouts alone where
    the budget is a time, which the stores do not count."""
    whole = total(part.whole for part in parts)
    done = whole.planned - whole.not_run
    match budget.unit:
        case Unit.ROLLOUTS:
            return f"{done:,} of {budget}"
        case Unit.DOLLARS:
            return f"{money(whole.cost)} of {budget}"
        case Unit.TOKENS:
            return f"{thousands(whole.input_tokens + whole.output_tokens)} of {budget}"
        case Unit.SECONDS:
            return f"{plural(done, 'rollout', 'rollouts')}, at most {budget}"


def read_budget(entry: RunEntry) -> Budget | None:
    """What a run of sharpening may use; None when its terms do not say."""
    for name in (TERMS, CERTIFY_TERMS):
        if (file := entry.path / name).is_file():
            given = json.loads(file.read_text(encoding="utf-8")).get("budget")
            raised = file.with_name(RAISED)
            amount = json.loads(raised.read_text(encoding="utf-8")) if raised.is_file() else given and given["amount"]
            return Budget(amount, Unit(given["unit"])) if given else None
    return None


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
