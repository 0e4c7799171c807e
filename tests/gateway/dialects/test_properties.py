"""What holds in every dialect for any request, reply or stream, and for JSON that is nearly one."""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.dialect_strategies import REPLIES, REQUESTS
from support.neutral_strategies import json_values, mangled, patient, requests, texts
from whet.gateway.dialects import DIALECTS, Dialect, chat, gemini, messages
from whet.gateway.dialects import neutral as n
from whet.gateway.sse import EventFramer, data_lines

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
ASKED = n.Request("m", (n.Message("user", (n.Text("hi"),)),))
FRAGMENTS = st.lists(st.tuples(st.integers(0, 3), st.text("ab", max_size=3)), min_size=1, max_size=12)


def _request_for(reply: n.Reply) -> n.Request:
    """A request of which this can be the reply."""
    custom = {part.name for part in reply.parts if isinstance(part, n.ToolCall) and part.custom}
    return n.Request(reply.model, (), tuple(n.Tool(name, custom=True) for name in sorted(custom)))


def _cut(event: n.Event, size: int) -> Iterator[n.Event]:
    """The same delta in pieces of this size."""
    match event:
        case n.TextDelta(text) | n.RefusalDelta(text):
            yield from (type(event)(text[start : start + size]) for start in range(0, len(text), size))
        case n.CallDelta(text):
            yield from (n.CallDelta(text[start : start + size]) for start in range(0, len(text), size))
        case n.ThinkingDelta(text, token, False):
            yield from (n.ThinkingDelta(text[start : start + size]) for start in range(0, len(text), size))
            if token:
                yield n.ThinkingDelta("", token)
        case _:
            yield event


def _stream(dialect: Dialect, reply: n.Reply, size: int = 99) -> list[list[bytes]]:
    """The events of the wire for each event of the reply."""
    writer = dialect.EventWriter(_request_for(reply))
    written = [writer.write(piece) for event in n.disassemble(reply) for piece in _cut(event, size)]
    framer = EventFramer()
    framed = [framer.feed(data) for data in written]
    assert framer.rest() == b""
    return framed


def _assemble(dialect: Dialect, events: list[bytes]) -> n.Reply:
    reader = dialect.EventReader()
    return n.assemble([*(said for event in events for said in reader.read(event)), *reader.end()])


def _path(dialect: Dialect, request: n.Request) -> str:
    return dialect.upstream_path("", request.model, request.stream)


@each_dialect
@patient
@given(st.data())
def test_a_request_reads_back_as_it_was_written(dialect: Dialect, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[dialect.NAME])
    body, lost = dialect.write_request(request)
    assert dialect.read_request(body, _path(dialect, request)) == request
    assert lost == ()
    assert dialect.wants_stream(body, _path(dialect, request)) == request.stream


@each_dialect
@patient
@given(st.data(), st.integers(1, 9))
def test_a_reply_reads_back_as_it_was_written(dialect: Dialect, data: st.DataObject, size: int) -> None:
    reply = data.draw(REPLIES[dialect.NAME])
    whole = dialect.write_reply(reply, _request_for(reply))
    *before, end = _stream(dialect, reply, size)
    events = [event for written in (*before, end) for event in written]
    assert dialect.read_reply(whole) == _assemble(dialect, events) == reply
    for body, streamed in ((whole, False), (b"".join(events), True)):
        assert dialect.is_reply(body, streamed=streamed)
        assert dialect.usage(body, streamed=streamed) == reply.usage
    assert not any(dialect.finishes(event) for written in before for event in written)
    assert any(dialect.finishes(event) for event in end)
    assert [dialect.is_last(event) for event in end] == [False] * (len(end) - 1) + [dialect is not gemini]


@patient
@given(REPLIES["responses"])
def test_a_responses_stream_ends_with_the_whole_response(reply: n.Reply) -> None:
    dialect = DIALECTS["responses"]
    *_, last = data_lines(_stream(dialect, reply)[-1][-1])
    assert json.loads(last)["response"] == json.loads(dialect.write_reply(reply, _request_for(reply)))


@each_dialect
@patient
@given(st.data())
def test_a_request_that_is_wrong_somewhere_is_read_or_refused(dialect: Dialect, data: st.DataObject) -> None:
    written = REQUESTS[dialect.NAME].map(lambda request: json.loads(dialect.write_request(request)[0]))
    body = json.dumps(data.draw(json_values | mangled(written))).encode()
    path = _path(dialect, ASKED)
    assert dialect.wants_stream(body, path) in {True, False}
    with suppress(ValueError):
        dialect.write_request(dialect.read_request(body, path))
    if dialect in (messages, gemini):
        with suppress(ValueError):
            dialect.count_reply(body)


@each_dialect
@patient
@given(st.data())
def test_a_reply_that_is_wrong_somewhere_is_read_or_refused(dialect: Dialect, data: st.DataObject) -> None:
    written = REPLIES[dialect.NAME].map(lambda reply: json.loads(dialect.write_reply(reply, _request_for(reply))))
    output = json_values.map(lambda value: {"output": [value]})
    body = json.dumps(data.draw(json_values | output | mangled(written))).encode()
    dialect.is_reply(body, streamed=False)
    dialect.usage(body, streamed=False)
    dialect.finishes(b"data: " + body)
    with suppress(ValueError):
        dialect.write_reply(dialect.read_reply(body), ASKED)


@each_dialect
@patient
@given(st.data())
def test_a_stream_that_is_wrong_somewhere_is_read_or_refused(dialect: Dialect, data: st.DataObject) -> None:
    def documents(reply: n.Reply) -> list[Any]:
        stream = b"".join(event for written in _stream(dialect, reply) for event in written)
        return [json.loads(line) for line in data_lines(stream) if line != b"[DONE]"]

    drawn = data.draw(st.lists(json_values, max_size=3) | mangled(REPLIES[dialect.NAME].map(documents)))
    found = drawn if isinstance(drawn, list) else [drawn]
    events = [b"data: " + json.dumps(document).encode() + b"\n\n" for document in found]
    dialect.is_reply(b"".join(events), streamed=True)
    dialect.usage(b"".join(events), streamed=True)
    reader, writer = dialect.EventReader(), dialect.EventWriter(ASKED)
    with suppress(ValueError):
        read = [*(said for event in events for said in reader.read(event)), *reader.end()]
        assert isinstance(read[-1], n.End)
        for event in read:
            writer.write(event)


@patient
@given(FRAGMENTS, st.booleans(), st.booleans())
def test_fragments_of_parallel_calls_reach_their_calls_however_they_interleave(
    fragments: list[tuple[int, str]], repeats_id: bool, has_index: bool
) -> None:
    """Without an index, only a fragment with an id says to which call it belongs."""
    expected: dict[int, str] = {}
    deltas: list[Any] = []
    for call, piece in fragments:
        named = repeats_id or not has_index or call not in expected
        function = {"name": f"tool{call}" if named else "", "arguments": piece}
        index = {"index": call} if has_index else {}
        deltas.append({"tool_calls": [{**index, "id": f"c{call}" if named else None, "function": function}]})
        expected[call] = expected.get(call, "") + piece
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    reply = _assemble(chat, [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks])
    calls = {part.id: part for part in reply.parts if isinstance(part, n.ToolCall)}
    assert calls == {f"c{call}": n.ToolCall(f"c{call}", f"tool{call}", text) for call, text in expected.items()}
    assert len(reply.parts) == len(expected)


@patient
@given(st.lists(st.sampled_from(["", "a", "a_1", "a_2", "call_0", "call_1"]), max_size=12))
def test_call_ids_are_unique_in_chat_whatever_the_agent_sends(ids: list[str]) -> None:
    calls = (n.Message("assistant", (n.ToolCall(call_id, "ls", "{}"),)) for call_id in ids)
    body = json.loads(chat.write_request(n.Request("m", tuple(calls)))[0])
    sent = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    assert len(set(sent)) == len(ids)


@patient
@given(requests(custom=True, images=True, thinking=True))
def test_every_request_is_well_formed_in_messages(request: n.Request) -> None:
    body = json.loads(messages.write_request(request)[0])
    roles = [turn["role"] for turn in body["messages"]]
    assert roles[0] == "user"
    assert all(one != following for one, following in pairwise(roles))
    assert all(turn["content"] for turn in body["messages"])


@given(st.lists(texts, max_size=4))
def test_messages_wraps_text_for_a_custom_tool(pieces: list[str]) -> None:
    writer = messages.EventWriter(ASKED)
    deltas = (n.CallDelta(piece) for piece in pieces)
    begin = n.Begin("msg_1", "m"), n.CallBegin("t", "patch", custom=True)
    events: list[n.Event] = [*begin, *deltas, n.CallBegin("u", "n"), n.End(n.Stop.TOOLS)]
    documents = [json.loads(line) for event in events for line in data_lines(writer.write(event))]
    sent = [found["delta"]["partial_json"] for found in documents if found["type"] == "content_block_delta"]
    assert json.loads("".join(sent)) == {"input": "".join(pieces)}
