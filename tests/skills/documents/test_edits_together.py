"""A skill and the document that agents always read, sharpened together."""

import json
from pathlib import Path

import pytest

from support.proposers_world import rollout
from support.rollout_world import attempted, shell
from support.sharpen_world import HELPFUL, SKILL, World
from whet.errors import UserError
from whet.rollout.result import Result
from whet.runs.options import RunOptions
from whet.runs.stored_run import load
from whet.skill import read_skill
from whet.skills.documents.document import Policy
from whet.skills.documents.edits import Edit, Op, apply_edits
from whet.skills.documents.store import SkillStore
from whet.skills.gate.plan import GatePlan
from whet.skills.proposers.agent import AgentProposer
from whet.skills.proposers.base import ProposalContext
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.proposer_runtime import ProposerSpec
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill
from whet.tasks import Task

HOUSE = "# House rules\n\n- Be honest.\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "CLAUDE.md").write_text(HOUSE)
    return World(tmp_path)


async def test_a_model_may_put_its_rule_into_either_document(world: World) -> None:
    rule = {"op": "add", "text": HELPFUL, "document": "CLAUDE.md"}
    wrong = {"op": "add", "text": "- Go.", "document": "README.md"}
    (world.folder / "optimizer.toml").write_text(
        f"[[scene]]\nwhen.user = '{HELPFUL}'\n[[scene.reply]]\ntext = '{{\"edits\": []}}'\n"
        f"[[scene]]\n[[scene.reply]]\ntext = '{json.dumps({'edits': [wrong, rule]})}'\n"
    )
    asked = RunOptions(
        tasks=world.folder / "tasks.jsonl", out=world.out, agents=("chat",), models=("m",), sandbox="local"
    )
    wish = SharpenRequest(
        world.folder / "sums",
        asked,
        read_budget("64"),
        GatePlan(64),
        "llm",
        also=world.folder / "CLAUDE.md",
        force=True,
    )
    found = await sharpen_skill(wish, ProposerSpec("llm", model="o"), world.config, env={})
    assert found.leader.memory is not None
    assert found.leader.memory.text == f"{HOUSE}{HELPFUL}\n"
    assert found.leader.text == SKILL
    assert (world.out / "leader/sums/CLAUDE.md").read_text() == found.leader.memory.text
    assert (world.out / "best/sums/CLAUDE.md").read_text() == (found.best.memory.text if found.best.memory else "")
    assert (world.folder / "CLAUDE.md").read_text() == HOUSE
    question = load(world.out / "proposals").rollouts[0].exchanges()[0].request.decode()
    assert "Be honest." in question
    assert "which the agent always reads" in question
    assert (
        "there is no document 'README.md'; expected one of SKILL.md, CLAUDE.md"
        in (world.out / "drafts/0001.json").read_text()
    )


async def test_an_agent_edits_both_as_files() -> None:
    async def attempt(task: Task) -> Result:
        edits = "echo '- One.' >> skill/SKILL.md; echo '- Two.' >> skill/AGENTS.md; echo '- No.' >> skill/more.md"
        return (await attempted(task, shell(f"cat skill/AGENTS.md; {edits}"))).result

    documents = {"SKILL.md": SKILL, "AGENTS.md": HOUSE, "more.md": "More.\n"}
    given = ProposalContext(documents, (rollout(),), (), Policy(), max_edits=4, second_document="AGENTS.md")
    proposal = await AgentProposer(attempt).propose(given)
    assert [(edit.document, edit.text) for edit in proposal.edits] == [("", "- One."), ("AGENTS.md", "- Two.")]
    assert "- Be honest." in proposal.raw
    assert proposal.reason == "changes to other files were ignored: skill/more.md"
    done = apply_edits(given.editable, proposal.edits, Policy())
    assert done.texts == {"SKILL.md": f"{SKILL}- One.\n", "AGENTS.md": f"{HOUSE}- Two.\n"}


def test_a_stored_pair_is_the_pair_that_was_given(world: World, tmp_path: Path) -> None:
    alone = read_skill(world.folder / "sums")
    pair = read_skill(world.folder / "sums", world.folder / "CLAUDE.md")
    shelf = SkillStore(tmp_path / "shelf")
    kept = shelf.keep(pair)
    assert (kept.digest, kept.memory) == (pair.digest, pair.memory)
    assert kept.digest != alone.digest == shelf.keep(alone).digest
    assert pair.whole == f"{SKILL}\n{HOUSE}"
    assert pair.body == f"# Rules\n- Be kind.\n\n{HOUSE}", "without the front matter"
    changed = shelf.store_edited(kept, SKILL, "# Other\n")
    assert changed.memory is not None
    assert (changed.text, changed.memory.text) == (SKILL, "# Other\n")


def test_a_skill_is_another_when_a_file_has_another_name_or_place(world: World) -> None:
    folder = world.folder / "sums"
    (folder / "more").mkdir()
    digests = {read_skill(folder).digest}
    for name in ("a.md", "b.md", "more/a.md"):
        (folder / name).write_text("More.\n")
        digests.add(read_skill(folder).digest)
        (folder / name).unlink()
    assert len(digests) == 4


def test_what_cannot_go_together_is_told(world: World) -> None:
    (world.folder / "notes.md").write_text("x")
    with pytest.raises(UserError, match=r"notes.md: expected a document that agents always read: AGENTS.md, CLAUDE.md"):
        read_skill(world.folder / "sums", world.folder / "notes.md")
    with pytest.raises(UserError, match=r"CLAUDE.md cannot go with it; expected a skill folder"):
        read_skill(world.folder / "notes.md", world.folder / "CLAUDE.md")
    with pytest.raises(UserError, match=r"GEMINI.md: cannot be read: No such file"):
        read_skill(world.folder / "sums", world.folder / "GEMINI.md")
    (world.folder / "sums" / "AGENTS.md").write_text("y")
    with pytest.raises(UserError, match=r"has AGENTS.md already; expected one such document"):
        read_skill(world.folder / "sums", world.folder / "CLAUDE.md")


def test_an_edit_is_for_the_first_document_unless_it_names_another() -> None:
    edits = [
        Edit(op=Op.ADD, text="- A."),
        Edit(op=Op.ADD, text="- B.", document="M.md"),
        Edit(op=Op.DELETE, anchor="- B."),
    ]
    done = apply_edits({"S.md": "# S\n", "M.md": "# M\n"}, edits, Policy())
    assert done.texts == {"S.md": "# S\n- A.\n", "M.md": "# M\n- B.\n"}
    assert [one.reason for one in done.refused] == ["the anchor '- B.' is not in the document"]
