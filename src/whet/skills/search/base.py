"""What all searches on training tasks share: the protocols, the measurement of a skill, and the leader.

A search is greedy, and noise often misleads it. Nothing that it finds counts before an exam has certified it.
"""

import asyncio
from collections.abc import Sequence
from math import fsum
from typing import Protocol

from whet.scoring import Cause
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Measurement, Pay, RolloutKey, Rollouts, mean, refuse_missing
from whet.skills.proposers.base import SearchStep


class CandidateSource(Protocol):
    """Writes skills. What it is given comes from training tasks, its own memory and certified bits; nothing else."""

    async def propose(
        self,
        parent: str,
        steps: Sequence[SearchStep],
        pay: Pay,
        section: str | None = None,
    ) -> str | None:
        """Another skill than the parent, by its digest; None when it has nothing more to propose.

        It may be asked again for the same parent before what it proposed is measured, and be told to change one
        section alone. It pays for rollouts of training tasks itself, and gives up when it cannot."""
        ...


class Search(Protocol):
    """One way to look for better skills."""

    @property
    def leader(self) -> str:
        """The best so far."""
        ...

    async def round(self) -> list[SearchStep]:
        """The next proposals, measured; empty when there are none, or they cannot be paid."""
        ...


class TrainTasks:
    """The dev tasks, and the purse that skills are tried on them from.

    A measurement has a number, and of each task so many samples. What is asked for twice under one number, by two
    candidates with the same text, is rolled out once; another number is another measurement.
    """

    def __init__(self, tasks: Sequence[str], purse: RolloutBudget, rollouts: Rollouts, samples: int = 1) -> None:
        self.tasks, self.purse, self.samples = tuple(tasks), purse, samples
        self._rollouts = rollouts
        self._number = 0

    @property
    def size(self) -> int:
        """Rollouts of a measurement."""
        return self.samples * len(self.tasks)

    def new_measurement(self) -> int:
        self._number += 1
        return self._number

    async def measure(self, skill: str) -> Measurement | None:
        """A fresh measurement on all tasks, in their order; None when it cannot be paid."""
        found = await self.measure_some(self.new_measurement(), [skill], self.tasks)
        if found is None:
            return None
        refuse_missing(found[skill])
        return found[skill]

    async def measure_some(
        self, number: int, skills: Sequence[str], tasks: Sequence[str]
    ) -> dict[str, Measurement] | None:
        """Try these skills on these tasks; None when that cannot be paid."""
        wanted = [
            (skill, task, RolloutKey.search(number, task, skill, sample))
            for skill in skills
            for task in tasks
            for sample in range(self.samples)
        ]
        if not self.purse.pay(key for _, _, key in wanted):
            return None
        outcomes = await asyncio.gather(*(self._rollouts(task, skill, key) for skill, task, key in wanted))
        found: dict[str, Measurement] = {skill: {} for skill in skills}
        for (skill, _, key), outcome in zip(wanted, outcomes, strict=True):
            found[skill][key] = outcome
        return found

    def by_task(self, outcomes: Measurement) -> list[float | None]:
        """The mean score on each task of a whole measurement; None where all was lost."""
        each = zip(*[iter(outcomes.values())] * self.samples, strict=True)
        scores = ([one for one in some if not isinstance(one, Cause)] for some in each)
        return [fsum(some) / len(some) if some else None for some in scores]


class Lead:
    """The leader, and the bar: its dev mean, which a proposal must be above to lead."""

    def __init__(self, start: str, plan: GatePlan) -> None:
        self.skill = start
        self.outcomes: Measurement = {}
        """The last measurement of the leader."""
        self._rejections = 0
        self._patience = plan.rejections_before_remeasuring

    @property
    def bar(self) -> float:
        return mean(self.outcomes)

    async def settle(self, dev: TrainTasks) -> bool:
        """See that the bar is known, and whether there is money left to try anything against it.

        After many rejections in a row it is measured afresh: the mean of a winner is too high."""
        if not self.outcomes or self._rejections >= self._patience:
            outcomes = await dev.measure(self.skill)
            if outcomes is None:
                return False
            self.outcomes, self._rejections = outcomes, 0
        return dev.purse.left >= dev.size

    def judge(self, parent: str, candidate: str, outcomes: Measurement) -> SearchStep:
        """Whether a candidate that was tried on all dev tasks leads from now on."""
        step = SearchStep(parent, candidate, mean(outcomes), self.bar)
        if step.accepted:
            self.skill, self.outcomes, self._rejections = candidate, outcomes, 0
        else:
            self._rejections += 1
        return step
