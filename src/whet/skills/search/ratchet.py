"""The ratchet: try one proposal after the other, and keep each one that scores higher than the leader."""

from whet.skills.gate.plan import GatePlan
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import CandidateSource, Lead, TrainTasks


class Ratchet:
    """A proposal becomes the leader when its mean exceeds the bar; its mean is the next bar."""

    def __init__(self, start: str, train: TrainTasks, plan: GatePlan, proposer: CandidateSource) -> None:
        self._lead, self._train, self._proposer = Lead(start, plan), train, proposer
        self._steps: list[SearchStep] = []

    @property
    def leader(self) -> str:
        return self._lead.skill

    async def round(self) -> list[SearchStep]:
        if not await self._lead.settle(self._train):
            return []
        parent = self.leader
        candidate = await self._proposer.propose(parent, self._steps, self._train.budget.pay)
        if candidate is None or (outcomes := await self._train.measure(candidate)) is None:
            return []
        self._steps.append(await self._lead.judge(parent, candidate, outcomes, self._train))
        return self._steps[-1:]
