"""The noise audit: how much scores of one skill differ by chance, hence what lift a budget can show at all."""

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
from whet.skills.gate.sequential_test import level_of
from whet.skills.measurement import NotMeasured, Outcome, RolloutKey

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
    known: tuple[float, ...] | None = None
    """What a skill adds that is known to be good, against this one; None when there is none."""

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
        """The same, with room for what few tasks do not show; no score in [0, 1] varies by more than 0 or 1 does."""
        number, differ = len(self.differences), sum(one != 0 for one in self.differences)
        if number >= ENOUGH_TASKS or differ == number:
            return min(BINARY, self.variance)
        most = float(betaincinv(differ + 1, number - differ, _CERTAINTY))
        return min(BINARY, self.variance * most / self.discordance if differ else most / 2)

    @property
    def moves(self) -> bool:
        """Whether any of the controls is seen to change scores by more than chance does."""
        return any(self._stands_out(one) for one in (self.moved, self.known or ()))

    def _stands_out(self, differences: Sequence[float]) -> bool:
        if not self.discordance:
            return any(differences)
        # Two standard errors of the sum.
        return abs(fsum(differences)) > 2 * sqrt(fsum(one**2 for one in differences))


class AuditRollouts(Protocol):
    """Where skills are tried on tasks, and tasks without any skill."""

    async def __call__(self, task: str, skill: str | None, key: RolloutKey) -> Outcome: ...


async def audit(skill: str, tasks: Sequence[str], rollouts: AuditRollouts, known_good: str | None = None) -> Audit:
    """Measure a skill twice and no skill once, and one that is known to be good if there is one. The first measurement
    is the one that the search begins with. NotMeasured when nothing can be compared."""
    arms = [
        (skill, [RolloutKey.search(1, task, skill) for task in tasks]),
        (skill, [RolloutKey.audit("again", task) for task in tasks]),
        (None, [RolloutKey.audit("without", task) for task in tasks]),
    ]
    if known_good is not None:
        arms.append((known_good, [RolloutKey.audit("known", task) for task in tasks]))
    measured = await asyncio.gather(*(_measured(tasks, one, keys, rollouts) for one, keys in arms))
    first, again, without = measured[:3]
    lost = [
        key
        for (_, keys), found in zip(arms, measured, strict=True)
        for key, one in zip(keys, found, strict=True)
        if isinstance(one, Cause)
    ]
    twice = tuple(_pairs(first, again))
    if not twice:
        raise NotMeasured("every training task lost a rollout of the audit; look into it with `whet show`", lost)
    moved = tuple(one - other for one, other in _pairs(first, without))
    known = None if known_good is None else tuple(one - other for one, other in _pairs(measured[3], first))
    return Audit(twice, len(lost), len(arms) * len(tasks), moved, known)


def extra_rollouts(tasks: int, controls: int = 1) -> int:
    """What an audit with so many controls costs beside what the search pays anyway."""
    return (1 + controls) * tasks


def detectable_lift(variance: float, plan: GatePlan) -> float | None:
    """The smallest lift that the first attempt certifies in 80 % of cases with all that is put aside for exams; None
    when that is too little to certify anything. What the search leaves comes on top of it."""
    positions = plan.exam_budget // PAIR
    return smallest_lift(variance, plan.terms(level_of(plan.alpha, 1), positions)) if positions else None


def is_hopeless(lift: float | None) -> bool:
    """Whether a budget shows no lift that can be expected."""
    return lift is None or lift > REFUSED


def refuse_hopeless(lift: float | None, needed: str | None) -> None:
    """UserError: the budget is too small to show any lift that can be expected. `needed` would be enough."""
    found = None if lift is None else f"an exam certifies lifts from {lift * 100:.0f} points on in 80 % of cases"
    shows = found or "no exam can be held"
    points = f"{REFUSED * 100:.0f} points"
    expected = f"{needed} would certify {points}" if needed else f"no budget would certify {points}"
    raise UserError(f"with this budget and scores as noisy as these {shows}; {expected}; `force` runs it anyway")


async def _measured(
    tasks: Sequence[str], skill: str | None, keys: Sequence[RolloutKey], rollouts: AuditRollouts
) -> list[Outcome]:
    return await asyncio.gather(*(rollouts(task, skill, key) for task, key in zip(tasks, keys, strict=True)))


def _pairs(one: Sequence[Outcome], other: Sequence[Outcome]) -> list[tuple[float, float]]:
    pairs = zip(one, other, strict=True)
    return [(a, b) for a, b in pairs if not isinstance(a, Cause) and not isinstance(b, Cause)]
