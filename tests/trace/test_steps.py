"""The steps of a rollout as people read them, from exchanges as the gateway records them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.exchange import CallError, Exchange
from whet.testing import Reply, ToolCall, call, chat, say
from whet.trace.steps import Step, steps

EVENT_STREAM = (("Content-Type", "text/event-stream; charset=utf-8"),)


def exchange(messages: Any, reply: Reply, *, streamed: bool = True, status: int | None = 200) -> Exchange:
    """A call as the scripted model answers it."""
    body = json.dumps({"model": "tiny", "messages": messages, "stream": streamed}).encode()
    request = chat.read(body)
    response = b"".join(chat.events(request, reply)) if streamed else chat.whole(request, reply)
    headers = EVENT_STREAM if streamed else (("Content-Type", "application/json"),)
    return recorded(body, response, headers, status)


def recorded(
    request: bytes, response: bytes, headers: tuple[tuple[str, str], ...] = (), status: int | None = 200
) -> Exchange:
    return Exchange(
        session="s",
        index=0,
        dialect="chat",
        path="/v1/chat/completions",
        request_headers=(),
        request=request,
        upstream="http://127.0.0.1:1/v1/chat/completions",
        status=status,
        response_headers=headers,
        response=response,
        attempts=1,
        error=None,
        started=0.0,
        first_byte=0.0,
        ended=0.0,
        usage=None,
    )


USER = {"role": "user", "content": "How many files?"}
ASKED = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "bash", "arguments": '{"c": 1}'}}]}
TOLD = {"role": "tool", "tool_call_id": "1", "content": "3\n"}


@pytest.mark.parametrize("streamed", [True, False])
def test_the_conversation_is_what_was_sent_last_and_the_reply_to_it(streamed: bool) -> None:
    first = exchange([USER], call("bash", c=1), streamed=streamed)
    second = replace(exchange([USER, ASKED, TOLD], say("Three files."), streamed=streamed), index=1)
    assert steps([first, second]) == [
        Step("user", "How many files?"),
        Step("assistant", "", (("bash", '{"c": 1}'),), call=1),
        Step("tool", "3\n"),
        Step("assistant", "Three files.", call=2),
    ]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_reply_that_calls_tools_shows_them_with_their_arguments_as_sent(streamed: bool) -> None:
    tools = ToolCall(name="bash", arguments={"command": "ls"}), ToolCall(name="edit", arguments="{torn")
    step = steps([exchange([USER], Reply(text="Let me look.", tools=tools), streamed=streamed)])[-1]
    assert step == Step("assistant", "Let me look.", (("bash", '{"command":"ls"}'), ("edit", "{torn")), call=1)


def test_the_longest_conversation_is_shown_when_there_are_several() -> None:
    side = exchange([{"role": "user", "content": "Title?"}], say("Files"))
    main = exchange([USER, ASKED, TOLD], say("Three."))
    assert [step.text for step in steps([main, side])] == ["How many files?", "", "3\n", "Three."]


def test_content_in_parts_is_shown_part_by_part() -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]
    assert steps([exchange([{"role": "user", "content": parts}], say("A cat."))])[0].text == "Look:\n[image/png]"


def test_calls_without_an_answer_are_passed_over() -> None:
    answered = exchange([USER], say("Three."))
    failed = exchange([USER, ASKED, TOLD], say("-"), status=500)
    silent = exchange([USER, ASKED, TOLD], say("-"), status=None)
    assert [step.text for step in steps([answered, failed, silent])] == ["How many files?", "Three."]
    assert steps([failed]) == steps([]) == []


def test_of_a_reply_that_was_cut_what_came_is_shown() -> None:
    whole = exchange([USER], say("One two three four five six seven eight nine."))
    cut = replace(whole, response=whole.response[: len(whole.response) // 2], error=CallError.CUT)
    last = steps([cut])[-1]
    assert last.role == "assistant"
    assert last.text.startswith("One two three")
    assert len(last.text) < len("One two three four five six seven eight nine.")
    # It answered no call, so no fork can begin there.
    assert last.call is None


def test_calls_keep_their_numbers_when_the_beginning_is_left_out() -> None:
    made = [replace(exchange([USER], call("bash", c=1)), index=0), replace(exchange([USER], say("Twice.")), index=1)]
    last = replace(exchange([{"role": "user", "content": "A summary."}, ASKED, TOLD], say("Three.")), index=3)
    made.append(replace(exchange([USER], say("-"), status=500), index=2))
    assert [step.call for step in steps([*made, last])] == [None, 2, None, 3]


@pytest.mark.parametrize("response", [b"", b"<html>", b'{"choices": []}', b'{"error": {}}', b"data: {torn\n\n"])
def test_a_reply_that_cannot_be_read_leaves_the_question(response: bytes) -> None:
    unread = replace(exchange([USER], say("-")), response=response, error=CallError.MALFORMED)
    assert steps([unread]) == [Step("user", "How many files?")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
messages = st.fixed_dictionaries(
    {}, optional={"role": json_values, "content": json_values, "tool_calls": json_values | st.lists(json_values)}
)


@given(st.lists(messages | json_values, max_size=4) | json_values, st.binary(max_size=40) | json_values)
def test_whatever_an_agent_sends_and_a_model_answers_can_be_shown(sent: Any, answered: Any) -> None:
    response = answered if isinstance(answered, bytes) else json.dumps(answered).encode()
    shown = steps([recorded(json.dumps({"messages": sent}).encode(), response)])
    assert all(isinstance(step.text, str) for step in shown)


@given(st.binary(max_size=60))
def test_a_request_of_any_bytes_can_be_shown(request: bytes) -> None:
    assert steps([recorded(request, b'{"choices": [{"message": {"content": "4"}}]}')])[-1].text == "4"
