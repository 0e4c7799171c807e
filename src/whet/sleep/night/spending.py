"""What a night has spent, and what it may still use: of its own budgets and of those of the month."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from whet.gateway import Limits
from whet.runs.stats.summary import Tally, tally, total
from whet.runs.stats.use import Unit
from whet.runs.store.store import Store
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.spending import read_spending
from whet.skills.run_folders import parts_of
from whet.sleep.report import Cost, NightRecord

MANY = 1_000_000
"""Rollouts of a night whose budgets are all in other units."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left for a night."""

    budgets: tuple[Budget, ...]

    @property
    def rollouts(self) -> int:
        return min((int(one.amount) for one in self.budgets if one.unit is Unit.ROLLOUTS), default=MANY)

    @property
    def seconds(self) -> float | None:
        """None without a budget of time."""
        return min((one.amount for one in self.budgets if one.unit is Unit.SECONDS), default=None)

    def __and__(self, other: "Allowance") -> "Allowance":
        """What both allow."""
        return Allowance((*self.budgets, *other.budgets))

    def within(self, limits: Limits) -> Limits:
        """These limits, lowered to what is left of the other units."""
        for budget in self.budgets:
            limits = budget.within(limits)
        return limits

    @property
    def empty(self) -> Budget | None:
        """A budget of which nothing is left."""
        return next((one for one in self.budgets if one.amount <= 0), None)


def find_allowance(
    nightly: Sequence[Budget], monthly: Sequence[Budget], spent: Cost, nights: Iterable[NightRecord], now: datetime
) -> Allowance:
    """What is left of the budgets of tonight, of which `spent` is used, and of those of this month."""
    month = add_costs([one.cost for one in nights if (one.started.year, one.started.month) == (now.year, now.month)])
    left = [_subtract(budget, spent) for budget in nightly]
    return Allowance((*left, *(_subtract(budget, add_costs([month, spent])) for budget in monthly)))


def find_share(nightly: Sequence[Budget], share: float, spent: Cost) -> Allowance:
    """What is left of a share of the budgets of tonight, of which `spent` is used. Rollouts are not shared out."""
    parts = (replace(one, amount=share * one.amount) for one in nightly if one.unit is not Unit.ROLLOUTS)
    return Allowance(tuple(_subtract(part, spent) for part in parts))


def _subtract(budget: Budget, cost: Cost) -> Budget:
    used = {
        Unit.ROLLOUTS: cost.rollouts,
        Unit.TOKENS: cost.tokens,
        Unit.DOLLARS: cost.dollars or 0.0,
        Unit.SECONDS: 60 * cost.minutes,
    }
    return Budget(max(0.0, budget.amount - used[budget.unit]), budget.unit)


def add_costs(costs: Iterable[Cost]) -> Cost:
    """What several spent together. Dollars are unknown as soon as those of one are."""
    listed = [one for one in costs if one.rollouts or one.tokens or one.minutes]
    known = [one.dollars for one in listed if one.dollars is not None]
    return Cost(
        rollouts=sum(one.rollouts for one in listed),
        tokens=sum(one.tokens for one in listed),
        minutes=sum(one.minutes for one in listed),
        dollars=sum(known) if len(known) == len(listed) and listed else None,
    )


def read_call_cost(folder: Path) -> Cost:
    """What single model calls spent that are on record in a folder, if any. They are not rollouts."""
    found = read_cost(folder)
    return found.model_copy(update={"rollouts": 0})


def read_cost(run: Path) -> Cost:
    """What the rollouts of a run folder spent, also those that failed. Time in which several ran counts once."""
    arms: list[Tally] = []
    seconds = 0.0
    for part in parts_of(run):
        seconds += read_spending(part, {})[0].seconds
        with Store.open_read(part) as store:
            arms += tally(store).values()
    whole = total(arms)
    tokens = whole.input_tokens + whole.output_tokens
    return Cost(rollouts=whole.planned - whole.not_run, tokens=tokens, minutes=seconds / 60, dollars=whole.cost)
