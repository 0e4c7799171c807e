"""Replies in Messages as they arrive: the order and the moment of every event, and what a cut stream is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.neutral_strategies import texts
from whet.exchange import Usage
from whet.gateway.dialects import messages
from whet.gateway.dialects.neutral import (
    Begin,
    CallBegin,
    CallDelta,
    End,
    Event,
    Refusal,
    RefusalDelta,
    Reply,
    Request,
    Stop,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    assemble,
    disassemble,
)
from whet.gateway.sse import EventFramer

ASKED = Request("claude", ())
USAGE = Usage(325, 9, 300, 20, 4)


def sse(document: dict[str, Any]) -> bytes:
    return f"event: {document.get('type')}\ndata: {json.dumps(document)}\n\n".encode()


def start(**message: Any) -> dict[str, Any]:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 1}
    return {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": usage} | message}


def block(**content_block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": content_block}


def delta(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **fields}}


def finish(reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason} | more, "usage": {"output_tokens": 9}}


BLOCK_STOP = {"type": "content_block_stop", "index": 0}
STOP = {"type": "message_stop"}


def told(*documents: dict[str, Any]) -> list[Event]:
    reader = messages.EventReader()
    events = [event for document in documents for event in reader.read(sse(document))]
    return events + reader.end()


def documents_of(stream: bytes) -> list[dict[str, Any]]:
    """The data of a stream, every event of which must be whole and bear the name of its type."""
    framer = EventFramer()
    events = framer.feed(stream)
    assert framer.rest() == b""
    found = []
    for event in events:
        name, data = event.decode().removesuffix("\n\n").split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def streamed(*events: Event, asked: Request = ASKED) -> list[dict[str, Any]]:
    writer = messages.EventWriter(asked)
    return documents_of(b"".join(writer.write(event) for event in events))


def test_a_stream_is_read_as_it_comes() -> None:
    reader = messages.EventReader()
    steps: list[tuple[dict[str, Any], list[Event]]] = [
        (start(), [Begin("msg_1", "m", Usage(325, 1, 300, 20))]),
        ({"type": "ping"}, []),
        (block(type="thinking", thinking="", signature=""), []),
        (delta("thinking_delta", thinking="hm"), [ThinkingDelta("hm")]),
        (delta("signature_delta", signature="EpAB"), [ThinkingDelta(token="EpAB")]),
        (BLOCK_STOP, []),
        (block(type="redacted_thinking", data="Em=="), [ThinkingDelta("", "Em==", hidden=True)]),
        (BLOCK_STOP, []),
        (block(type="text", text=""), []),
        (delta("text_delta", text="Lo"), [TextDelta("Lo")]),
        (delta("text_delta", text="ok."), [TextDelta("ok.")]),
        (BLOCK_STOP, []),
        (block(type="tool_use", id="toolu_1", name="Bash", input={}), [CallBegin("toolu_1", "Bash")]),
        (delta("input_json_delta", partial_json=""), []),
        (delta("input_json_delta", partial_json='{"a": '), [CallDelta('{"a": ')]),
        (delta("input_json_delta", partial_json="1}"), [CallDelta("1}")]),
        (BLOCK_STOP, []),
        (finish("tool_use"), []),
        (STOP, [End(Stop.TOOLS, Usage(325, 9, 300, 20))]),
    ]
    for document, events in steps:
        assert reader.read(sse(document)) == events
    assert reader.end() == []
    assert reader.read(b": bye\n\n") == []


@pytest.mark.parametrize(
    ("given", "pieces", "arguments"),
    [
        ({}, [], "{}"),
        ({}, [""], "{}"),
        ({"a": 1}, [], '{"a":1}'),
        ({"a": 1}, ['{"b": 2}'], '{"b": 2}'),
    ],
)
def test_arguments_come_in_pieces_or_all_at_the_start(given: dict[str, Any], pieces: list[str], arguments: str) -> None:
    call = block(type="tool_use", id="t", name="n", input=given)
    deltas = [delta("input_json_delta", partial_json=piece) for piece in pieces]
    reply = assemble(told(start(), call, *deltas, BLOCK_STOP, call, *deltas, finish("tool_use"), STOP))
    assert reply.parts == (ToolCall("t", "n", arguments), ToolCall("t", "n", arguments))


def test_comments_say_nothing() -> None:
    assert messages.EventReader().read(b": keepalive\n\n") == []


def test_blocks_that_cannot_be_carried_are_named_at_the_end() -> None:
    events = told(
        start(),
        block(type="server_tool_use", id="s", name="web_search", input={}),
        delta("input_json_delta", partial_json='{"query": "x"}'),
        BLOCK_STOP,
        block(type="text", text="So."),
        delta("citations_delta", citation={}),
        {"type": "novelty"},
        finish(),
        STOP,
    )
    assert assemble(events).parts == (Text("So."),)
    assert assemble(events).lost == ("block server_tool_use", "delta citations_delta", "event novelty")


def test_a_stream_without_message_stop_still_ends_if_the_reason_came() -> None:
    assert told(start(), finish())[-1] == End(Stop.END, Usage(325, 9, 300, 20))


@pytest.mark.parametrize(
    "documents",
    [
        [],
        [start()],
        [start(), block(type="text", text="Hal")],
        [start(), finish(None)],
        [start(), STOP],
        [start(), start()],
        [delta("text_delta", text="a")],
        [start(), {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}],
    ],
)
def test_a_stream_that_was_cut_is_no_reply(documents: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match=r"."):
        told(*documents)


def test_an_error_in_a_stream_is_told_in_its_words() -> None:
    with pytest.raises(ValueError, match="busy"):
        messages.EventReader().read(messages.error_event("busy"))


def test_blocks_are_written_one_after_the_other() -> None:
    documents = streamed(
        Begin("msg_1", "up"),
        ThinkingDelta("h"),
        ThinkingDelta("m"),
        ThinkingDelta(token="EpAB"),
        ThinkingDelta("", "Em==", hidden=True),
        TextDelta("Lo"),
        TextDelta(""),
        TextDelta("ok."),
        CallBegin("t1", "a"),
        CallDelta('{"x":'),
        CallDelta("1}"),
        CallBegin("t2", "b", namespace="ns"),
        End(Stop.TOOLS, USAGE),
    )
    assert [(found["type"].removeprefix("content_block_"), found.get("index")) for found in documents] == [
        ("message_start", None),
        ("start", 0),
        ("delta", 0),
        ("delta", 0),
        ("delta", 0),
        ("stop", 0),
        ("start", 1),
        ("stop", 1),
        ("start", 2),
        ("delta", 2),
        ("delta", 2),
        ("stop", 2),
        ("start", 3),
        ("delta", 3),
        ("delta", 3),
        ("stop", 3),
        ("start", 4),
        ("stop", 4),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert documents[4]["delta"] == {"type": "signature_delta", "signature": "EpAB"}
    assert documents[16]["content_block"] == {"type": "tool_use", "id": "t2", "name": "ns__b", "input": {}}
    assert documents[-2]["usage"]["output_tokens"] == 9


def test_every_delta_goes_out_at_once_and_nothing_final_before_the_end() -> None:
    writer = messages.EventWriter(ASKED)
    for event in disassemble(Reply("msg_1", "up", (Thinking("a"), Text("b"), ToolCall("t", "n", "{}")), Stop.TOOLS)):
        sent = writer.write(event)
        assert sent
        assert messages.finishes(sent) is isinstance(event, End)


def test_usage_known_at_the_start_holds_if_the_end_says_none() -> None:
    documents = streamed(Begin("msg_1", "up", USAGE), End(Stop.END))
    assert documents[0]["message"]["usage"] == documents[1]["usage"]
    assert documents[1]["usage"]["cache_read_input_tokens"] == 300


def test_a_refusal_is_said_as_text() -> None:
    documents = streamed(Begin("msg_1", "up"), RefusalDelta("No."), End(Stop.REFUSED))
    assert documents[2]["delta"] == {"type": "text_delta", "text": "No."}


@given(st.lists(texts, max_size=4))
def test_raw_text_for_a_custom_tool_arrives_as_one_string_of_an_object(pieces: list[str]) -> None:
    call = CallBegin("t", "patch", custom=True)
    documents = streamed(
        Begin("msg_1", "up"), call, *(CallDelta(piece) for piece in pieces), CallBegin("u", "n"), End(Stop.TOOLS)
    )
    sent = [found["delta"]["partial_json"] for found in documents if found["type"] == "content_block_delta"]
    assert json.loads("".join(sent)) == {"input": "".join(pieces)}


@pytest.mark.parametrize(("reason", "stop"), [("tool_use", Stop.TOOLS), ("max_tokens", Stop.LENGTH)])
def test_the_reason_to_stop_is_told_at_the_end(reason: str, stop: Stop) -> None:
    assert told(start(), finish(reason), STOP)[-1] == End(stop, Usage(325, 9, 300, 20))
    assert streamed(Begin("msg_1", "up"), End(stop))[-2]["delta"]["stop_reason"] == reason


def test_an_explained_refusal_is_told_in_its_words() -> None:
    details = {"type": "refusal", "category": None, "explanation": "Not this."}
    events = told(start(), finish("refusal", stop_details=details), STOP)
    assert assemble(events).parts == (Refusal("Not this."),)


def test_ids_are_those_of_the_whole_reply() -> None:
    reply = Reply("chatcmpl-1", "up", (ToolCall("", "n", "{}"), ToolCall("", "n", "{}")), Stop.TOOLS)
    whole = json.loads(messages.write_reply(reply, ASKED))
    documents = streamed(*disassemble(reply))
    begun = [found["content_block"]["id"] for found in documents if found["type"] == "content_block_start"]
    assert documents[0]["message"]["id"] == whole["id"]
    assert begun == [call["id"] for call in whole["content"]]


def test_every_unsigned_thought_gets_the_signature_that_it_has_in_the_whole_reply() -> None:
    reply = Reply("msg_1", "up", (Thinking("a"), Text("b"), Thinking("c")), Stop.END)
    whole = json.loads(messages.write_reply(reply, ASKED))
    deltas = [found["delta"] for found in streamed(*disassemble(reply)) if found["type"] == "content_block_delta"]
    signed = [found["signature"] for found in deltas if found["type"] == "signature_delta"]
    assert signed == [whole["content"][0]["signature"], whole["content"][2]["signature"]]
