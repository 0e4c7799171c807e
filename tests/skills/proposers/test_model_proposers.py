"""Writers that are models or agents, at work in real runs: what they may use, what is kept of them, what it costs."""

import json
from pathlib import Path

import pytest

from support.sharpen_world import HELPFUL, World, decisions, exchanges
from whet.errors import UserError
from whet.gateway import Limits
from whet.runs.store.store import DATABASE, Store
from whet.runs.stored_run import load
from whet.skills.measurement import NotMeasured
from whet.skills.sharpen.proposer_runtime import ProposerSpec

LLM = ProposerSpec("llm", model="o")
AGENT = ProposerSpec("agent", model="o", agent="loop")
FEW = 64
"""Rollouts that suffice for a search, and for no exam."""
BROKEN = '[[scene]]\n[[scene.reply]]\nfault = "500"\n'
NOTHING = "[[scene]]\n[[scene.reply]]\ntext = '{\"edits\": []}'\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    reflecting(world, HELPFUL)
    return world


def writes(world: World, script: str) -> None:
    (world.folder / "optimizer.toml").write_text(script)


def reflecting(world: World, rule: str) -> None:
    """A model that proposes a rule as long as the document does not have it."""
    reply = json.dumps({"patterns": ["too many words"], "edits": [{"op": "add", "text": rule}]})
    scenes = f"[[scene]]\nwhen.user = 'failed(?s:.)*<rollout-1'\n[[scene.reply]]\ntext = '{reply}'\n"
    writes(
        world,
        f"[[scene]]\nwhen.user = {json.dumps(rule)}\n[[scene.reply]]\ntext = '{{\"edits\": []}}'\n{scenes}{NOTHING}",
    )


def editing(world: World, rule: str, command: str = "true") -> None:
    """A model that has its agent write a rule into the document, after a look around."""
    shell = f"{command}; echo '{rule}' >> skill/SKILL.md"
    call = f"tools = [{{ name = 'bash', arguments = {{ command = {json.dumps(shell)} }} }}]"
    writes(world, f"[[scene]]\n[[scene.reply]]\n{call}\n[[scene.reply]]\ntext = 'Done.'\n")


async def test_what_a_model_proposes_is_certified_and_kept(world: World) -> None:
    found = await world.sharpen(LLM)
    assert found.certified
    assert HELPFUL in found.best.text
    proposals = load(world.out / "proposals")
    assert [(one.task, one.agent, one.model) for one in proposals.rollouts][:2] == [
        ("draft-0001", "llm", "o"),
        ("draft-0002", "llm", "o"),
    ]
    first = proposals.rollouts[0]
    assert first.score is not None
    assert first.score.value == 1
    asked = b"".join(call.request for call in first.exchanges())
    assert b"What is 7 + 1?" in asked
    assert first.result is not None
    assert first.result.spending.calls == len(first.exchanges()) == 3, "failures in eights, and successes"
    assert {one.agent for one in load(world.out / "search").rollouts} == {"chat"}


async def test_an_agent_edits_the_skill_and_sees_no_run(world: World) -> None:
    editing(world, HELPFUL, f"ls {world.out}; ls /tmp ..")
    found = await world.sharpen(AGENT, FEW)
    assert HELPFUL in found.leader.text
    first = load(world.out / "proposals").rollouts[0]
    assert (first.task, first.agent, first.model) == ("draft-0001", "loop", "o")
    with Store.open_read(world.out / "proposals") as store:
        given = {name.removeprefix("given ") for name in store.logs(store.attempts_of(first.id)[-1].id)}
    assert {"skill/SKILL.md", "RULES.md", "failing.md", "tried.md"} <= given
    assert any(name.startswith("traces/failed/") for name in given)
    seen = json.loads(first.exchanges()[1].request)["messages"][-1]["content"]
    assert f"'{world.out}': No such file" in seen
    for hidden in ("pytest", "exam", "search", DATABASE):
        assert hidden not in seen.replace(str(world.out), "")


@pytest.mark.parametrize("proposer", [LLM, AGENT])
async def test_a_proposer_whose_model_is_down_is_no_verdict(world: World, proposer: ProposerSpec) -> None:
    writes(world, BROKEN)
    with pytest.raises(NotMeasured, match=r"the proposer failed: .*500"):
        await world.sharpen(proposer, FEW)
    assert not (world.out / "best").exists()
    failed = load(world.out / "proposals").rollouts[0]
    assert failed.score is not None
    assert failed.score.cause == "model"
    (reflecting if proposer is LLM else editing)(world, HELPFUL)
    found = await world.sharpen(proposer, FEW, resume=True)
    assert HELPFUL in found.leader.text
    made = exchanges(world.out / "proposals")
    writes(world, BROKEN)
    again = await world.sharpen(proposer, FEW, resume=True)
    assert decisions(again) == decisions(found)
    assert exchanges(world.out / "proposals") == made


async def test_the_limits_of_the_run_hold_for_proposers_too(world: World) -> None:
    with pytest.raises(UserError, match="stopped by limit"):
        await world.sharpen(LLM, FEW, limits=Limits(turns=25))
    assert not exchanges(world.out / "exam")
    assert HELPFUL in (await world.sharpen(LLM, FEW, resume=True)).leader.text


async def test_an_agent_that_could_see_the_exams_is_refused(world: World) -> None:
    with pytest.raises(UserError, match="agent 'chat' cannot edit files"):
        await world.sharpen(ProposerSpec("agent", model="o"))
    with pytest.raises(UserError, match="in sandbox 'local' the agent could read the exams"):
        await world.sharpen(AGENT, sandbox="local")
    assert not world.out.exists()
