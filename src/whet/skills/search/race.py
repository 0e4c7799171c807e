"""The race: several proposals of one leader run on the same train tasks in lockstep, and the better half continues.

A poor candidate costs a third of a measurement. The winner still has to exceed the bar.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from whet.ids import digest
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Measurement, mean, refuse_missing
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import CandidateSource, Lead, TrainTasks

LANES = 4
"""Proposals per race. Two cuts leave one of them."""


class Race:
    """Every round is one race."""

    def __init__(self, start: str, train: TrainTasks, plan: GatePlan, proposer: CandidateSource) -> None:
        self._lead, self._train, self._proposer, self._seed = Lead(start, plan), train, proposer, plan.seed
        self._steps: list[SearchStep] = []

    @property
    def leader(self) -> str:
        return self._lead.skill

    async def round(self) -> list[SearchStep]:
        """Run one race, with fewer proposals when the budget is small."""
        if not await self._lead.settle(self._train):
            return []
        racers = await self._collect_proposals()
        # Proposals use the budget too.
        racers = racers[: self._affordable()]
        steps = await self._run(racers) if racers else []
        self._steps += steps
        return steps

    async def _collect_proposals(self) -> list[str]:
        found: dict[str, None] = {}
        for _ in range(self._affordable()):
            candidate = await self._proposer.propose(self.leader, self._steps, self._train.budget.pay)
            if candidate is None:
                break
            found[candidate] = None
        return list(found)

    async def _run(self, racers: Sequence[str]) -> list[SearchStep]:
        """Return the dropped candidates in order, then the winner."""
        parent, number = self.leader, self._train.new_measurement()
        order = sorted(self._train.tasks, key=lambda task: digest(f"{self._seed}/{number}".encode(), task.encode()))
        scores: dict[str, Measurement] = {racer: {} for racer in racers}
        left, steps = list(racers), []
        for leg in legs(order):
            found = await self._train.measure_some(number, left, leg)
            assert found is not None, "the budget was checked before"
            for racer, outcomes in found.items():
                scores[racer] |= outcomes
            ranked = sorted(left, key=lambda racer: -mean(scores[racer]))
            left = ranked[: half(len(ranked))]
            # A candidate without any score has no mean to report; it only ranks last.
            behind = [racer for racer in ranked[len(left) :] if mean(scores[racer]) >= 0]
            steps += [SearchStep(parent, racer, mean(scores[racer]), self._lead.bar, dropped=True) for racer in behind]
        (winner,) = left
        refuse_missing(scores[winner])
        return [*steps, await self._lead.judge(parent, winner, scores[winner], self._train)]

    def _affordable(self) -> int:
        """How many proposals the budget allows."""
        tasks, most = len(self._train.tasks), self._train.budget.left // self._train.samples
        return next((lanes for lanes in range(LANES, 0, -1) if cost(lanes, tasks) <= most), 0)


def legs(order: Sequence[str]) -> Iterator[Sequence[str]]:
    """The tasks of each third of a race."""
    cuts = [round(len(order) * third / 3) for third in range(4)]
    return (order[start:end] for start, end in pairwise(cuts))


def half(lanes: int) -> int:
    return (lanes + 1) // 2


def cost(lanes: int, tasks: int) -> int:
    """Rollouts of a race with one sample per task.

    >>> cost(4, 30), cost(1, 30)
    (70, 30)
    """
    total = 0
    for leg in legs(["task"] * tasks):
        total += lanes * len(leg)
        lanes = half(lanes)
    return total
