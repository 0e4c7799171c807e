"""Several writers as one: the next is asked when those before it have nothing more to propose."""

from dataclasses import replace

from whet.skills.proposers.base import Proposal, ProposalContext, Proposer


class ProposerChain:
    """Asks its writers in their order."""

    def __init__(self, writers: tuple[Proposer, ...]) -> None:
        self._writers = writers

    async def write(self, brief: ProposalContext) -> Proposal:
        """The draft of the first writer that has edits, with what was refused to those before it."""
        drafts: list[Proposal] = []
        for writer in self._writers:
            drafts.append(await writer.write(brief))
            if drafts[-1].edits:
                break
        return replace(drafts[-1], refused=tuple(one for draft in drafts for one in draft.refused))
