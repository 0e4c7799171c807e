"""Tracks what each part of a run has used of its budget, and stops a part that has used its share.

A part that was stopped stays stopped when the run is resumed, so that decisions do not change.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from whet.errors import UserError
from whet.gateway import Gateway, Spent
from whet.gateway.prices import Price, cost
from whet.paths import write_atomic
from whet.rollout.result import Result
from whet.runs.results import ResultReader
from whet.runs.stats.use import Unit, format_amount
from whet.runs.store.store import Store
from whet.skills.measurement import OutOfBudget
from whet.skills.rollouts.budget import Budget

STOPPED = "stopped.json"
"""File with the parts of a run that ran out of budget, and why."""


class LimitReachedError(UserError):
    """A limit of the run other than its budget ended it."""


class BudgetTracker:
    """The budget of a run, and what its parts have used, while its gateway is open."""

    def __init__(
        self, folder: Path, budget: Budget, gateway: Gateway, before: Mapping[str, Spent], rest: str = ""
    ) -> None:
        """`before` is what each part used so far. Usage that belongs to no other part counts for the part `rest`."""
        self.budget, self._gateway, self._rest = budget, gateway, rest
        self._file = folder / STOPPED
        self.stopped: dict[str, str] = json.loads(self._file.read_text()) if self._file.is_file() else {}
        self._used = defaultdict(float, {part: self._of(spent) for part, spent in before.items() if part != rest})
        self._most: Mapping[str, float] = {}
        self._at_work: Counter[str] = Counter()
        self._since: dict[str, float] = {}

    def divide(self, shares: Mapping[str, float], amount: float) -> None:
        """Limit these parts to these shares of an amount."""
        self._most = {part: share * amount for part, share in shares.items()}

    def close(self, part: str, heir: str, reserved: float) -> None:
        """End a part. Its heir may use what is left of the whole budget, except for what is reserved."""
        self._most = {**self._most, heir: self.used_by(heir) + self.budget.amount - self.used - reserved}
        self._most.pop(part, None)
        if self.stopped.pop(heir, None) is not None:
            write_atomic(self._file, json.dumps(self.stopped, indent=1) + "\n")

    @property
    def used(self) -> float:
        """Usage of all parts, in the unit of the budget."""
        return self._of(self._gateway.spent())

    def refuse(self, part: str) -> None:
        """OutOfBudget when this part may not go on; LimitReachedError when another limit ends the run."""
        if part in self.stopped:
            raise OutOfBudget(self.stopped[part])
        limit = self._gateway.exhausted()
        if limit is not None and not self.budget.is_reached_by(limit):
            raise LimitReachedError(f"stopped by limit {limit}; resume with a higher limit and `resume`")
        most = self._most.get(part)
        used = self.used_by(part) if most is not None else 0.0
        if limit is not None:
            self._stop(part, str(limit))
        elif most is not None and used >= most:
            self._stop(
                part, f"{format_amount(used, self.budget.unit)} of its share of {format_amount(most, self.budget.unit)}"
            )

    def used_by(self, part: str) -> float:
        """Usage of one part."""
        return self.used - sum(self._used.values()) if part == self._rest else self._used[part]

    def add(self, part: str, result: Result) -> None:
        """Count the usage of an attempt."""
        if part != self._rest and self.budget.unit is not Unit.SECONDS:
            self._used[part] += self._of(_spent(result))

    @contextmanager
    def at_work(self, part: str) -> Iterator[None]:
        """Count the time in which a part is working."""
        if not self._at_work[part]:
            self._since[part] = time.monotonic()
        self._at_work[part] += 1
        try:
            yield
        finally:
            self._at_work[part] -= 1
            if not self._at_work[part] and part != self._rest and self.budget.unit is Unit.SECONDS:
                self._used[part] += time.monotonic() - self._since[part]

    def _of(self, spent: Spent) -> float:
        return 0.0 if self.budget.unit is Unit.ROLLOUTS else self.budget.of(spent)

    def _stop(self, part: str, why: str) -> None:
        self.stopped[part] = why
        write_atomic(self._file, json.dumps(self.stopped, indent=1) + "\n")
        raise OutOfBudget(why)


def read_spending(folder: Path, prices: Mapping[str, Price | None]) -> tuple[Spent, int]:
    """All that the attempts in a store have used, also those that were killed, and how many rollouts were scored. Time
    in which several ran counts once."""
    found, times, scored = [], [], 0
    with Store.open_read(folder) as store:
        for rollout in ResultReader(store):
            price = prices.get(rollout.row.model)
            scored += any(attempt.value is not None for attempt in rollout.attempts)
            for attempt in rollout.attempts:
                times.append((attempt.row.started, attempt.row.ended or attempt.row.started))
                if (result := attempt.result) is not None:
                    found.append(_spent(result))
                else:
                    calls, usage = attempt.usage()
                    found.append(Spent(calls, usage, cost(usage, price, calls) if price else 0.0))
    return replace(total_spent(found), seconds=union_length(times)), scored


def union_length(times: list[tuple[float, float]]) -> float:
    """How long at least one of these spans of time was running.

    >>> union_length([(0, 2), (1, 3), (10, 11)])
    4.0
    """
    seconds, until = 0.0, float("-inf")
    for started, ended in sorted(times):
        seconds += max(0.0, ended - max(started, until))
        until = max(until, ended)
    return seconds


def total_spent(parts: Iterable[Spent]) -> Spent:
    """What several have spent together."""
    whole = Spent()
    for one in parts:
        whole = Spent(
            whole.turns + one.turns, whole.usage + one.usage, whole.cost + one.cost, whole.seconds + one.seconds
        )
    return whole


def _spent(result: Result) -> Spent:
    spendings = [one for one in (result.spending, result.judging) if one is not None]
    return total_spent(one.as_spent() for one in spendings)
