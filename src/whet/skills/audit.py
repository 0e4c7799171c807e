"""The noise audit: how much scores of one skill differ by chance, hence what lift a budget can show at all."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

from scipy.special import betaincinv

from whet.errors import UserError
from whet.skills.attempt import Lost, Outcome, levels
from whet.skills.exam import FEWEST, Rollouts
from whet.skills.plan import Plan, detectable
from whet.skills.search import first_measurement

WARNED, REFUSED = 0.15, 0.30
"""A smallest detectable lift above these is worth a warning, or not worth a run."""
ENOUGH_TASKS = 50
"""With fewer, chance may have hidden the noise: a limit is taken that is above it in 80 % of cases."""
_CERTAINTY = 0.8
BINARY, TYPICAL = 0.25, 0.15
"""Variance of the score of one task, at most and as it often is; for estimates before anything is measured."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What two measurements of one skill on the same tasks tell, and one without any skill."""

    twice: tuple[tuple[float, float], ...]
    """The two measurements, on tasks with both."""
    lost: int
    """Rollouts without a score."""
    rollouts: int
    moved: tuple[float, ...]
    """What the skill adds on each task, against none."""

    @property
    def differences(self) -> tuple[float, ...]:
        """Between the two measurements."""
        return tuple(one - other for one, other in self.twice)

    @property
    def discordance(self) -> float:
        """The share of tasks whose two scores differ."""
        return sum(one != 0 for one in self.differences) / len(self.differences)

    @property
    def variance(self) -> float:
        """Of a score on one task, as measured."""
        return fsum(one**2 for one in self.differences) / len(self.differences) / 2

    @property
    def cautious_variance(self) -> float:
        """The same, with room for what few tasks do not show."""
        number, differ = len(self.differences), sum(one != 0 for one in self.differences)
        if number >= ENOUGH_TASKS or differ == number:
            return self.variance
        most = float(betaincinv(differ + 1, number - differ, _CERTAINTY))
        return self.variance * most / self.discordance if differ else most / 2

    @property
    def moves(self) -> bool:
        """Whether the skill changes the score of any task by more than chance does."""
        return any(self.moved)


async def audit(skill: str, tasks: Sequence[str], rollouts: Rollouts) -> Audit:
    """Measure a skill twice and no skill once. The first measurement is the one that the search begins with."""
    first, again, without = await asyncio.gather(
        _measured(tasks, skill, first_measurement(tasks, skill), rollouts),
        _measured(tasks, skill, [f"audit/again/{task}" for task in tasks], rollouts),
        _measured(tasks, "", [f"audit/without/{task}" for task in tasks], rollouts),
    )
    found = Audit(
        tuple(_pairs(first, again)),
        sum(isinstance(one, Lost) for one in (*first, *again, *without)),
        3 * len(tasks),
        tuple(one - other for one, other in _pairs(first, without)),
    )
    if not found.twice:
        raise UserError("the audit measured nothing: every task lost a rollout; look into it with `whet show`")
    return found


def extra_rollouts(tasks: int) -> int:
    """What an audit costs beside what the search pays anyway."""
    return 2 * tasks


def detectable_lift(variance: float, plan: Plan, tasks: int) -> float | None:
    """The smallest lift that one attempt certifies in 80 % of cases; None when the purse is too small for any."""
    (level, *_) = next(levels(plan.alpha, plan.attempts))
    positions = min(plan.certify_purse // (1 + plan.repeats), plan.rounds * tasks)
    return None if positions < FEWEST else detectable(variance, plan.repeats, positions, level)


def table(variance: float, plan: Plan, aside: int, tasks: int) -> list[tuple[int, float | None]]:
    """For several budgets, what they can show when so much of them is put aside."""
    whole = plan.budget + aside
    budgets = [round(whole * factor) for factor in (0.5, 1, 2, 4, 8)]
    return [
        (budget, detectable_lift(variance, replace(plan, budget=max(0, budget - aside)), tasks)) for budget in budgets
    ]


def refuse_hopeless(lift: float | None, plan: Plan) -> None:
    """UserError when the budget is too small to show any lift that can be expected."""
    if lift is None:
        needed = FEWEST * (1 + plan.repeats)
        raise UserError(
            f"{plan.certify_purse} rollouts are left for exams, and one takes {needed} at least; "
            "expected a larger --budget, or --force"
        )
    if lift > REFUSED:
        raise UserError(
            f"the smallest lift that this budget can show is {lift * 100:.0f} points, above {REFUSED * 100:.0f}; "
            "expected a larger --budget, more validation tasks, or --force"
        )


async def _measured(tasks: Sequence[str], skill: str, keys: Sequence[str], rollouts: Rollouts) -> list[Outcome]:
    return await asyncio.gather(*(rollouts(task, skill, key) for task, key in zip(tasks, keys, strict=True)))


def _pairs(one: Sequence[Outcome], other: Sequence[Outcome]) -> list[tuple[float, float]]:
    pairs = zip(one, other, strict=True)
    return [(a, b) for a, b in pairs if not isinstance(a, Lost) and not isinstance(b, Lost)]
