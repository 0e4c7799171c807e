"""The ratchet: try one proposal after the other, and keep each one that scores higher than the leader."""

from whet.skills.gate.plan import GatePlan
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import CandidateSource, Lead, TrainTasks


class Ratchet:
    """One proposal after the other: it leads when its mean is above the bar, and its mean is the next bar."""

    def __init__(self, start: str, dev: TrainTasks, plan: GatePlan, proposer: CandidateSource) -> None:
        self._lead, self._dev, self._proposer = Lead(start, plan), dev, proposer
        self._steps: list[SearchStep] = []

    @property
    def leader(self) -> str:
        return self._lead.skill

    async def round(self) -> list[SearchStep]:
        """One proposal."""
        if not await self._lead.settle(self._dev):
            return []
        parent = self.leader
        candidate = await self._proposer.propose(parent, self._steps, self._dev.purse.pay)
        if candidate is None or (outcomes := await self._dev.measure(candidate)) is None:
            return []
        self._steps.append(self._lead.judge(parent, candidate, outcomes))
        return self._steps[-1:]
