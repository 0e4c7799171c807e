"""How far a run is: what is done and left, how fast it goes, how long it will take, and what it has used of its limits.

The terminal counts as the run tells it what happens; pages count the rows of its index. Both come to the same figures.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whet.look.numbers import duration
from whet.runs.index import IndexRow, RolloutState
from whet.runs.stats.summary import Tally

OPENED = "opened"
"""Where a run says when it began, or was resumed last: seconds since 1970. Runs of earlier versions do not."""
LIMITS = "limits"
"""Where a run says which limits it has, by their names."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    >>> half = Progress(planned=20, done=10, running=4, ended=5, seconds=100.0)
    >>> half.left, half.per_minute, half.seconds_left, str(half)
    (10, 3.0, 200.0, 'about 3 min 20 s left')
    """

    planned: int
    done: int
    """Rollouts with a score, or without one that will not be tried again now."""
    running: int
    ended: int
    """Of those that are done, the ones that ended since the run began or was resumed."""
    seconds: float
    """Since the run began or was resumed."""

    @property
    def left(self) -> int:
        return self.planned - self.done

    @property
    def per_minute(self) -> float | None:
        """Rollouts; None before the first one has ended."""
        return self.ended / self.seconds * 60 if self.ended and self.seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """None when that cannot be said yet, and when nothing is left."""
        return self.seconds / self.ended * self.left if self.ended and self.left else None

    def __str__(self) -> str:
        """How long it will take; empty when that cannot be said."""
        return "" if self.seconds_left is None else f"about {duration(self.seconds_left)} left"


def progress_of(rows: Iterable[IndexRow], opened: float | None, now: float) -> Progress:
    """How far a run is at this moment, by its index. `opened`: when it began or was resumed last, if that is known."""
    rows = list(rows)
    since = opened if opened is not None else _first_start(rows, now)
    done = [row for row in rows if _is_done(row, since)]
    ended = sum(row.ended is not None and row.ended >= since for row in done)
    running = sum(row.state is RolloutState.RUNNING for row in rows)
    return Progress(len(rows), len(done), running, ended, max(0.0, now - since))


def _first_start(rows: Iterable[IndexRow], now: float) -> float:
    return min((row.started for row in rows if row.started is not None), default=now)


def _is_done(row: IndexRow, since: float) -> bool:
    """What was missing when the run was resumed is tried again."""
    if row.state is not RolloutState.ENDED or row.attempt is None:
        return False
    return row.value is not None or (row.ended is not None and row.ended >= since)


def count_ends(rows: Iterable[IndexRow], since: float, now: float, slices: int) -> list[int]:
    """How many rollouts ended in each of so many equal parts of the time up to now."""
    counts = [0] * slices
    for row in rows:
        if row.ended is not None and since <= row.ended <= now and now > since:
            counts[min(slices - 1, int((row.ended - since) / (now - since) * slices))] += 1
    return counts


@dataclass(frozen=True, slots=True)
class LimitUse:
    """What a run has used of one of its limits."""

    limit: str
    """Its name, as in whet.toml."""
    used: float | None
    """None when it is not known, as the cost of a model without a price."""
    allowed: float


def uses_of_limits(limits: Mapping[str, float], whole: Tally, seconds: float) -> list[LimitUse]:
    """What a run has used of each of its limits. `seconds`: since it began or was resumed."""
    used = {
        "cost": whole.cost,
        "turns": whole.calls,
        "input_tokens": whole.input_tokens,
        "output_tokens": whole.output_tokens,
        "total_tokens": whole.input_tokens + whole.output_tokens,
        "wall_sec": seconds,
    }
    return [LimitUse(name, used[name], limits[name]) for name in used if name in limits]
