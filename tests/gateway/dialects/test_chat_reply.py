"""Replies in chat completions, whole: what a model said is understood, and agents get what they can read."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from support.neutral_strategies import mangled, patient, replies
from whet.exchange import Usage
from whet.gateway.dialects import chat
from whet.gateway.dialects.neutral import (
    Message,
    Refusal,
    Reply,
    Request,
    Stop,
    Text,
    Thinking,
    Tool,
    ToolCall,
)

NESTED = b'{"choices": [{"message": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]}"
ASKED = Request("the-agents-name", (Message("user", (Text("hi"),)),))


def read(finish: str | None = "stop", usage: Any = None, **message: Any) -> Reply:
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return chat.read_reply(json.dumps({"id": "r", "model": "m", "choices": choices, "usage": usage}).encode())


def written(*parts: Any, stop: Stop = Stop.END, request: Request = ASKED, **fields: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(chat.write_reply(Reply("r1", "upstream", parts, stop, **fields), request))
    return document


def asked_for(reply: Reply) -> Request:
    """A request of which this can be the reply."""
    custom = {part.name for part in reply.parts if isinstance(part, ToolCall) and part.custom}
    return Request(reply.model, (), tuple(Tool(name, custom=True) for name in sorted(custom)))


@patient
@given(replies(thinking=True, id_prefix="chatcmpl-"))
def test_a_reply_survives_being_written_and_read(reply: Reply) -> None:
    body = chat.write_reply(reply, asked_for(reply))
    assert chat.read_reply(body) == reply
    assert chat.is_reply(body, streamed=False)
    assert chat.usage(body, streamed=False) == reply.usage


@patient
@given(mangled(replies(thinking=True).map(lambda reply: json.loads(chat.write_reply(reply, asked_for(reply))))))
def test_a_reply_that_is_wrong_somewhere_is_read_or_refused(document: Any) -> None:
    understood = None
    with suppress(ValueError):
        understood = chat.read_reply(json.dumps(document).encode())
    assert understood is None or chat.write_reply(understood, ASKED)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"choices": []}', b"\xff", NESTED])
def test_what_is_no_reply_is_refused(body: bytes) -> None:
    assert not chat.is_reply(body, streamed=False)
    with pytest.raises(ValueError, match="not a chat reply"):
        chat.read_reply(body)


def test_the_parts_of_a_reply_come_in_the_order_they_were_made() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}
    reply = read("tool_calls", content="I look.", reasoning_content="hm", tool_calls=[call])
    assert reply.parts == (Thinking("hm"), Text("I look."), ToolCall("c", "ls", '{"a": 1}'))


@pytest.mark.parametrize(
    ("finish", "expected"),
    [("stop", Stop.END), ("length", Stop.LENGTH), ("content_filter", Stop.REFUSED), (None, Stop.END), ("x", Stop.END)],
)
def test_the_reason_to_stop_is_read(finish: str | None, expected: Stop) -> None:
    assert read(finish, content="a").stop == expected


@pytest.mark.parametrize("finish", ["tool_calls", "function_call", "stop", None])
def test_a_reply_with_calls_stopped_for_them_whatever_the_server_says(finish: str | None) -> None:
    assert read(finish, tool_calls=[{"id": "c", "function": {"name": "ls"}}]).stop == Stop.TOOLS


def test_a_refusal_in_words_is_one_both_ways() -> None:
    reply = read("stop", content=None, refusal="I will not.")
    assert reply.parts == (Refusal("I will not."),)
    assert reply.stop == Stop.REFUSED
    choice = written(*reply.parts, stop=reply.stop)["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": "I will not."}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (Stop.END, "stop"),
        (Stop.SEQUENCE, "stop"),
        (Stop.PAUSED, "stop"),
        (Stop.LENGTH, "length"),
        (Stop.TOOLS, "tool_calls"),
        (Stop.REFUSED, "content_filter"),
    ],
)
def test_every_reason_to_stop_has_a_word(stop: Stop, expected: str) -> None:
    assert written(Text("a"), stop=stop)["choices"][0]["finish_reason"] == expected


def test_usage_always_has_the_details_that_clients_read() -> None:
    tokens = Usage(input=9, output=5, cache_read=4, cache_write=3, reasoning=2)
    stated = written(Text("a"), usage=tokens)["usage"]
    assert stated == {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert read(usage=stated, content="a").usage == tokens


def test_usage_that_is_unknown_is_not_zero() -> None:
    assert "usage" not in written(Text("a"), usage=None)
    assert read(usage=None, content="a").usage is None
    assert read(usage={"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": None}).usage == Usage(3, 1)


def test_the_agent_sees_its_own_name_for_the_model_and_an_id_of_the_dialect() -> None:
    body = written(Text("a"))
    assert (body["model"], body["id"], body["object"], body["created"]) == (
        "the-agents-name",
        "chatcmpl-r1",
        "chat.completion",
        0,
    )


def test_a_call_without_an_id_gets_one_that_no_later_turn_repeats() -> None:
    later = Request("m", (*ASKED.messages, Message("assistant", ()), Message("user", ())))
    calls = [ToolCall("", "ls", ""), ToolCall("", "ls", "{}")]
    first, second = (written(*calls, request=request)["choices"][0]["message"] for request in (ASKED, later))
    ids = [call["id"] for message in (first, second) for call in message["tool_calls"]]
    assert len({*ids}) == 4
    assert all(ids)
    assert first["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    "call", [ToolCall("c", "patch", '*** "x"', custom=True), ToolCall("c", "patch", '{"input":"*** \\"x\\""}')]
)
def test_a_call_of_a_custom_tool_carries_raw_text(call: ToolCall) -> None:
    request = Request("m", (), (Tool("patch", custom=True),))
    message = written(call, request=request)["choices"][0]["message"]
    assert message["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": '*** "x"'}}]
