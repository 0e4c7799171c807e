"""The steps of a rollout: numbered, in reading order, compact without losing either end."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.neutral_strategies import json_values
from support.trace_world import PATHS, SYSTEM, answered, asked, calls, exchange, said
from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Image, Message, Text, Thinking, ToolCall, ToolResult
from whet.trace.conversations.graph import build
from whet.trace.steps.steps import Step, StepKind, steps
from whet.trace.steps.summary import summary
from whet.trace.steps.text import compact

SUB = Speaker(Kind.SUB, "sub-1", "main", "a test", "explore")
TITLE = Speaker(Kind.UTILITY, "main", None, "a test", "title")
COMPACTION = Speaker(Kind.UTILITY, "compaction-1", "main", "a test", "compaction")
ERRAND = "Count all the files, please."
SPAWN = ToolCall("c1", "agent", json.dumps({"prompt": ERRAND, "kind": "explore"}))
GO = [SYSTEM, asked("How many files?")]
DELEGATED = [*GO, said(Text("Somebody shall count."), SPAWN)]


def shown(exchanges: Sequence[Exchange], budget: int | None = None) -> str:
    return compact(steps(build(exchanges)), budget)


@pytest.mark.parametrize("dialect", PATHS)
def test_a_rollout_reads_alike_in_every_dialect(dialect: str) -> None:
    rollout = [
        exchange(0, GO, said(Text("Files")), dialect=dialect, speaker=TITLE),
        exchange(1, GO, DELEGATED[-1], dialect=dialect),
        exchange(2, [asked(ERRAND)], said(calls("ls | wc -l")), dialect=dialect, speaker=SUB),
        exchange(
            3,
            [asked(ERRAND), said(calls("ls | wc -l")), answered("3\n")],
            said(Text("3")),
            dialect=dialect,
            speaker=SUB,
        ),
        exchange(4, [*DELEGATED, answered("They are 3.")], said(Text("Three.")), dialect=dialect),
    ]
    assert shown(rollout).replace("tool agent", "tool").replace("tool bash", "tool") == (
        "1 helper title: Files\n"
        "2 system: You work.\n"
        "3 user: How many files?\n"
        "4 call 1: Somebody shall count.\n"
        "    → agent prompt=Count all the files, please., kind=explore\n"
        "5 sub-agent explore: 2 calls\n"
        "  6 user: Count all the files, please.\n"
        "  7 reply: → bash ls | wc -l\n"
        "  8 tool: 3\n"
        "  9 reply: 3\n"
        "10 tool: They are 3.\n"
        "11 call 2: Three."
    )
    assert str(summary(steps(build(rollout)))) == (
        "11 steps; 2 calls; 1 sub-agent; tools agent 1, bash 1; 0 errors; answer text, 6 characters"
    )


def test_breaks_and_failures_are_marked_and_calls_keep_their_numbers() -> None:
    first, again = exchange(0, GO, said(Text("One."))), exchange(1, GO, said(Text("Two.")))
    compaction = exchange(3, [*GO, said(Text("Two.")), asked("Sum up.")], said(Text("Two files.")), speaker=COMPACTION)
    after = exchange(4, [asked("So far: Two files.")], said(Text("Done.")))
    failed = replace(exchange(2, GO, said(Text("-"))), status=500, error=CallError.STATUS)
    rollout = [first, again, failed, compaction, after]
    assert summary(steps(build(rollout))).errors == 1
    assert shown(rollout).splitlines()[2:] == [
        "3 call 1: One.",
        "4 break: the agent sent the same request again; the earlier reply does not count",
        "5 call 2: Two.",
        "6 helper compaction: Two files.",
        "7 failed: a call was not answered: status 500 from http://127.0.0.1:1",
        "8 break: compaction: a summary takes the place of the conversation",
        "9 user: So far: Two files.",
        "10 call 3: Done.",
    ]


def test_a_reply_that_cannot_be_read_is_told() -> None:
    torn = replace(exchange(0, GO, said(Text("-"))), response=b"<html>", error=CallError.MALFORMED)
    assert shown([torn]).endswith("\n3 failed: the reply cannot be read")


def test_of_a_reply_that_was_cut_what_came_is_shown() -> None:
    events = [
        {"id": "r", "model": "m", "choices": [{"index": 0, "delta": {"content": word}}]} for word in ("One ", "two")
    ]
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: {to"
    cut = replace(
        exchange(0, GO, said()),
        response=stream,
        response_headers=(("Content-Type", "text/event-stream"),),
        error=CallError.CUT,
    )
    assert shown([cut]).endswith("3 reply: One two"), "it has no number: no fork can begin there"
    assert shown([cut, exchange(1, GO, said(Text("Done.")))]).endswith("call 1: Done.")


def test_a_sub_agent_of_a_helper_is_shown_behind_it() -> None:
    helper = exchange(1, [*GO, asked("Sum up.")], said(Text("S.")), speaker=COMPACTION)
    sub = exchange(2, [asked(ERRAND)], said(Text("3")), speaker=replace(SUB, parent=COMPACTION.thread))
    told = shown([exchange(0, GO, said(Text("One."))), helper, sub]).splitlines()
    assert told[-4:] == [
        "4 helper compaction: S.",
        "5 sub-agent explore: 1 call",
        f"  6 user: {ERRAND}",
        "  7 reply: 3",
    ]


def test_thoughts_images_and_odd_arguments_are_shown() -> None:
    reply = said(Thinking("hm"), Text("Look."), ToolCall("1", "edit", "{torn"), ToolCall("2", "stop", "{}"))
    picture = Message("user", (Text("See:"), Image("image/png", "aGk=")))
    assert shown([exchange(0, [picture], reply, dialect="messages")]).splitlines() == [
        "1 user: See:",
        "    [image/png]",
        "2 call 1: (thinks) hm",
        "    Look.",
        "    → edit {torn",
        "    → stop",
    ]


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        (ToolResult("c1", (Text("no such file"),), is_error=True), True),
        (ToolResult("c1", (Text("Exit code 1\nno such file"),)), True),
        (ToolResult("c1", (Text("Process exited with code 2"),)), True),
        (ToolResult("c1", (Text("<returncode>1</returncode>"),)), True),
        (ToolResult("c1", (Text("Exit Code: 127"),)), True),
        (ToolResult("c1", (Text("[exit code 1]"),)), True),
        (ToolResult("c1", (Text("exit code 0, all 12 tests pass"),)), False),
    ],
)
def test_a_tool_that_says_that_it_failed_is_an_error(result: ToolResult, failed: bool) -> None:
    sent = [*GO, said(calls("ls")), Message("user", (result,))]
    turns = [(GO, said(calls("ls"))), (sent, said(Text("So.")))]
    told = steps(build([exchange(n, *turn, dialect="messages") for n, turn in enumerate(turns)]))
    assert [step.error for step in told if step.kind is StepKind.RESULT] == [failed]
    assert summary(told).errors == int(failed)


@pytest.mark.parametrize(
    ("reply", "form"),
    [
        (said(Text('{"sum": 5}')), "JSON"),
        (said(Text("<answer>5</answer>")), "in <answer>"),
        (said(Text("```\nls\n```")), "a code block"),
        (said(Text("")), "empty"),
        (said(calls("ls")), "none: the last reply calls bash"),
        (said(Text("5")), "text, 1 character"),
    ],
)
def test_the_form_of_the_answer_is_named(reply: Message, form: str) -> None:
    assert summary(steps(build([exchange(0, GO, reply)]))).answer == form


def test_files_are_those_that_tools_were_called_with_and_those_that_changed() -> None:
    patch = "*** Begin Patch\n*** Update File: src/b.py\n*** End Patch"
    reply = said(
        ToolCall("1", "Read", '{"file_path": "a.py", "limit": 3}'),
        ToolCall("2", "apply_patch", json.dumps({"input": patch})),
        ToolCall("3", "edit", '{"filePath": "c.py"}'),
    )
    assert summary(steps(build([exchange(0, GO, reply)])), ["d.py"]).files == ("d.py", "a.py", "src/b.py", "c.py")
    assert summary([]).answer == "none"


def long_rollout(turns: int) -> list[Step]:
    results = (
        Step(StepKind.RESULT, f"begin {n} " + "x" * 3000 + f" end {n}", number=2 * n) for n in range(1, turns + 1)
    )
    replies = (Step(StepKind.REPLY, f"reply {n}", call=n, number=2 * n - 1) for n in range(1, turns + 1))
    return sorted([*results, *replies], key=lambda step: step.number)


def test_long_texts_keep_both_ends() -> None:
    text = compact(long_rollout(3), budget=1000)
    assert len(text) <= 1000
    for n in (1, 2, 3):
        assert f"{2 * n} result: begin {n} xx" in text.replace("tool:", "result:")
        assert f"xx end {n}" in text
    assert "characters left out ...]" in text


def test_many_steps_keep_both_ends_and_say_how_many_are_left_out() -> None:
    text = compact(long_rollout(200), budget=2000)
    assert len(text) <= 2000
    assert text.startswith("1 call 1: reply 1\n")
    assert "end 200" in text
    kept = [line for line in text.splitlines() if line.startswith(tuple("123456789"))]
    (left_out,) = [line for line in text.splitlines() if "steps left out" in line]
    assert left_out == f"[... {400 - len(kept)} steps left out ...]"
    numbers = [int(line.split()[0]) for line in kept]
    middle = next(place for place, number in enumerate(numbers, 1) if number != place)
    assert numbers == [*range(1, middle), *range(400 - len(numbers) + middle, 401)]


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    assert compact([Step(StepKind.RESULT, "a\x1b[2Jb\rc\td", number=1)]) == "1 tool: a[2Jbc\td"


texts = st.text(max_size=400) | st.integers(1, 60).map(lambda n: "line of text\n" * n)
some_steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(StepKind),
        texts,
        st.lists(st.tuples(st.sampled_from(["bash", "edit"]), texts), max_size=2).map(tuple),
        depth=st.integers(0, 2),
    ),
    max_size=30,
).map(lambda found: [replace(step, number=number) for number, step in enumerate(found, 1)])


@given(some_steps, st.integers(600, 4000))
def test_the_budget_holds_and_the_first_and_the_last_step_stay(found: list[Step], budget: int) -> None:
    text = compact(found, budget)
    heads = [line.strip() for line in text.split("\n")]
    assert len(text) <= max(budget, 1200)
    for step in (found[0], found[-1]) if found else ():
        assert any(head.startswith(f"{step.number} ") for head in heads)


messages = st.fixed_dictionaries(
    {}, optional={"role": json_values, "content": json_values, "tool_calls": json_values | st.lists(json_values)}
)


@given(st.lists(messages | json_values, max_size=4) | json_values, st.binary(max_size=40) | json_values)
def test_whatever_an_agent_sends_and_a_model_answers_can_be_shown(sent: Any, replied: Any) -> None:
    response = replied if isinstance(replied, bytes) else json.dumps(replied).encode()
    request = json.dumps({"messages": sent}).encode()
    found = steps(build([replace(exchange(0, GO, said()), request=request, response=response)]))
    assert found
    assert compact(found, 500)
    assert str(summary(found))


@given(st.binary(max_size=60))
def test_a_request_of_any_bytes_can_be_shown(request: bytes) -> None:
    assert shown([replace(exchange(0, GO, said(Text("4"))), request=request)])


def test_steps_lead_to_their_calls_threads_parts_and_bytes() -> None:
    thinks = said(Thinking("Hm."), Text("Somebody shall count."), SPAWN)
    rollout = [
        exchange(0, GO, thinks),
        exchange(1, [asked(ERRAND)], said(Text("3")), speaker=SUB),
        replace(exchange(2, GO, said(Text("-"))), status=500, error=CallError.STATUS),
        exchange(3, [*GO, thinks, answered("They are 3.")], said(Text("Three."))),
    ]
    found = steps(build(rollout))
    assert [(step.kind, step.thread, step.exchange) for step in found] == [
        ("system", "main", 0),
        ("user", "main", 0),
        ("reply", "main", 0),
        ("sub-agent", "sub-1", 1),
        ("user", "sub-1", 1),
        ("reply", "sub-1", 1),
        ("failed", "main", 2),
        ("result", "main", 3),
        ("reply", "main", 3),
    ]
    assert found[2].parts == thinks.parts, "thinking, text and calls apart"
    for step in found:
        if step.source is None:
            continue
        call = rollout[step.source.exchange]
        body = call.request if step.source.place == "request" else call.response
        told = body[step.source.start : step.source.end].decode()
        assert all(part.text in told for part in step.parts if isinstance(part, Text))
    assert found[7].source is not None
    assert found[7].source.place == "request"
