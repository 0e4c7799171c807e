"""Streams of the Responses API: live out of a model's events, and complete for an agent."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.neutral_strategies import json_values, mangled, replies
from whet.exchange import Usage
from whet.gateway.dialects import responses
from whet.gateway.dialects.neutral import (
    Begin,
    CallBegin,
    CallDelta,
    End,
    Event,
    Json,
    Refusal,
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
from whet.gateway.sse import EventFramer, data_lines

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
CREATED: Json = {"type": "response.created", "response": {"id": "resp_1", "model": "m", "usage": None}}
COMPLETED: Json = {
    "type": "response.completed",
    "response": {
        "id": "resp_1",
        "status": "completed",
        "output": [],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
}


def sse(document: Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (document["type"].encode(), msgspec.json.encode(document))


def read(*documents: Json) -> list[Event]:
    reader = responses.EventReader()
    return [event for document in documents for event in reader.read(sse(document))] + reader.end()


def written(events: list[Event], request: Request | None = None) -> list[Json]:
    writer = responses.EventWriter(request or Request("asked-for", ()))
    stream = b"".join(writer.write(event) for event in events)
    return [msgspec.json.decode(line) for line in data_lines(stream)]


def read_back(stream: bytes) -> Reply:
    reader = responses.EventReader()
    events = [said for event in EventFramer().feed(stream) for said in reader.read(event)]
    return assemble(events + reader.end())


def of(kind: str, index: int = 0, **fields: Any) -> Json:
    return {"type": f"response.{kind}", "output_index": index, **fields}


def call(call_id: str, arguments: str) -> Json:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "ls", "arguments": arguments}


def test_every_delta_comes_out_as_it_goes_in() -> None:
    reader = responses.EventReader()
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    told: list[tuple[Json, list[Event]]] = [
        (CREATED, [Begin("resp_1", "m")]),
        ({"type": "response.in_progress", "response": CREATED["response"]}, []),
        (of("output_item.added", item={"type": "reasoning", "summary": []}), []),
        (of("reasoning_summary_text.delta", summary_index=0, delta="Hm"), [ThinkingDelta("Hm")]),
        (of("reasoning_summary_text.delta", summary_index=1, delta="So"), [ThinkingDelta("\n\nSo")]),
        (of("reasoning_summary_text.done", summary_index=0, text="Hm"), []),
        (of("output_item.done", item=reasoning | {"encrypted_content": "gAA="}), [ThinkingDelta(token="gAA=")]),
        (of("output_item.added", 1, item={"type": "message", "content": []}), []),
        (of("output_text.delta", 1, content_index=0, delta="Let me"), [TextDelta("Let me")]),
        (of("output_text.done", 1, content_index=0, text="Let me"), []),
        (
            of("output_item.done", 1, item={"type": "message", "content": [{"type": "output_text", "text": "Let me"}]}),
            [],
        ),
        (of("output_item.added", 2, item=call("c1", "")), [CallBegin("c1", "ls")]),
        (of("function_call_arguments.delta", 2, delta='{"a'), [CallDelta('{"a')]),
        (of("function_call_arguments.delta", 2, delta='":1}'), [CallDelta('":1}')]),
        (of("output_item.done", 2, item=call("c1", '{"a":1}')), []),
        (COMPLETED, [End(Stop.TOOLS, Usage(3, 2))]),
    ]
    assert [reader.read(sse(document)) for document, _ in told] == [events for _, events in told]
    assert reader.end() == []


def test_calls_that_overlap_come_out_one_after_the_other() -> None:
    assert read(
        CREATED,
        of("output_item.added", 0, item=call("a", "")),
        of("output_item.added", 1, item=call("b", "")),
        of("function_call_arguments.delta", 1, delta="[2]"),
        of("function_call_arguments.delta", 0, delta="[1]"),
        of("output_item.done", 1, item=call("b", "[2]")),
        of("output_item.done", 0, item=call("a", "[1]")),
        COMPLETED,
    ) == [
        Begin("resp_1", "m"),
        CallBegin("a", "ls"),
        CallDelta("[1]"),
        CallBegin("b", "ls"),
        CallDelta("[2]"),
        End(Stop.TOOLS, Usage(3, 2)),
    ]


def test_items_that_come_whole_are_told_once() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "gAA="}
    items = [hidden, message, call("a", "[1]")]
    told = [
        of(f"output_item.{state}", index, item=item) for index, item in enumerate(items) for state in ("added", "done")
    ]
    only_the_end = COMPLETED | {"response": COMPLETED["response"] | {"output": items}}

    parts = (Thinking("", "gAA=", hidden=True), Text("Hi."), ToolCall("a", "ls", "[1]"))
    assert assemble(read(CREATED, *told, COMPLETED)).parts == parts
    assert assemble(read(CREATED, *told, only_the_end)).parts == parts
    assert assemble(read(CREATED, only_the_end)).parts == parts


def test_events_without_an_index_belong_to_the_latest_item() -> None:
    def anywhere(kind: str, **fields: Any) -> Json:
        return {"type": f"response.{kind}", **fields}

    events = read(
        anywhere("output_item.added", item=call("a", "")),
        anywhere("function_call_arguments.delta", delta="[1]"),
        anywhere("output_item.done", item=call("a", "[1]")),
        anywhere("output_item.added", item=call("b", "")),
        anywhere("function_call_arguments.delta", delta="[2]"),
        COMPLETED,
    )
    assert assemble(events).parts == (ToolCall("a", "ls", "[1]"), ToolCall("b", "ls", "[2]"))


def test_what_the_provider_did_itself_is_named_as_lost() -> None:
    item = {"type": "web_search_call", "id": "ws_1"}
    events = read(CREATED, of("output_item.added", item=item), of("output_item.done", item=item), COMPLETED)
    assert events[-1] == End(Stop.END, Usage(3, 2), ("output item web_search_call",))


def test_the_last_event_says_how_it_ended_when_the_response_in_it_does_not() -> None:
    assert read(CREATED, {"type": "response.incomplete", "response": {}})[-1] == End(Stop.LENGTH)


def test_comments_and_sentinels_say_nothing() -> None:
    reader = responses.EventReader()
    assert reader.read(b": keepalive\n\n") == []
    reader.read(sse(COMPLETED))
    assert reader.read(b"data: [DONE]\n\n") == []


def test_a_stream_without_its_last_event_was_cut() -> None:
    reader = responses.EventReader()
    reader.read(sse(CREATED))
    with pytest.raises(ValueError, match="broke off"):
        reader.end()


@pytest.mark.parametrize(
    "document",
    [
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "x", "message": "Out of luck."}},
        },
        {"type": "error", "code": "x", "message": "Out of luck.", "sequence_number": 1},
        {"type": "error", "error": {"message": "Out of luck."}},
    ],
)
def test_a_failure_in_the_stream_is_said(document: Json) -> None:
    with pytest.raises(ValueError, match="the model failed: Out of luck"):
        responses.EventReader().read(sse(document))


def test_an_agent_sees_the_whole_life_of_every_item() -> None:
    reply = Reply(
        "resp_1",
        "m",
        (
            Thinking("Hm.", "gAA="),
            Text("Hi."),
            Refusal("No."),
            ToolCall("c1", "ls", "{}", namespace="n"),
            ToolCall("c2", "patch", "+a", custom=True),
            Thinking("", "gBB=", hidden=True),
        ),
        Stop.TOOLS,
        Usage(3, 2),
    )
    events = written(list(disassemble(reply)))

    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "output_item.added",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done
    assert [item["encrypted_content"] for item in done if item["type"] == "reasoning"] == ["gAA=", "gBB="]
    for event in events:
        if "item_id" in event:
            assert event["item_id"] == done[event["output_index"]]["id"]
    assert [event.get("content_index") for event in events if event["type"] == "response.output_text.delta"] == [0]
    assert events[-1]["response"]["usage"]["total_tokens"] == 5


def test_the_name_of_each_event_stands_before_its_data() -> None:
    writer = responses.EventWriter(Request("m", ()))
    first, second = writer.write(Begin("r", "m")).decode().split("\n\n")[:2]
    assert first.startswith('event: response.created\ndata: {"type":"response.created",')
    assert second.startswith("event: response.in_progress\ndata: ")


def test_deltas_go_out_at_once_and_nothing_final_before_the_end() -> None:
    writer = responses.EventWriter(Request("m", ()))
    events: list[Event] = [Begin("r", "m"), TextDelta("Hi"), CallBegin("c", "ls"), CallDelta("{}")]
    for event in events:
        out = writer.write(event)
        assert not any(responses.finishes(framed) for framed in EventFramer().feed(out))
        piece = {TextDelta: b'"delta":"Hi"', CallDelta: b'"delta":"{}"'}.get(type(event), b"")
        assert piece in out
    assert responses.finishes(EventFramer().feed(writer.write(End(Stop.TOOLS)))[-1])


def test_a_call_of_a_raw_tool_is_taken_out_of_its_json() -> None:
    request = Request("m", (), tools=(Tool("patch", custom=True), Tool("spawn", namespace="n")))
    events = written(
        [
            Begin("r", "m"),
            CallBegin("c1", "patch"),
            CallDelta('{"inp'),
            CallDelta('ut": "+\\n"}'),
            CallBegin("c2", "n__spawn"),
            CallDelta("{}"),
            End(Stop.TOOLS),
        ],
        request,
    )
    assert [event["delta"] for event in events if "delta" in event] == ["+\n", "{}"]
    patch, spawn = events[-1]["response"]["output"]
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "patch", "+\n")
    assert (spawn["type"], spawn["name"], spawn["namespace"]) == ("function_call", "spawn", "n")


def test_a_reply_cut_short_ends_as_incomplete() -> None:
    events = written([Begin("r", "m"), TextDelta("Hi"), End(Stop.LENGTH, Usage(1, 1))])
    assert events[-1]["type"] == "response.incomplete"
    assert events[-2]["item"]["status"] == "incomplete"


def test_usage_known_only_at_the_beginning_is_still_told() -> None:
    events = written([Begin("r", "m", Usage(7, 0)), End(Stop.END)])
    assert events[-1]["response"]["usage"]["input_tokens"] == 7


@patient
@given(replies(thinking=True, custom=True, id_prefix="resp_"), st.data())
def test_stream_and_body_of_a_reply_read_back_as_the_same_reply(reply: Reply, data: st.DataObject) -> None:
    request = Request(reply.model, ())
    writer = responses.EventWriter(request)
    events = (piece for event in disassemble(reply) for piece in cut(event, data))
    stream = b"".join(writer.write(event) for event in events)

    assert read_back(stream) == reply
    assert msgspec.json.decode(list(data_lines(stream))[-1])["response"] == msgspec.json.decode(
        responses.write_reply(reply, request)
    )


def cut(event: Event, data: st.DataObject) -> list[Event]:
    """The same delta in two."""
    field = "arguments" if isinstance(event, CallDelta) else "text"
    if not isinstance(event, TextDelta | ThinkingDelta | CallDelta):
        return [event]
    text = getattr(event, field)
    at = data.draw(st.integers(0, len(text)))
    head, tail = ({field: piece} for piece in (text[:at], text[at:]))
    return [type(event)(**head), msgspec.structs.replace(event, **tail)]


def documents_of(reply: Reply) -> list[Json]:
    return written(list(disassemble(reply)))


@patient
@given(st.lists(json_values, max_size=3) | mangled(replies(thinking=True, custom=True).map(documents_of)))
def test_any_events_are_read_or_refused(documents: Any) -> None:
    reader = responses.EventReader()
    with suppress(ValueError):
        for document in documents if isinstance(documents, list) else [documents]:
            reader.read(b"data: " + msgspec.json.encode(document) + b"\n\n")
        reader.end()
