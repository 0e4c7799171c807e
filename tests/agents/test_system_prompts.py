"""A task's own system prompt, with the skill in its place, for every kind of agent."""

from pathlib import Path

import pytest

from support.agents_world import work
from whet.agents import Agent
from whet.agents.chat import ChatAgent
from whet.agents.command import CommandAgent
from whet.agents.loop import LoopAgent
from whet.skill import Skill
from whet.skills.proposers.base import ScoredRollout
from whet.skills.proposers.prompts import find_contract
from whet.tasks import Task
from whet.testing import say

SYSTEM = "You answer for a shop.\n\n{skill_section}\n\nReply in JSON."


def skill(folder: Path) -> Skill:
    (folder / "SKILL.md").write_text("Name the price first.")
    return Skill("prices", "Name the price first.", "", folder)


@pytest.mark.parametrize("agent", [ChatAgent(), LoopAgent()])
async def test_the_skill_is_where_the_system_prompt_wants_it_and_nowhere_else(agent: Agent, tmp_path: Path) -> None:
    task = Task(id="t", instruction="What is a mug?", answer="4", system=SYSTEM)
    done = await work(agent, task, say("4"), skill=skill(tmp_path))
    first, second = done.messages[:2]
    assert first["role"] == "system"
    assert "You answer for a shop.\n\nName the price first.\n\nReply in JSON." in first["content"]
    assert (first["content"] + second["content"]).count("Name the price first.") == 1
    assert done.report.skill is not None
    assert done.report.skill.way == "system"


async def test_a_program_without_a_system_prompt_gets_it_before_the_instruction(tmp_path: Path) -> None:
    task = Task(id="t", instruction="What is a mug?", answer="4", system="Reply in JSON.")
    done = await work(CommandAgent(argv=("cat",)), task, say("4"), skill=skill(tmp_path))
    assert done.report.text == "Reply in JSON.\n\nWhat is a mug?"


async def test_a_system_prompt_without_a_place_leaves_the_skill_where_it_was(tmp_path: Path) -> None:
    task = Task(id="t", instruction="What is a mug?", answer="4", system="Reply in JSON.")
    done = await work(ChatAgent(), task, say("4"), skill=skill(tmp_path))
    assert done.messages[0]["content"] == "Reply in JSON.\n\nName the price first."


def test_the_output_contract_of_the_system_prompt_is_told_to_proposers() -> None:
    asks = [f"Reply in JSON. Never ask back.\n\nWhat is a {thing}?" for thing in ("mug", "cap")]
    rollouts = [ScoredRollout(f"t{n}", ask, 0, {}, "", "") for n, ask in enumerate(asks)]
    assert find_contract(rollouts) == "Reply in JSON.\nNever ask back."
