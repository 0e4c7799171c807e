"""Writers that are joined by a plus: the next is asked when those before it have nothing more to propose."""

from pathlib import Path

import pytest

from support.writers_world import SKILL, brief, failing_trials
from whet.errors import UserError
from whet.skills.documents.document import Policy
from whet.skills.proposers.base import Proposal, ProposalContext, Tried
from whet.skills.sharpen.named import read_proposer
from whet.skills.sharpen.proposer_runtime import ProposerSpec


async def written(name: str, given: ProposalContext) -> Proposal:
    writer = read_proposer(name)
    assert not isinstance(writer, ProposerSpec)
    return await writer.write(given)


async def test_the_second_goes_on_where_the_first_ends(tmp_path: Path) -> None:
    file = tmp_path / "a+rules.txt"
    file.write_text("- Be brave.\n")
    trials = failing_trials({"op": "contains", "arg": "Captain"})
    first = await written(f"criteria+rules:{file}", brief(*trials))
    assert "Captain" in first.edits[0].text
    tried: tuple[Tried, ...] = (Tried(first.edits, (), accepted=False),)
    second = await written(f"criteria+rules:{file}", brief(*trials, tried=tried))
    assert [edit.text for edit in second.edits] == ["- Be brave."]
    tried += (Tried(second.edits, (), accepted=False),)
    assert (await written(f"criteria+rules:{file}", brief(*trials, tried=tried))).edits == ()


async def test_what_was_refused_to_the_first_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_text("- Be brave.\n")
    full = brief(*failing_trials({"op": "contains", "arg": "Captain"}), policy=Policy(max_chars=len(SKILL) + 15))
    draft = await written(f"criteria+rules:{tmp_path / 'rules.txt'}", full)
    assert "characters" in draft.refused[0].reason


def test_models_and_agents_do_not_take_turns() -> None:
    with pytest.raises(UserError, match="expected criteria"):
        read_proposer("llm+criteria")
