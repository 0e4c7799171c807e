"""The acceptance rules of other optimizers, and how often each accepts a candidate that changes nothing.

Each rule compares one pass over the validation tasks with the stored pass of the incumbent. A rule accepts; it never
certifies.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from whet.scoring import Cause
from whet.scoring.score import ROUNDING
from whet.skills.gate.eprocess import FloatArray
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.kinds import GateKind
from whet.skills.measurement import Measurement, Outcome, OutOfBudget, RolloutKey, Rollouts, refuse_missing

Rule = Callable[[FloatArray, FloatArray], NDArray[np.bool_]]
"""Takes scores before and after, paired by task along the last axis. Returns whether it accepts; a tie is rejected."""

_DRAWS = 10_000


def _compare_means(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    """Accept a higher mean score."""
    return _higher(before, after)


def _compare_passes(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    """Accept a higher share of fully passed tasks."""
    return _higher(_as_passes(before), _as_passes(after))


def _compare_both(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    """Accept a higher mean of both metrics."""
    return _higher(before + _as_passes(before), after + _as_passes(after))


def _forbid_regression(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    """Accept a higher mean score if no passed task fails now."""
    kept = np.asarray((_as_passes(after) >= _as_passes(before)).all(axis=-1))
    return _higher(before, after) & kept


RULES: Mapping[GateKind, Rule] = MappingProxyType(
    {
        GateKind.STRICT: _compare_means,
        GateKind.SOFT: _compare_means,
        GateKind.HARD: _compare_passes,
        GateKind.MIXED: _compare_both,
        GateKind.NO_REGRESSION: _forbid_regression,
    }
)


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """A rule's decision about a candidate."""

    rule: GateKind
    incumbent: str
    candidate: str
    before: tuple[Outcome, ...]
    after: tuple[Outcome, ...]
    """Scores of one rollout per validation task."""

    @property
    def accepted(self) -> bool:
        """Whether the rule accepts, on the tasks where both have a score. For `no-regression`, a missing score of a
        task that was passed before is a regression."""
        pairs = list(zip(self.before, self.after, strict=True))
        if self.rule is GateKind.NO_REGRESSION and any(
            isinstance(after, Cause) and not isinstance(before, Cause) and before >= 1 - ROUNDING
            for before, after in pairs
        ):
            return False
        both = [(b, a) for b, a in pairs if not isinstance(b, Cause) and not isinstance(a, Cause)]
        if not both:
            return False
        before, after = np.array(both, dtype=float).T
        return bool(RULES[self.rule](before, after))


class RuleGate:
    """Decides by a rule, with one pass over the validation tasks per candidate. It certifies nothing."""

    def __init__(
        self, rule: GateKind, start: str, tasks: Sequence[str], budget: RolloutBudget, rollouts: Rollouts
    ) -> None:
        self.incumbent, self.budget = start, budget
        self._rule, self._tasks, self._rollouts = rule, tasks, rollouts

    async def run_exam(self, candidate: str) -> RuleComparison | None:
        """Compare a candidate with the incumbent. None when they are the same or the budget is too small."""
        if candidate == self.incumbent:
            return None
        try:
            before, after = await self._pass(self.incumbent), await self._pass(candidate)
        except OutOfBudget:
            return None
        if before is None or after is None:
            return None
        found = RuleComparison(self._rule, self.incumbent, candidate, tuple(before.values()), tuple(after.values()))
        if found.accepted:
            self.incumbent = candidate
        return found

    async def _pass(self, skill: str) -> Measurement | None:
        """Every validation task once. A second call costs nothing and gives the same result."""
        keys = [RolloutKey.validation(task, skill) for task in self._tasks]
        if not self.budget.pay(keys):
            return None
        outcomes = await asyncio.gather(
            *(self._rollouts(task, skill, key) for task, key in zip(self._tasks, keys, strict=True))
        )
        measured = dict(zip(keys, outcomes, strict=True))
        refuse_missing(measured, "validation")
        return measured


def false_accepts(rule: GateKind, twice: Iterable[tuple[float, float]], tasks: int) -> float:
    """Estimate how often a rule accepts a candidate that changes nothing, on this many tasks.

    `twice` holds two measurements of one skill on some tasks. The estimate draws tasks, and which measurement counts as
    the earlier one: a candidate that changes nothing is the same skill measured again.

    >>> round(false_accepts(GateKind.STRICT, [(1, 0), (0, 0), (1, 1)], 30), 2)
    0.44
    """
    pairs = np.array(list(twice), dtype=float)
    random = np.random.default_rng(0)
    drawn = pairs[random.integers(0, len(pairs), (_DRAWS, tasks))]
    turned = random.random(drawn.shape[:2]) < 0.5
    before = np.where(turned, drawn[..., 1], drawn[..., 0])
    after = np.where(turned, drawn[..., 0], drawn[..., 1])
    return float(RULES[rule](before, after).mean())


def _higher(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    # Sums of the same fractions in another order may differ by rounding.
    return np.asarray((after - before).mean(axis=-1) > ROUNDING)


def _as_passes(scores: FloatArray) -> FloatArray:
    return (scores >= 1 - ROUNDING).astype(float)
