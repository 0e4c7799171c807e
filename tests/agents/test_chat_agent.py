"""`chat`: one question, one answer."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.agents_world import work
from whet.agents import StopReason
from whet.agents.chat import ChatAgent
from whet.skill import Skill, read_skill
from whet.tasks import Task, TaskLimits
from whet.testing import Fault, Reply, call, say

QUESTION = Task(id="sum", instruction="What is 2 + 2?", answer="4")


@pytest.fixture
def skill(tmp_path: Path) -> Skill:
    (tmp_path / "SKILL.md").write_text("Count on your fingers.")
    return read_skill(tmp_path)


async def test_the_reply_is_the_answer() -> None:
    done = await work(ChatAgent(), QUESTION, say("  4\n"))
    assert (done.report.stop, done.report.text, done.report.exit_code) == (StopReason.FINISHED, "4", None)
    assert done.messages == [{"role": "user", "content": "What is 2 + 2?"}]


async def test_the_skill_is_the_system_prompt(skill: Skill) -> None:
    done = await work(ChatAgent(), QUESTION, say("4"), skill=skill)
    assert done.messages == [
        {"role": "system", "content": "Count on your fingers."},
        {"role": "user", "content": "What is 2 + 2?"},
    ]


async def test_the_skill_can_stand_at_the_end_of_the_users_turn(skill: Skill) -> None:
    done = await work(ChatAgent(skill_at="user"), QUESTION, say("4"), skill=skill)
    assert done.messages == [{"role": "user", "content": "What is 2 + 2?\n\nCount on your fingers."}]


async def test_the_skill_can_stand_before_the_question(skill: Skill) -> None:
    done = await work(ChatAgent(skill_at="instruction"), QUESTION, say("4"), skill=skill)
    assert done.messages == [{"role": "user", "content": "Count on your fingers.\n\nWhat is 2 + 2?"}]


async def test_the_front_matter_of_a_skill_is_not_told(skill: Skill) -> None:
    dressed = replace(skill, text=f"---\nname: {skill.name}\ndescription: Sums.\n---\n{skill.text}")
    done = await work(ChatAgent(), QUESTION, say("4"), skill=dressed)
    assert done.messages[0]["content"] == "Count on your fingers."


async def test_files_of_text_are_part_of_the_question() -> None:
    task = QUESTION.model_copy(update={"files": {"a/n.txt": "two", "m.txt": "three\n", "x.bin": b"\xff\x00"}})
    done = await work(ChatAgent(), task, say("5"))
    (message,) = done.messages
    assert message["content"] == "What is 2 + 2?\n\n--- a/n.txt ---\ntwo\n\n--- m.txt ---\nthree\n"


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.RATE_LIMIT, Fault.CUT, Fault.MALFORMED, Fault.EMPTY])
async def test_without_a_reply_it_has_crashed_and_says_why(fault: Fault) -> None:
    report = (await work(ChatAgent(), QUESTION, Reply(text="4", fault=fault))).report
    assert (report.stop, report.text) == (StopReason.CRASHED, "")
    assert report.stderr.startswith("status ")


async def test_it_waits_no_longer_than_its_time_limit() -> None:
    task = QUESTION.model_copy(update={"limits": TaskLimits(agent_sec=0.2)})
    report = (await work(ChatAgent(), task, Reply(text="4", fault=Fault.HANG))).report
    assert (report.stop, report.text) == (StopReason.TIMEOUT, "")
    assert 0.2 <= report.seconds < 5


async def test_a_reply_without_text_is_an_empty_answer() -> None:
    assert (await work(ChatAgent(), QUESTION, call("bash", command="ls"))).report.text == ""
