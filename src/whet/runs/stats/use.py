"""What rollouts use: amounts in tokens, dollars and time, and what a few measured rollouts say about many."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum, sqrt
from pathlib import Path

from whet.exchange import Usage
from whet.gateway import Spent
from whet.rollout.result import Result
from whet.runs.results import ResultReader
from whet.runs.store.store import Store

PILOT = 4
"""Rollouts that the command line runs first, to estimate the rest."""
WORTH_A_PILOT = 5
"""A run is piloted if it has at least this many times the rollouts of the pilot."""
_ERRORS = 1.64
"""Standard errors of the mean: the 80 % interval of four rollouts."""
_LEAST_SPREAD = 0.15
"""Other rollouts may differ by this share even if those of the pilot do not."""


class Unit(StrEnum):
    """What is counted."""

    ROLLOUTS = "rollouts"
    TOKENS = "tokens"
    DOLLARS = "dollars"
    SECONDS = "seconds"


def format_amount(amount: float, unit: Unit) -> str:
    """Format an amount with its unit.

    >>> format_amount(2_000_000, Unit.TOKENS), format_amount(0.5, Unit.DOLLARS), format_amount(2700, Unit.SECONDS)
    ('2M tokens', '$0.50', '45 min')
    """
    match unit:
        case Unit.ROLLOUTS:
            return f"{amount:.0f} rollouts"
        case Unit.TOKENS:
            size, letter = (1e6, "M") if amount >= 1e6 else (1e3, "k") if amount >= 1e3 else (1, "")
            return f"{amount / size:.4g}{letter} tokens"
        case Unit.DOLLARS:
            return f"${amount:.2f}" if amount >= 0.1 else f"${amount:.3g}"
        case Unit.SECONDS:
            size, name = (3600, "h") if amount >= 3600 else (60, "min") if amount >= 60 else (1, "s")
            return f"{amount / size:.3g} {name}"


def amount_of(spent: Spent, unit: Unit) -> float:
    """What was spent, in tokens, dollars or seconds."""
    used = {
        Unit.TOKENS: spent.usage.input + spent.usage.output,
        Unit.DOLLARS: spent.cost,
        Unit.SECONDS: spent.seconds,
    }
    return used[unit]


@dataclass(frozen=True, slots=True)
class RolloutUse:
    """What one rollout uses, at least and at most. Seconds are of the whole run, in which several run at once."""

    least: Spent
    most: Spent
    measured: int
    """Rollouts that this was measured with; 0 for a typical value."""
    priced: bool
    """Whether the model's price is known."""

    def __str__(self) -> str:
        return f"a rollout {'used' if self.measured else 'probably uses'} {self.of(1)}"

    def of(self, least: int, most: int | None = None) -> str:
        """What `least` to `most` rollouts use."""
        tokens, time = (self._range(unit, least, most or least) for unit in (Unit.TOKENS, Unit.SECONDS))
        money = self._range(Unit.DOLLARS, least, most or least) if self.priced else "unknown dollars"
        return f"{tokens}, {money} and {time}"

    def at_most(self, unit: Unit, rollouts: int) -> float:
        """The upper end of what this many rollouts use."""
        return rollouts * amount_of(self.most, unit)

    def _range(self, unit: Unit, least: int, most: int) -> str:
        low, high = (
            format_amount(_round(amount_of(one, unit) * number), unit)
            for one, number in ((self.least, least), (self.most, most))
        )
        return low if low == high else f"{low} to {high}"


@dataclass(frozen=True, slots=True)
class Piloted:
    """The first rollouts have ended, and nothing else has started. A watcher may raise to end the run here."""

    use: RolloutUse | None
    """None when the calls of the agents are not recorded."""
    rollouts: int | None
    """Of the whole run, at most; None when its budget has another unit."""


def read_use(folder: Path, concurrency: int) -> RolloutUse | None:
    """What the rollouts of a pilot used, from their store; None when that is not known."""
    with Store.open_read(folder) as store:
        done = [attempt.result for rollout in ResultReader(store) for attempt in rollout.attempts]
    return measure_use([result for result in done if result is not None], concurrency)


def measure_use(results: Sequence[Result], concurrency: int) -> RolloutUse | None:
    """What a rollout uses, from a few results; None without any, or when nothing was recorded."""
    spendings = [
        [one for one in (result.spending, result.judging) if one is not None and (one.calls or not one.captured)]
        for result in results
    ]
    if not spendings or any(not one.captured for some in spendings for one in some):
        return None
    priced = all(one.cost is not None for some in spendings for one in some)
    tokens = [sum(one.input_tokens + one.output_tokens for one in some) for some in spendings]
    dollars = [fsum(one.cost or 0.0 for one in some) for some in spendings]
    seconds = [fsum(result.seconds.values()) / concurrency for result in results]
    sides = zip(_spread(tokens), _spread(dollars), _spread(seconds), strict=True)
    least, most = (Spent(0, Usage(round(token), 0), dollar, second) for token, dollar, second in sides)
    return RolloutUse(least, most, len(results), priced)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """A range for the mean of many such values.

    >>> [round(one) for one in _spread([100, 100, 100, 100])], [round(one) for one in _spread([40, 80, 120, 160])]
    ([87, 115], [70, 142])
    """
    number, mean = len(values), fsum(values) / len(values)
    if not mean:
        return 0.0, 0.0
    variance = fsum((value - mean) ** 2 for value in values) / max(1, number - 1)
    spread = 1 + max(_LEAST_SPREAD, _ERRORS * sqrt(variance / number) / mean)
    return mean / spread, mean * spread


def _round(amount: float) -> float:
    """Two digits: an estimate has no more."""
    return float(f"{amount:.2g}")
