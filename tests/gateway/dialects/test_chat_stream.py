"""Streams of chat completions: nothing waits that can be told, and what is told is what the whole reply would say."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.neutral_strategies import mangled, patient, replies
from whet.exchange import Usage
from whet.gateway.dialects import chat
from whet.gateway.dialects.neutral import (
    Begin,
    CallBegin,
    CallDelta,
    End,
    Event,
    Message,
    Refusal,
    RefusalDelta,
    Reply,
    Request,
    Stop,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Tool,
    ToolCall,
    assemble,
    disassemble,
)
from whet.gateway.sse import EventFramer

ASKED = Request("m", (Message("user", (Text("hi"),)),), stream=True)


def sse(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    return sse({"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def fragment(arguments: str | None = None, name: str | None = None, **fields: Any) -> bytes:
    return chunk(tool_calls=[fields | {"function": {"name": name, "arguments": arguments}}])


def told(*events: bytes) -> list[Event]:
    reader = chat.EventReader()
    return [event for given in events for event in reader.read(given)] + reader.end()


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in stream.decode().split("\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def stream_of(events: list[Event], request: Request) -> bytes:
    writer = chat.EventWriter(request)
    return b"".join(writer.write(event) for event in events)


def in_pieces(events: list[Event], size: int) -> list[Event]:
    """The same reply in smaller deltas."""

    def cut(text: str) -> list[str]:
        return [text[start : start + size] for start in range(0, len(text), size)] or [""]

    pieces: list[Event] = []
    for event in events:
        match event:
            case TextDelta(text) | RefusalDelta(text) | ThinkingDelta(text):
                pieces += [type(event)(piece) for piece in cut(text)]
            case CallDelta(arguments):
                pieces += [CallDelta(piece) for piece in cut(arguments)]
            case _:
                pieces.append(event)
    return pieces


def custom_tools(reply: Reply) -> set[str]:
    return {part.name for part in reply.parts if isinstance(part, ToolCall) and part.custom}


def one_kind_per_name(reply: Reply) -> bool:
    functions = {part.name for part in reply.parts if isinstance(part, ToolCall) and not part.custom}
    return functions.isdisjoint(custom_tools(reply))


@patient
@given(replies(thinking=True, custom=True, id_prefix="chatcmpl-").filter(one_kind_per_name), st.integers(1, 9))
def test_a_reply_says_the_same_streamed_and_whole(reply: Reply, size: int) -> None:
    request = Request(reply.model, (), tuple(Tool(name, custom=True) for name in custom_tools(reply)))

    stream = stream_of(in_pieces(list(disassemble(reply)), size), request)

    framer = EventFramer()
    events = framer.feed(stream)
    assert framer.rest() == b""
    assert assemble(told(*events)) == chat.read_reply(chat.write_reply(reply, request)) == reply
    assert chat.is_reply(stream, streamed=True)
    assert chat.usage(stream, streamed=True) == reply.usage


@patient
@given(replies(thinking=True), st.integers(1, 9))
def test_only_what_comes_with_the_end_ends_the_stream(reply: Reply, size: int) -> None:
    events = in_pieces(list(disassemble(reply)), size)
    writer = chat.EventWriter(ASKED)
    before = [event for given in events[:-1] for event in EventFramer().feed(writer.write(given))]
    end = EventFramer().feed(writer.write(events[-1]))
    assert not any(chat.finishes(event) for event in before)
    assert any(chat.finishes(event) for event in end)
    assert [chat.is_last(event) for event in end] == [False] * (len(end) - 1) + [True]


@patient
@given(st.data())
def test_a_stream_that_is_wrong_somewhere_is_read_or_refused(data: st.DataObject) -> None:
    reply = data.draw(replies(thinking=True))
    documents = chunks_of(stream_of(list(disassemble(reply)), ASKED))
    number = data.draw(st.integers(0, len(documents) - 1))
    documents[number] = data.draw(mangled(st.just(documents[number])))
    events = None
    with suppress(ValueError):
        events = told(*map(sse, documents))
    assert events is None or isinstance(events[-1], End)


call_fragments = st.lists(st.tuples(st.integers(0, 3), st.text("ab", max_size=3)), min_size=1, max_size=12)


@patient
@given(call_fragments, st.booleans(), st.booleans())
def test_fragments_of_parallel_calls_reach_their_calls_however_they_interleave(
    fragments: list[tuple[int, str]], repeats_id: bool, has_index: bool
) -> None:
    """Without an index, only a fragment with an id says whose it is."""
    expected: dict[int, str] = {}
    events = []
    for call, piece in fragments:
        named = repeats_id or not has_index or call not in expected
        index = {"index": call} if has_index else {}
        events.append(fragment(piece, f"tool{call}" if named else "", **index, id=f"c{call}" if named else None))
        expected[call] = expected.get(call, "") + piece
    reply = assemble(told(*events, chunk("tool_calls")))
    calls = {part.id: part for part in reply.parts if isinstance(part, ToolCall)}
    assert calls == {f"c{call}": ToolCall(f"c{call}", f"tool{call}", text) for call, text in expected.items()}
    assert len(reply.parts) == len(expected)


def test_the_first_call_is_told_live_and_the_others_in_order_at_the_end() -> None:
    reader = chat.EventReader()
    assert reader.read(fragment("", "ls", index=0, id="a")) == [Begin("r", "m"), CallBegin("a", "ls")]
    assert reader.read(fragment("[", "pwd", index=2, id="c")) == []
    assert reader.read(fragment("{", "cat", index=1, id="b")) == []
    assert reader.read(fragment("{}", index=0)) == [CallDelta("{}")]
    assert reader.read(fragment("}", index=1)) == []
    assert reader.read(chunk("tool_calls")) == []
    assert reader.end() == [
        CallBegin("b", "cat"),
        CallDelta("{}"),
        CallBegin("c", "pwd"),
        CallDelta("["),
        End(Stop.TOOLS),
    ]


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    reply = assemble(told(fragment("{}", "ls", index=0, id="a"), fragment("[]", "ls", index=0, id="b"), chunk("stop")))
    assert reply.parts == (ToolCall("a", "ls", "{}"), ToolCall("b", "ls", "[]"))
    assert reply.stop == Stop.TOOLS


def test_a_call_waits_for_its_name_and_without_one_is_named_as_lost() -> None:
    reader = chat.EventReader()
    assert reader.read(fragment("{", index=0, id="a")) == [Begin("r", "m")]
    assert reader.read(fragment("}", "ls", index=0)) == [CallBegin("a", "ls"), CallDelta("{}")]
    reply = assemble(told(fragment("{}", index=0, id="a"), chunk("stop", content="a")))
    assert reply.parts == (Text("a"),)
    assert reply.stop == Stop.END
    assert reply.lost == ("tool call without a name",)


def test_text_that_comes_amid_calls_waits_and_breaks_none_of_them() -> None:
    events = told(
        chunk(content="I look."),
        fragment("{", "ls", index=0, id="a"),
        chunk(content="\n"),
        fragment("}", index=0),
        chunk("tool_calls"),
    )
    assert assemble(events).parts == (Text("I look."), ToolCall("a", "ls", "{}"), Text("\n"))


def test_deltas_are_told_at_once() -> None:
    reader = chat.EventReader()
    assert reader.read(chunk(role="assistant", content="")) == [Begin("r", "m")]
    assert reader.read(chunk(reasoning_content="hm")) == [ThinkingDelta("hm")]
    assert reader.read(chunk(reasoning="m", reasoning_details=[{"text": "m"}])) == [ThinkingDelta("m")]
    assert reader.read(chunk(content="a")) == [TextDelta("a")]
    assert reader.read(chunk(refusal="no")) == [RefusalDelta("no")]
    assert reader.read(chunk("stop")) == []
    assert reader.end() == [End(Stop.REFUSED)]


def test_usage_may_come_before_with_or_after_the_finish() -> None:
    first, last = ({"prompt_tokens": 9, "completion_tokens": count} for count in (1, 2))
    head = sse({"id": "", "choices": [], "usage": None})
    early = sse({"id": "r", "choices": [{"delta": {"content": "a"}}], "usage": first})
    late = sse({"id": "r", "choices": [], "usage": last})
    assert told(head, early, chunk("stop"), late, b"data: [DONE]\n\n") == [
        Begin("r", ""),
        TextDelta("a"),
        End(Stop.END, Usage(9, 2)),
    ]
    assert told(head, early, chunk("stop"))[-1] == End(Stop.END, Usage(9, 1))


@pytest.mark.parametrize("event", [b": keepalive\n\n", b"event: ping\n\n", b"data:\n\n", b"data: [DONE]\n\n"])
def test_an_event_that_says_nothing_yields_nothing(event: bytes) -> None:
    assert chat.EventReader().read(event) == []


def test_a_stream_that_was_cut_is_not_taken_for_a_reply() -> None:
    reader = chat.EventReader()
    reader.read(chunk(content="a"))
    with pytest.raises(ValueError, match="before its finish reason"):
        reader.end()


@pytest.mark.parametrize("error", [{"message": "overloaded", "code": 503}, "overloaded"])
def test_an_error_in_the_stream_is_raised_with_its_words(error: Any) -> None:
    with pytest.raises(ValueError, match="overloaded"):
        chat.EventReader().read(sse({"error": error}))


def test_a_stream_begins_with_the_role_and_ends_with_finish_then_usage() -> None:
    events: list[Event] = [Begin("r", "upstream"), TextDelta("a"), End(Stop.LENGTH, Usage(3, 1))]
    first, text, finish, usage = chunks_of(stream_of(events, ASKED))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text["choices"][0]["delta"] == {"content": "a"}
    assert [each["choices"][0]["finish_reason"] for each in (first, text, finish)] == [None, None, "length"]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 4
    assert {(each["id"], each["model"], each["object"]) for each in (first, text, finish, usage)} == {
        ("chatcmpl-r", "m", "chat.completion.chunk")
    }


def test_unknown_usage_is_left_out_of_the_stream() -> None:
    assert all("usage" not in each for each in chunks_of(stream_of([Begin("r", ""), End(Stop.END)], ASKED)))


def test_calls_are_numbered_and_named_on_their_first_fragment_only() -> None:
    events: list[Event] = [Begin("r", ""), CallBegin("a", "ls"), CallDelta('{"x"'), CallDelta(":1}")]
    events += [CallBegin("", "pwd"), End(Stop.TOOLS)]
    fragments = [each["choices"][0]["delta"].get("tool_calls") for each in chunks_of(stream_of(events, ASKED))]
    assert [call for calls in fragments for call in calls or ()] == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "ls", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "id": "call_1_1", "type": "function", "function": {"name": "pwd", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]


def test_a_call_of_a_custom_tool_is_unwrapped_once_it_is_whole() -> None:
    request = Request("m", (), (Tool("patch", custom=True),))
    events: list[Event] = [Begin("r", ""), CallBegin("c", "patch"), CallDelta('{"input":"a\\'), CallDelta('nb"}')]
    reply = assemble(told(*EventFramer().feed(stream_of([*events, End(Stop.TOOLS)], request))))
    assert reply.parts == (ToolCall("c", "patch", "a\nb", custom=True),)


def test_hidden_thinking_and_tokens_say_nothing_to_an_agent() -> None:
    events: list[Event] = [Begin("r", ""), ThinkingDelta("hm"), ThinkingDelta(token="t"), End(Stop.END)]
    events.insert(3, ThinkingDelta(token="x", hidden=True))
    reply = assemble(told(*EventFramer().feed(stream_of(events, ASKED))))
    assert reply.parts == (Thinking("hm"),)


def test_a_refusal_in_words_ends_like_any_answer() -> None:
    stream = stream_of([Begin("r", ""), RefusalDelta("no"), End(Stop.REFUSED)], ASKED)
    assert chunks_of(stream)[-1]["choices"][0]["finish_reason"] == "stop"
    reply = assemble(told(*EventFramer().feed(stream)))
    assert (reply.parts, reply.stop) == ((Refusal("no"),), Stop.REFUSED)
