"""What all searches on training tasks share: the protocols, the measurement of a skill, and the leader.

A search is greedy, and noise often misleads it. Nothing that it finds counts before an exam has certified it.
"""

import asyncio
from collections.abc import Sequence
from math import fsum
from typing import Protocol

from whet.scoring import Cause
from whet.scoring.score import ROUNDING
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import (
    Measurement,
    Pay,
    ReadExecution,
    RolloutKey,
    Rollouts,
    clean_execution,
    mean,
    refuse_missing,
)
from whet.skills.proposers.base import SearchStep


class CandidateSource(Protocol):
    """Proposes skills. It sees training tasks, its own memory and one bit per exam, and nothing else."""

    async def propose(
        self,
        parent: str,
        steps: Sequence[SearchStep],
        pay: Pay,
        section: str | None = None,
    ) -> str | None:
        """Return the digest of a skill that differs from the parent; None when there is nothing more to propose.

        It may be called again with the same parent before its last proposal is measured. With `section`, it may change
        only that section. It pays for its own rollouts on train tasks, and returns None if it cannot."""
        ...


class Search(Protocol):
    """A search strategy."""

    @property
    def leader(self) -> str:
        """Digest of the best skill so far."""
        ...

    async def round(self) -> list[SearchStep]:
        """Measure the next proposals; empty when there are none or the budget has ended."""
        ...


class TrainTasks:
    """The train tasks, and the budget for measuring skills on them.

    A measurement has a number, and `samples` rollouts per task. Within one number the same skill is rolled out once
    per task and sample; another number is a fresh measurement.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        budget: RolloutBudget,
        rollouts: Rollouts,
        samples: int = 1,
        read_execution: ReadExecution = clean_execution,
    ) -> None:
        self.tasks, self.budget, self.samples = tuple(tasks), budget, samples
        self._rollouts, self._read_execution = rollouts, read_execution
        self._number = 0

    @property
    def size(self) -> int:
        """Number of rollouts of a measurement."""
        return self.samples * len(self.tasks)

    def new_measurement(self) -> int:
        self._number += 1
        return self._number

    async def measure(self, skill: str) -> Measurement | None:
        """Measure a skill afresh on all tasks; None when the budget is too small."""
        found = await self.measure_some(self.new_measurement(), [skill], self.tasks)
        if found is None:
            return None
        refuse_missing(found[skill])
        return found[skill]

    async def measure_some(
        self, number: int, skills: Sequence[str], tasks: Sequence[str]
    ) -> dict[str, Measurement] | None:
        """Measure these skills on these tasks; None when the budget is too small."""
        keys = [
            (skill, task, RolloutKey.search(number, task, skill, sample))
            for skill in skills
            for task in tasks
            for sample in range(self.samples)
        ]
        if not self.budget.pay(key for _, _, key in keys):
            return None
        outcomes = await asyncio.gather(*(self._rollouts(task, skill, key) for skill, task, key in keys))
        found: dict[str, Measurement] = {skill: {} for skill in skills}
        for (skill, _, key), outcome in zip(keys, outcomes, strict=True):
            found[skill][key] = outcome
        return found

    async def guard_mean(self, outcomes: Measurement, missing: float) -> float:
        """The mean score of the guard in a measurement, with `missing` for each score that is missing."""
        executions = await asyncio.gather(*map(self._read_execution, outcomes))
        scores = (one.guard for one in executions)
        return fsum(one if isinstance(one, float) else missing for one in scores) / len(executions)

    def by_task(self, outcomes: Measurement) -> list[float | None]:
        """The mean score on each task of a whole measurement; None where all scores are missing."""
        each = zip(*[iter(outcomes.values())] * self.samples, strict=True)
        scores = ([one for one in some if not isinstance(one, Cause)] for some in each)
        return [fsum(some) / len(some) if some else None for some in scores]


class Lead:
    """The leader, and the bar: its mean on the train tasks. A proposal that exceeds the bar becomes the leader."""

    def __init__(self, start: str, plan: GatePlan) -> None:
        self.skill = start
        self.outcomes: Measurement = {}
        """The last measurement of the leader."""
        self._rejections = 0
        self._patience = plan.rejections_before_remeasuring
        self._guard = plan.guard
        self._guarded: float | None = None
        """The mean score of the guard with the first skill."""

    @property
    def bar(self) -> float:
        return mean(self.outcomes)

    async def settle(self, train: TrainTasks) -> bool:
        """Measure the bar if needed; return whether the budget allows another measurement.

        After many rejections in a row the leader is measured again: the mean of a winner is too high."""
        if not self.outcomes or self._rejections >= self._patience:
            outcomes = await train.measure(self.skill)
            if outcomes is None:
                return False
            self.outcomes, self._rejections = outcomes, 0
            if self._guard is not None and self._guarded is None:
                self._guarded = await train.guard_mean(outcomes, missing=1.0)
        return train.budget.left >= train.size

    async def judge(self, parent: str, candidate: str, outcomes: Measurement, train: TrainTasks) -> SearchStep:
        """Decide whether a measured candidate becomes the leader."""
        harmful = await self._is_harmful(outcomes, train)
        step = SearchStep(parent, candidate, mean(outcomes), self.bar, harmful=harmful)
        if step.accepted:
            self.skill, self.outcomes, self._rejections = candidate, outcomes, 0
        else:
            self._rejections += 1
        return step

    async def _is_harmful(self, outcomes: Measurement, train: TrainTasks) -> bool:
        """Whether the guard fell by more than its margin since the first skill. One rollout more may fail by chance:
        with few tasks it would weigh more than the margin. The exam is what proves anything about the guard."""
        if self._guard is None or self._guarded is None:
            return False
        fell = self._guarded - await train.guard_mean(outcomes, missing=0.0)
        return fell > self._guard.margin + 1 / len(outcomes) + ROUNDING
