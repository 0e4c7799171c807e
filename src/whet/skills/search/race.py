"""The race: several proposals of one leader on the same dev tasks in lockstep; the better half goes on.

A hopeless candidate costs a third of a measurement. Who wins a race has still to be above the bar.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from whet.ids import digest
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Measurement, mean, refuse_missing
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import CandidateSource, Lead, TrainTasks

LANES = 4
"""How many are raced; so many that after two cuts one is left."""


class Race:
    """Every round is a race."""

    def __init__(self, start: str, dev: TrainTasks, plan: GatePlan, proposer: CandidateSource) -> None:
        self._lead, self._dev, self._proposer, self._seed = Lead(start, plan), dev, proposer, plan.seed
        self._steps: list[SearchStep] = []

    @property
    def leader(self) -> str:
        return self._lead.skill

    async def round(self) -> list[SearchStep]:
        """One race; with fewer in it when there is no money for more."""
        if not await self._lead.settle(self._dev):
            return []
        racers = await self._proposed()
        # Proposals cost money too.
        racers = racers[: self._affordable()]
        steps = await self._run(racers) if racers else []
        self._steps += steps
        return steps

    async def _proposed(self) -> list[str]:
        found: dict[str, None] = {}
        for _ in range(self._affordable()):
            candidate = await self._proposer.propose(self.leader, self._steps, self._dev.purse.pay)
            if candidate is None:
                break
            found[candidate] = None
        return list(found)

    async def _run(self, racers: Sequence[str]) -> list[SearchStep]:
        """Losers first, as they fall behind, then the winner."""
        parent, number = self.leader, self._dev.new_measurement()
        order = sorted(self._dev.tasks, key=lambda task: digest(f"{self._seed}/{number}".encode(), task.encode()))
        scores: dict[str, Measurement] = {racer: {} for racer in racers}
        left, steps = list(racers), []
        for leg in legs(order):
            found = await self._dev.measure_some(number, left, leg)
            assert found is not None, "the purse was looked into before"
            for racer, outcomes in found.items():
                scores[racer] |= outcomes
            ranked = sorted(left, key=lambda racer: -mean(scores[racer]))
            left = ranked[: half(len(ranked))]
            # Of one whose rollouts were all lost nothing is known; its mean only ranks it.
            behind = [racer for racer in ranked[len(left) :] if mean(scores[racer]) >= 0]
            steps += [SearchStep(parent, racer, mean(scores[racer]), self._lead.bar, dropped=True) for racer in behind]
        (winner,) = left
        refuse_missing(scores[winner])
        return [*steps, self._lead.judge(parent, winner, scores[winner])]

    def _affordable(self) -> int:
        """How many lanes a race may have."""
        tasks, most = len(self._dev.tasks), self._dev.purse.left // self._dev.samples
        return next((lanes for lanes in range(LANES, 0, -1) if cost(lanes, tasks) <= most), 0)


def legs(order: Sequence[str]) -> Iterator[Sequence[str]]:
    """The thirds of a race."""
    cuts = [round(len(order) * third / 3) for third in range(4)]
    return (order[start:end] for start, end in pairwise(cuts))


def half(lanes: int) -> int:
    return (lanes + 1) // 2


def cost(lanes: int, tasks: int) -> int:
    """Rollouts of a race, with one sample of each task.

    >>> cost(4, 30), cost(1, 30)
    (70, 30)
    """
    total = 0
    for leg in legs(["task"] * tasks):
        total += lanes * len(leg)
        lanes = half(lanes)
    return total
