"""Budgets of a run, in rollouts, tokens, dollars or time. The audit measures how many rollouts the others cover."""

import re
from dataclasses import dataclass, replace

from whet.errors import UserError
from whet.gateway import Limits, Reached, Spent
from whet.runs.stats.use import Unit, amount_of, format_amount

MARGIN = 1.25
"""Skills grow and some tasks take longer, so a rollout is planned with this multiple of the mean of the audit."""


@dataclass(frozen=True, slots=True)
class Budget:
    """An upper limit of what a run uses.

    >>> str(Budget(2_000_000, Unit.TOKENS)), str(Budget(0.5, Unit.DOLLARS)), str(Budget(2700, Unit.SECONDS))
    ('2M tokens', '$0.50', '45 min')
    """

    amount: float
    unit: Unit = Unit.ROLLOUTS

    def __str__(self) -> str:
        return format_amount(self.amount, self.unit)

    @property
    def rollouts(self) -> int | None:
        """The number of rollouts; None when the budget has another unit."""
        return int(self.amount) if self.unit is Unit.ROLLOUTS else None

    def within(self, limits: Limits) -> Limits:
        """Return these limits, lowered to this budget."""
        match self.unit:
            case Unit.ROLLOUTS:
                return limits
            case Unit.TOKENS:
                return replace(limits, total_tokens=int(_stricter(limits.total_tokens, self.amount)))
            case Unit.DOLLARS:
                return replace(limits, cost=_stricter(limits.cost, self.amount))
            case Unit.SECONDS:
                return replace(limits, wall_sec=_stricter(limits.wall_sec, self.amount))

    def is_reached_by(self, limit: Reached) -> bool:
        """Whether the limit that was reached is this budget."""
        return _LIMITS.get(self.unit) == limit.limit and limit.allowed == self.amount

    def of(self, spent: Spent) -> float:
        """What was spent, in the unit of this budget."""
        return amount_of(spent, self.unit)

    def in_rollouts(self, used: float, rollouts: int) -> int:
        """How many rollouts the budget covers, if `rollouts` of them used `used`. UserError when they used nothing."""
        if used <= 0:
            raise UserError(
                f"`budget` is {self}, but {rollouts} rollouts used no {self.unit}; "
                "expected a number of rollouts for this model"
            )
        return rollouts + max(0, int((self.amount - used) / (MARGIN * used / rollouts)))


_LIMITS = {Unit.TOKENS: "total_tokens", Unit.DOLLARS: "cost", Unit.SECONDS: "wall_sec"}
"""The limit of the gateway that enforces each unit."""
_UNITS = {
    **dict.fromkeys(("", "rollout", "rollouts"), (Unit.ROLLOUTS, 1)),
    **dict.fromkeys(("token", "tokens"), (Unit.TOKENS, 1)),
    "ktokens": (Unit.TOKENS, 1_000),
    "mtokens": (Unit.TOKENS, 1_000_000),
    **dict.fromkeys(("$", "usd", "dollar", "dollars"), (Unit.DOLLARS, 1)),
    **dict.fromkeys(("h", "hour", "hours"), (Unit.SECONDS, 3600)),
    **dict.fromkeys(("min", "minute", "minutes"), (Unit.SECONDS, 60)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), (Unit.SECONDS, 1)),
}
_GIVEN = re.compile(r"(\$?)(\d+(?:\.\d+)?|\.\d+)([a-z]*)")


def read_budget(text: str) -> Budget:
    """Read a budget as users write it; UserError when it is not a budget.

    >>> str(read_budget("400")), str(read_budget("2M tokens")), str(read_budget("$5")), str(read_budget("45min"))
    ('400 rollouts', '2M tokens', '$5.00', '45 min')
    """
    given = _GIVEN.fullmatch("".join(text.lower().split()))
    unit, factor = _UNITS.get(given[1] + given[3], (None, 1)) if given else (None, 1)
    amount = float(given[2]) * factor if given else 0.0
    whole = unit is not Unit.ROLLOUTS or amount.is_integer()
    if unit is None or not amount or not whole:
        raise UserError(f"`budget` is '{text}'; expected rollouts (400), '2M tokens', '$5', '3h' or '45min'")
    return Budget(amount, unit)


def _stricter(limit: float | None, amount: float) -> float:
    return amount if limit is None else min(limit, amount)
