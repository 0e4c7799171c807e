"""Answers fit into what clients show: text and structured content together, whatever an agent wrote."""

import json
from typing import Any

import jsonschema
import pytest

from whet.client.models import CommandView, GroupView, Outcome, RolloutView, Status, TaskView, Usage
from whet.serve.mcp.describing import (
    MOST_CHARACTERS,
    describe_group,
    describe_rollout,
    describe_tasks,
    line_of,
    measure,
)
from whet.serve.mcp.results import Answer, RolloutList
from whet.serve.mcp.server import declare, render
from whet.serve.mcp.tools import TOOLS

SCHEMAS = {tool.answer: declare(tool).output_schema or {} for tool in TOOLS if tool.answer}


def view(**fields: Any) -> RolloutView:
    known = {
        "id": "a1b2c3d4e5f6",
        "group": "g",
        "sample": 0,
        "task": "fix-it",
        "agent": "loop",
        "model": "small",
        "status": Status.DONE,
        "outcome": Outcome.SCORED,
        "reward": 0.5,
        "created": 0.0,
    }
    return RolloutView(**{**known, **fields})


def text_of(answer: Answer) -> str:
    return "\n".join(answer.lines())


HOSTILE = {
    "quotes": '"' * 4000,
    "lines": "a\n" * 2000,
    "controls": "\x1b[31m\x00\x07" * 1000,
    "wide": "🦊" * 4000,
    "backslashes": "\\" * 4000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_rollout_is_short_whatever_the_agent_wrote(text: str) -> None:
    check = CommandView(command=text, exit_code=1, stdout=text, stderr=text)
    full = view(
        **dict.fromkeys(("task", "agent", "model", "reason", "answer"), text[:4000]),
        setup=(check,) * 50,
        verify=(check,) * 50,
        changed=(text[:4000],) * 100,
    )
    answer = describe_rollout(full, "more")
    assert measure(answer) < MOST_CHARACTERS
    assert not any(mark in text_of(answer) for mark in ("\x1b", "\x00", "\x07"))
    jsonschema.validate(answer.structured(), SCHEMAS[type(answer)])


def test_text_and_structured_content_both_hold_what_a_model_needs() -> None:
    failed = CommandView(command="pytest -q", exit_code=1, stdout="1 failed", stderr="")
    done = view(
        answer="I fixed it.",
        verify=(failed, CommandView(command="true", exit_code=0, stdout="fine")),
        changed=("src/a.py",),
        usage=Usage(calls=3, input_tokens=100, output_tokens=20, cost=0.01),
        seconds={"agent": 2.0, "judge": 0.5},
    )
    answer = describe_rollout(done, "read_trace")
    said = text_of(answer)
    for words in ("a1b2c3d4e5f6", "reward 0.5", "fix-it", "I fixed it.", "pytest -q: exit code 1", "1 failed"):
        assert words in said
    assert "fine" not in said, "what a command printed that passed is of no use"
    assert all(words in said for words in ("3 model calls", "120 tokens", "$0.0100", "2.5 s", "src/a.py"))
    data = answer.structured()
    assert (data["reward"], data["calls"], data["tokens"], data["answer"]) == (0.5, 3, 120, "I fixed it.")
    result = render(answer)
    assert result.content[0].text == said  # type: ignore[union-attr]
    assert result.structured_content == data


def test_a_missing_reward_is_null_and_never_zero() -> None:
    answer = describe_rollout(view(outcome=Outcome.FAILED, reward=None, reason="the box was lost"), "")
    assert answer.structured()["reward"] is None
    assert "failed, no reward" in text_of(answer)
    assert "the box was lost" in text_of(answer)


def test_the_largest_group_fits_and_shows_every_rollout() -> None:
    rollouts = tuple(view(id=f"{n:032x}", sample=n, reward=None if n % 2 else 1.0) for n in range(32))
    answer = describe_group(GroupView(id="g" * 32, status=Status.DONE, rollouts=rollouts, created=0), "more")
    assert measure(answer) < MOST_CHARACTERS
    assert answer.reward == 1.0, "the mean of those that have a reward"
    assert all(one.id in text_of(answer) for one in rollouts)
    jsonschema.validate(answer.structured(), SCHEMAS[type(answer)])


def test_a_list_of_rollouts_fits() -> None:
    many = RolloutList(rollouts=tuple(line_of(view(task="t" * 4000), named=True) for _ in range(10)))
    assert measure(many) < MOST_CHARACTERS
    jsonschema.validate(many.structured(), SCHEMAS[RolloutList])


@pytest.mark.parametrize("text", ["Say hi.", *HOSTILE.values()], ids=["short", *HOSTILE])
def test_pages_of_tasks_fit_and_cover_the_whole_set(text: str) -> None:
    tasks = [TaskView(id=f"task-{n}", instruction=text, split="train") for n in range(500)]
    seen: list[str] = []
    first: int | None = 1
    while first is not None:
        page = describe_tasks(tasks, first)
        assert measure(page) < MOST_CHARACTERS
        jsonschema.validate(page.structured(), SCHEMAS[type(page)])
        seen += [line.id for line in page.tasks]
        first = page.next
    assert seen == [task.id for task in tasks]
    assert describe_tasks(tasks, 501).tasks == ()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_one_task_is_shown_in_full_as_far_as_it_fits(text: str) -> None:
    assert measure(describe_tasks([TaskView(id="t", instruction=text)], 1)) < MOST_CHARACTERS
    short = describe_tasks([TaskView(id="t", instruction="Write it.\n" * 150)], 1)
    assert short.tasks[0].instruction.count("Write it.") == 150


def test_structured_content_is_json() -> None:
    json.dumps(describe_rollout(view(), "").structured(), allow_nan=False)
