"""Several proposers as one: the next is asked when those before it have nothing to propose."""

from dataclasses import replace

from whet.skills.proposers.base import Proposal, ProposalContext, Proposer


class ProposerChain:
    """Asks its proposers in their order."""

    def __init__(self, proposers: tuple[Proposer, ...]) -> None:
        self._proposers = proposers

    async def propose(self, context: ProposalContext) -> Proposal:
        """The proposal of the first proposer that has edits, with the refused edits of those before it."""
        proposals: list[Proposal] = []
        for proposer in self._proposers:
            proposals.append(await proposer.propose(context))
            if proposals[-1].edits:
                break
        refused = tuple(one for proposal in proposals for one in proposal.refused)
        return replace(proposals[-1], refused=refused, exhausted=all(one.exhausted for one in proposals))
