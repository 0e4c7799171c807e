"""The acceptance rules of other optimizers as gates of their own, and how often they take what does nothing.

Each compares one pass over the validation tasks with the stored one of the incumbent. What it takes is accepted by
that rule, and never certified.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from whet.scoring import Cause
from whet.scoring.score import ROUNDING
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.kinds import GateKind
from whet.skills.measurement import Measured, Outcome, OutOfBudget, RolloutKey, Rollouts, refuse_lost

Floats = NDArray[np.float64]
Rule = Callable[[Floats, Floats], NDArray[np.bool_]]
"""Scores before and after, paired by task along the last axis, to whether the candidate is taken. A tie is not."""

_DRAWS = 10_000


def soft(before: Floats, after: Floats) -> NDArray[np.bool_]:
    """The mean score is higher."""
    return _higher(before, after)


def hard(before: Floats, after: Floats) -> NDArray[np.bool_]:
    """The share of tasks that are passed in full is higher."""
    return _higher(_passed(before), _passed(after))


def mixed(before: Floats, after: Floats) -> NDArray[np.bool_]:
    """The mean of both is higher."""
    return _higher(before + _passed(before), after + _passed(after))


def no_regression(before: Floats, after: Floats) -> NDArray[np.bool_]:
    """The mean score is higher, and no task fails that was passed before."""
    kept = np.asarray((_passed(after) >= _passed(before)).all(axis=-1))
    return _higher(before, after) & kept


RULES: Mapping[GateKind, Rule] = MappingProxyType(
    {
        GateKind.STRICT: soft,
        GateKind.SOFT: soft,
        GateKind.HARD: hard,
        GateKind.MIXED: mixed,
        GateKind.NO_REGRESSION: no_regression,
    }
)


@dataclass(frozen=True, slots=True)
class Compared:
    """A candidate that a rule decided on."""

    rule: GateKind
    incumbent: str
    candidate: str
    before: tuple[Outcome, ...]
    after: tuple[Outcome, ...]
    """Of one rollout on each validation task."""

    @property
    def accepted(self) -> bool:
        """On the tasks that both have a score of. For the rule that lets nothing regress, a task that was passed and
        is lost now has regressed."""
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


class ClassicGate:
    """One pass for each candidate. It has no levels to spend, and no last word worth the name."""

    def __init__(
        self, rule: GateKind, start: str, tasks: Sequence[str], purse: RolloutBudget, rollouts: Rollouts
    ) -> None:
        self.incumbent, self.purse = start, purse
        self._rule, self._tasks, self._rollouts = rule, tasks, rollouts

    async def run_exam(self, candidate: str) -> Compared | None:
        """Compare a candidate with the incumbent, unless it is the same or there is no money for it."""
        if candidate == self.incumbent:
            return None
        try:
            before, after = await self._pass(self.incumbent), await self._pass(candidate)
        except OutOfBudget:
            return None
        if before is None or after is None:
            return None
        found = Compared(self._rule, self.incumbent, candidate, tuple(before.values()), tuple(after.values()))
        if found.accepted:
            self.incumbent = candidate
        return found

    async def _pass(self, skill: str) -> Measured | None:
        """Every validation task once. Asked for again, it costs nothing and says the same."""
        keys = [RolloutKey.validation(task, skill) for task in self._tasks]
        if not self.purse.pay(keys):
            return None
        outcomes = await asyncio.gather(
            *(self._rollouts(task, skill, key) for task, key in zip(self._tasks, keys, strict=True))
        )
        measured = dict(zip(keys, outcomes, strict=True))
        refuse_lost(measured, "validation")
        return measured


def false_accepts(rule: GateKind, twice: Iterable[tuple[float, float]], tasks: int) -> float:
    """How often a rule takes a candidate that does nothing, on so many tasks.

    `twice` are two measurements of one skill on some tasks. Tasks are drawn among them, and which of the two came
    before is drawn too: a candidate that does nothing is the same skill measured again.

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


def _higher(before: Floats, after: Floats) -> NDArray[np.bool_]:
    # Sums of the same fractions in another order are no difference.
    return np.asarray((after - before).mean(axis=-1) > ROUNDING)


def _passed(scores: Floats) -> Floats:
    return (scores >= 1 - ROUNDING).astype(float)
