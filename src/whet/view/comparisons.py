"""Comparisons of runs, and the runs as comparisons read them. Both are kept until a run changes."""

import json
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from whet.errors import UserError
from whet.runs.stats.compare import ComparedArm, Comparison, Key, ReadRun, compare, compare_skills
from whet.runs.stats.compared import ComparedArms, compare_and_rank
from whet.runs.stats.summary import Arm, arm_of, cells_of_rows
from whet.skills.sharpen.transfer import MATRIX
from whet.view.library import Library, RunEntry
from whet.view.snapshot import Snapshot

MOST_KEPT = 32
"""Comparisons, and runs, that are kept; the ones that were used longest ago are dropped."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PairOfArms:
    """Two arms, compared."""

    found: Comparison
    first: ComparedArm
    second: ComparedArm

    @property
    def sides(self) -> tuple[ComparedArm, ComparedArm]:
        return self.first, self.second


Lifts = Mapping[tuple[str, str], Comparison]
"""By agent and model."""


@dataclass
class Comparisons:
    """Comparisons of the runs of a library. Safe to use from several threads."""

    library: Library
    _kept: dict[Hashable, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, name: str) -> ReadRun:
        """A run, arm by arm and task by task, as `whet compare` reads it. UserError when it cannot be read."""
        snapshot = self._snapshot(name)
        return self.keep(("run", name), [name], lambda: self._read(name, snapshot))

    def compare(self, first: str, second: str | None, by: Key | None) -> ComparedArms:
        """Two runs, or the arms of one."""
        names = [name for name in (first, second) if name is not None]
        one, *others = (self.read(name) for name in names)
        make = partial(compare_and_rank, one, others[0] if others else None, by)
        return self.keep(("compare", first, second, by), names, make)

    def pair(self, first: tuple[str, Arm], second: tuple[str, Arm], by: Key | None) -> PairOfArms:
        """Two arms. Where they are one of several pairs that are compared together, p is corrected for all of these:
        whoever opens a pair out of a table has looked at the others too."""
        (one, _), (other, _) = first, second
        together = self._compare_together(one, None if other == one else other, by)
        if (first, second) in together:
            return together[first, second]
        if (second, first) in together:
            return _turn(together[second, first])
        return self._compare_alone(first, second)

    def lifts(self, entry: RunEntry) -> Lifts:
        """What the skill of a transfer run changes for each agent and model."""
        run = self.read(entry.name)
        terms = json.loads((entry.path / MATRIX).read_text(encoding="utf-8"))
        make = partial(compare_skills, run, terms["against"], terms["skill"])
        return self.keep(("lifts", entry.name), [entry.name], make)

    def keep(self, what: Hashable, runs: Sequence[str], make: Callable[[], T]) -> T:
        """What was made before of these runs, or is made now because one of them has changed."""
        key = (what, *(_state(self._snapshot(name)) for name in runs))
        with self._lock:
            if key in self._kept:
                found: T = self._kept.pop(key)
                self._kept[key] = found
                return found
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return made

    def _compare_together(
        self, one: str, other: str | None, by: Key | None
    ) -> dict[tuple[tuple[str, Arm], tuple[str, Arm]], PairOfArms]:
        try:
            whole = self.compare(one, other, by)
        except UserError:  # nothing is compared together; what else is wrong is found when the two arms are read
            return {}
        pairs = {}
        for found in whole.comparisons:
            first, second = whole.arms[found.first], whole.arms[found.second]
            pairs[_key(first), _key(second)] = PairOfArms(found, first, second)
        return pairs

    def _compare_alone(self, first: tuple[str, Arm], second: tuple[str, Arm]) -> PairOfArms:
        runs = [_only(self.read(run), arm) for run, arm in (first, second)]
        whole = compare_and_rank(runs[0], runs[1], None)
        (found,) = whole.comparisons
        sides = [
            replace(whole.arms[name], run=run) for name, (run, _) in ((found.first, first), (found.second, second))
        ]
        return PairOfArms(found, *sides)

    def _snapshot(self, name: str) -> Snapshot:
        entry = self.library.entry(name)
        if entry.parts:
            raise UserError(f"{name}: its rollouts are in parts; expected one of {', '.join(entry.parts)}")
        return self.library.snapshot(name)

    def _read(self, name: str, snapshot: Snapshot) -> ReadRun:
        with self.library.open(name) as store:
            digests = {task.id: task.digest for task in store.tasks()}
            calls = store.count_sent_calls()
        arms = cells_of_rows(snapshot.rows, running=snapshot.running)
        for row in snapshot.rows:
            cell = arms[arm_of(row.rollout)][row.rollout.task]
            sent, resent = calls.get(row.rollout.id, (0, 0))
            cell.sent, cell.resent = cell.sent + sent, cell.resent + resent
        return ReadRun(name, arms, digests, snapshot.facts.skills)


def _state(snapshot: Snapshot) -> Hashable:
    return snapshot.stamp, snapshot.running


def _key(side: ComparedArm) -> tuple[str, Arm]:
    assert side.arm is not None
    return side.run, side.arm


def _only(run: ReadRun, arm: Arm) -> ReadRun:
    """A run as if it had one arm."""
    name = run.name if len(run.arms) == 1 else f"{run.name} {' / '.join(run.words(arm))}"
    return replace(run, name=name, arms={arm: run.arms[arm]})


def _turn(pair: PairOfArms) -> PairOfArms:
    """The first arm against the second. The test is the same from both sides."""
    found = compare(pair.second, pair.first, comparisons=pair.found.comparisons)
    turned = replace(found, p=pair.found.p, corrected_p=pair.found.corrected_p)
    return PairOfArms(turned, pair.second, pair.first)
