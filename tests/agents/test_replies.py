"""Empty replies are asked again; agents are told of schemas, attachments and images; answers survive a late error."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.agents_world import work
from support.contract_world import named, rolled_out, scene, task
from whet.agents import Agent
from whet.agents.answers import REMINDER
from whet.agents.chat import ChatAgent
from whet.agents.claude_code import ClaudeCode
from whet.agents.launch import Output
from whet.agents.loop import LoopAgent
from whet.agents.qwen import Qwen
from whet.errors import UserError
from whet.tasks import Task
from whet.testing import say

TASK = Task(id="t", instruction="Say four.")
PNG = b"\x89PNG\r\n\x1a\n"
SCHEMA = {"type": "object", "required": ["n"]}


@pytest.mark.parametrize("agent", [ChatAgent(), LoopAgent()], ids=lambda agent: str(agent.kind))
async def test_an_empty_reply_is_asked_again_three_times(agent: Agent) -> None:
    done = await work(agent, TASK, *[say("")] * 5)
    assert len(done.requests) == 4
    assert [message["content"] for message in done.messages if message["role"] == "user"] == ["Say four."] + [
        REMINDER
    ] * 3
    assert (done.report.reminders, done.report.text) == (3, "")


async def test_the_answer_to_a_reminder_counts_and_the_rollout_is_flagged() -> None:
    answers = scene(say("four"), say("four"), last="without a final answer"), scene(say(""))
    for name in ("chat", "loop", "codex"):
        done = await rolled_out(named(name), task(answer="four", verify=()), *answers)
        assert (done.result.score.value, done.result.flags) == (1, ("empty-reply",)), name
        assert done.result.report is not None
        assert done.result.report.reminders == 1


@pytest.mark.parametrize("agent", [ChatAgent(reminders=0), LoopAgent(reminders=0)], ids=lambda agent: str(agent.kind))
async def test_reminders_can_be_turned_off(agent: Agent) -> None:
    assert len((await work(agent, TASK, say(""), say("four"))).requests) == 1


async def test_the_loop_is_told_of_the_schema_and_the_attachments_and_sees_images(tmp_path: Path) -> None:
    (tmp_path / "pic.png").write_bytes(PNG)
    (tmp_path / "data.csv").write_text("1,2\n")
    given = Task(
        id="t",
        instruction="Sum it.",
        answer_schema=SCHEMA,
        attachments=(tmp_path / "pic.png", tmp_path / "data.csv"),
    )
    done = await work(LoopAgent(), given, say('It is <answer>{"n": 3}</answer>.'), look="cat ATTACHMENTS.md")
    text, image = done.messages[1]["content"]
    assert text["text"].startswith("Sum it.\n\nThe file ATTACHMENTS.md lists the files")
    assert text["text"].endswith(json.dumps(SCHEMA))
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert "data.csv" in done.found
    assert "pic.png" not in done.found
    assert done.report.answer == {"n": 3}


async def test_chat_gets_attached_texts_and_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2\n")
    (tmp_path / "paper.pdf").write_bytes(b"%PDF\xff")
    done = await work(ChatAgent(), TASK.model_copy(update={"attachments": (tmp_path / "data.csv",)}), say("ok"))
    assert done.messages[0]["content"] == "Say four.\n\n--- attachments/data.csv ---\n1,2\n"
    with pytest.raises(
        UserError, match=r"attachment 'paper.pdf' is neither text nor an image, and agent 'chat' cannot"
    ):
        await work(ChatAgent(), TASK.model_copy(update={"attachments": (tmp_path / "paper.pdf",)}))


async def test_the_prompt_of_a_program_names_the_list_of_attachments(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2\n")
    given = task(attachments=(tmp_path / "data.csv",), verify=("true",))
    done = await rolled_out(named("codex"), given, scene(say("Done.")))
    assert b"The file ATTACHMENTS.md lists the files" in done.requests[0].body


def events(*found: dict[str, Any]) -> Output:
    return Output(b"".join(json.dumps(event).encode() + b"\n" for event in found))


def test_a_structured_answer_survives_an_error_at_the_end() -> None:
    use = {"type": "tool_use", "name": "StructuredOutput", "input": {"n": 4}}
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": "So."}, use]}}
    failed = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": ["boom"]}
    found = ClaudeCode().read_output(events(said, failed))
    assert (found.answer, found.error, found.failed) == ({"n": 4}, "boom", False)
    assert ClaudeCode().read_output(events(said)).answer == {"n": 4}
    assert ClaudeCode().read_output(events(failed)).failed


def test_an_error_about_an_empty_reply_is_an_empty_reply() -> None:
    text = "[API Error: Model stream ended with empty response text.]"
    found = Qwen().read_output(events({"type": "result", "session_id": "s", "is_error": False, "result": text}))
    assert (found.text, found.error, found.session) == ("", None, "s")
