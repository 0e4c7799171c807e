"""The noise audit: how much the scores of one skill vary by chance, and so which lift a budget can detect."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Protocol

from scipy.special import betaincinv

from whet.errors import UserError
from whet.scoring import Cause
from whet.skills.gate.exam import PAIR
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.power import smallest_lift
from whet.skills.measurement import NotMeasured, Outcome, RolloutKey

WARNED, REFUSED = 0.15, 0.30
"""Smallest detectable lift above which whet warns, or refuses to run."""
ENOUGH_TASKS = 50
"""With fewer tasks the noise may be underestimated, so its 80 % upper bound is used."""
_CERTAINTY = 0.8
BINARY, TYPICAL = 0.25, 0.15
"""Largest and typical variance of the score of one task, for estimates before anything is measured."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Two measurements of one skill on the same tasks, and one without a skill."""

    twice: tuple[tuple[float, float], ...]
    """The two scores of each task that has both."""
    lost: int
    """Rollouts without a score."""
    rollouts: int
    moved: tuple[float, ...]
    """Score with the skill minus score without a skill, for each task."""
    known: tuple[float, ...] | None = None
    """Score with the known-good skill minus score with this one, for each task; None without a known-good skill."""

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
        """Measured variance of the score of one task."""
        return fsum(one**2 for one in self.differences) / len(self.differences) / 2

    @property
    def is_all_zero(self) -> bool:
        """Whether no training task ever scored above 0 with the skill."""
        return not any(score for pair in self.twice for score in pair)

    @property
    def cautious_variance(self) -> float:
        """Upper bound of the variance if there are few tasks. A score in [0, 1] varies most if it is 0 or 1."""
        number, differ = len(self.differences), sum(one != 0 for one in self.differences)
        if number >= ENOUGH_TASKS or differ == number:
            return min(BINARY, self.variance)
        most = float(betaincinv(differ + 1, number - differ, _CERTAINTY))
        return min(BINARY, self.variance * most / self.discordance if differ else most / 2)

    @property
    def moves(self) -> bool:
        """Whether a control changes the scores by more than chance."""
        return any(self._stands_out(one) for one in (self.moved, self.known or ()))

    def _stands_out(self, differences: Sequence[float]) -> bool:
        if not self.discordance:
            return any(differences)
        # Two standard errors of the sum.
        return abs(fsum(differences)) > 2 * sqrt(fsum(one**2 for one in differences))


class AuditRollouts(Protocol):
    """Runs a task with a skill, or without one."""

    async def __call__(self, task: str, skill: str | None, key: RolloutKey) -> Outcome: ...


async def audit(skill: str, tasks: Sequence[str], rollouts: AuditRollouts, known_good: str | None = None) -> Audit:
    """Measure a skill twice, no skill once, and the known-good skill once if there is one.

    The search starts from the first measurement, so it is not paid twice. NotMeasured when no task has both scores.
    """
    arms = [
        (skill, [RolloutKey.search(1, task, skill) for task in tasks]),
        (skill, [RolloutKey.audit("again", task) for task in tasks]),
        (None, [RolloutKey.audit("without", task) for task in tasks]),
    ]
    if known_good is not None:
        arms.append((known_good, [RolloutKey.audit("known", task) for task in tasks]))
    measured = await asyncio.gather(*(_measure(tasks, one, keys, rollouts) for one, keys in arms))
    first, again, without = measured[:3]
    lost = [
        key
        for (_, keys), found in zip(arms, measured, strict=True)
        for key, one in zip(keys, found, strict=True)
        if isinstance(one, Cause)
    ]
    twice = tuple(_pairs(first, again))
    if not twice:
        raise NotMeasured("no train task has both scores of the audit; see why with `whet show`", lost)
    moved = tuple(one - other for one, other in _pairs(first, without))
    known = None if known_good is None else tuple(one - other for one, other in _pairs(measured[3], first))
    return Audit(twice, len(lost), len(arms) * len(tasks), moved, known)


def extra_rollouts(tasks: int, controls: int = 1) -> int:
    """Rollouts of an audit, without those that the search needs anyway."""
    return (1 + controls) * tasks


def detectable_lift(variance: float, plan: GatePlan) -> float | None:
    """The smallest lift that the first exam certifies in 80 % of cases with the whole exam budget; None when that is
    too small to certify anything. Rollouts that the search does not use are not counted."""
    pairs = plan.exam_budget // PAIR
    return smallest_lift(variance, plan.terms(plan.level(1), pairs)) if pairs else None


def is_hopeless(lift: float | None) -> bool:
    """Whether the budget is too small to detect a realistic lift."""
    return lift is None or lift > REFUSED


def refuse_hopeless(lift: float | None, needed: str | None) -> None:
    """Raise UserError: the budget is too small to detect a realistic lift. `needed` is a budget that would do."""
    points = f"{REFUSED * 100:.0f} points"
    found = (
        "is too small for an exam"
        if lift is None
        else f"detects only lifts from {lift * 100:.0f} points on (in 80 % of exams)"
    )
    expected = f"{needed} would detect {points}" if needed else f"no budget would detect {points}"
    raise UserError(f"the budget {found}; {expected}; use `force` to run anyway")


async def _measure(
    tasks: Sequence[str], skill: str | None, keys: Sequence[RolloutKey], rollouts: AuditRollouts
) -> list[Outcome]:
    return await asyncio.gather(*(rollouts(task, skill, key) for task, key in zip(tasks, keys, strict=True)))


def _pairs(one: Sequence[Outcome], other: Sequence[Outcome]) -> list[tuple[float, float]]:
    pairs = zip(one, other, strict=True)
    return [(a, b) for a, b in pairs if not isinstance(a, Cause) and not isinstance(b, Cause)]
