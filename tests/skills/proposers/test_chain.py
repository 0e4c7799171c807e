"""Writers that are joined by a plus: the next is asked when those before it have nothing more to propose."""

from pathlib import Path

import pytest

from support.proposers_world import SKILL, context, failing_rollouts
from whet.errors import UserError
from whet.skills.documents.document import Policy
from whet.skills.proposers.base import PastProposal, Proposal, ProposalContext
from whet.skills.sharpen.options import read_proposer
from whet.skills.sharpen.proposer_runtime import ProposerSpec


async def written(name: str, given: ProposalContext) -> Proposal:
    proposer = read_proposer(name)
    assert not isinstance(proposer, ProposerSpec)
    return await proposer.propose(given)


async def test_the_second_goes_on_where_the_first_ends(tmp_path: Path) -> None:
    file = tmp_path / "a+rules.txt"
    file.write_text("- Be brave.\n")
    rollouts = failing_rollouts({"op": "contains", "arg": "Captain"})
    first = await written(f"criteria+rules:{file}", context(*rollouts))
    assert "Captain" in first.edits[0].text
    past: tuple[PastProposal, ...] = (PastProposal(first.edits, (), accepted=False),)
    second = await written(f"criteria+rules:{file}", context(*rollouts, past=past))
    assert [edit.text for edit in second.edits] == ["- Be brave."]
    past += (PastProposal(second.edits, (), accepted=False),)
    assert (await written(f"criteria+rules:{file}", context(*rollouts, past=past))).edits == ()


async def test_what_was_refused_to_the_first_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_text("- Be brave.\n")
    full = context(*failing_rollouts({"op": "contains", "arg": "Captain"}), policy=Policy(max_chars=len(SKILL) + 15))
    proposal = await written(f"criteria+rules:{tmp_path / 'rules.txt'}", full)
    assert "characters" in proposal.refused[0].reason


def test_models_and_agents_do_not_take_turns() -> None:
    with pytest.raises(UserError, match="expected criteria"):
        read_proposer("llm+criteria")
