"""Gemini replies, whole and streamed: they read the same, end only at their end, and clients get what they need."""

import base64
import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.neutral_strategies import mangled, replies, usages
from whet.exchange import Usage
from whet.gateway.dialects import gemini
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
    ToolCall,
    assemble,
    disassemble,
)

USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "cachedContentTokenCount": 4}


def request_of(model: str) -> Request:
    return Request(model, (Message("user", (Text("hi"),)),))


def document(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-x", "responseId": "r1", **more}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def event(value: Any) -> bytes:
    return b"data: " + encoded(value) + b"\r\n\r\n"


def streamed_reply(*events: bytes) -> Reply:
    reader = gemini.EventReader()
    return assemble([*(told for event in events for told in reader.read(event)), *reader.end()])


def written_events(*events: Event, model: str = "m") -> list[dict[str, Any]]:
    writer = gemini.EventWriter(request_of(model))
    stream = b"".join(writer.write(event) for event in events)
    return [json.loads(block.removeprefix(b"data: ")) for block in stream.split(b"\n\n") if block]


thoughts = st.builds(Thinking, st.text(min_size=1, max_size=5), st.sampled_from(["AAA=", "/+8="])) | st.builds(
    Thinking, st.just(""), st.just("BBB="), st.just(True)
)
signed_replies = st.builds(
    lambda reply, first, usage, thought: msgspec.structs.replace(
        reply,
        parts=(*first, *reply.parts),
        usage=Usage(usage.input, usage.output + thought, usage.cache_read, reasoning=thought),
    ),
    replies(thinking=True),
    st.lists(thoughts, max_size=2),
    usages,
    st.integers(0, 99),
)


@given(signed_replies)
def test_a_reply_that_is_written_reads_the_same(reply: Reply) -> None:
    assert gemini.read_reply(gemini.write_reply(reply, request_of(reply.model))) == reply


@given(signed_replies, st.integers(1, 4))
def test_a_streamed_reply_reads_the_same_however_it_was_cut_up(reply: Reply, size: int) -> None:
    writer = gemini.EventWriter(request_of(reply.model))
    stream = [writer.write(piece) for told in disassemble(reply) for piece in pieces(told, size)]
    assert streamed_reply(*stream) == reply


def pieces(event: Event, size: int) -> list[Event]:
    """The event in deltas of this size."""
    match event:
        case TextDelta(text):
            return [TextDelta(text[start : start + size]) for start in range(0, len(text), size)]
        case CallDelta(text):
            return [CallDelta(text[start : start + size]) for start in range(0, len(text), size)]
        case ThinkingDelta(text, token, False):
            deltas = [ThinkingDelta(text[start : start + size]) for start in range(0, len(text), size)]
            return [*deltas, ThinkingDelta("", token)]
        case _:
            return [event]


@given(mangled(signed_replies.map(lambda reply: json.loads(gemini.write_reply(reply, request_of("m"))))))
def test_whatever_comes_is_read_or_refused_with_a_value_error(value: Any) -> None:
    body = msgspec.json.encode(value)
    with suppress(ValueError):
        gemini.write_reply(gemini.read_reply(body), request_of("m"))
    with suppress(ValueError):
        streamed_reply(b"data: " + body + b"\n\n")
    gemini.is_reply(body, streamed=False)
    gemini.usage(body, streamed=False)
    gemini.finishes(b"data: " + body)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"candidates": [1]}'])
def test_what_is_no_reply_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        gemini.read_reply(body)
    assert not gemini.is_reply(body, streamed=False)


def test_a_reply_as_the_provider_sends_it_is_read_whole() -> None:
    reply = gemini.read_reply(
        encoded(
            document(
                {"text": "I should look.", "thought": True},
                {"text": "Let me "},
                {"text": "look."},
                {"functionCall": {"name": "ls", "args": {"path": "."}}, "thoughtSignature": "AAA="},
                {"functionCall": {"name": "pwd"}},
                finish="STOP",
                usageMetadata=USAGE,
            )
        )
    )
    first, second = (part for part in reply.parts if isinstance(part, ToolCall))
    assert reply == Reply(
        id="r1",
        model="gemini-x",
        parts=(
            Thinking("I should look."),
            Text("Let me look."),
            ToolCall(first.id, "ls", '{"path":"."}', token="AAA="),
            ToolCall(second.id, "pwd", "{}"),
        ),
        stop=Stop.TOOLS,
        usage=Usage(input=10, output=8, cache_read=4, reasoning=3),
    )
    assert first.id != second.id


def test_ids_that_are_made_up_differ_from_reply_to_reply() -> None:
    call = {"functionCall": {"name": "f"}}
    made = [gemini.read_reply(encoded(document(call, finish="STOP", responseId=reply))).parts[0] for reply in "ab"]
    again = gemini.read_reply(encoded(document(call, finish="STOP", responseId="a"))).parts[0]
    assert made[0] != made[1]
    assert made[0] == again


@pytest.mark.parametrize(
    ("finish", "stop", "lost"),
    [
        ("STOP", Stop.END, ()),
        ("MAX_TOKENS", Stop.LENGTH, ()),
        ("SAFETY", Stop.REFUSED, ()),
        ("PROHIBITED_CONTENT", Stop.REFUSED, ()),
        ("RECITATION", Stop.REFUSED, ()),
        ("MALFORMED_FUNCTION_CALL", Stop.END, ("finishReason MALFORMED_FUNCTION_CALL",)),
        ("SOMETHING_NEW", Stop.END, ("finishReason SOMETHING_NEW",)),
    ],
)
def test_why_the_model_stopped(finish: str, stop: Stop, lost: tuple[str, ...]) -> None:
    reply = gemini.read_reply(encoded(document({"text": "hi"}, finish=finish)))
    assert (reply.stop, reply.lost) == (stop, lost)


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        (Stop.END, "STOP"),
        (Stop.TOOLS, "STOP"),
        (Stop.SEQUENCE, "STOP"),
        (Stop.PAUSED, "STOP"),
        (Stop.LENGTH, "MAX_TOKENS"),
        (Stop.REFUSED, "SAFETY"),
    ],
)
def test_the_client_is_told_why_the_model_stopped(stop: Stop, finish: str) -> None:
    reply = json.loads(gemini.write_reply(Reply("r", "m", (Text("hi"),), stop), request_of("m")))
    assert reply["candidates"][0]["finishReason"] == finish


def test_a_prompt_that_is_blocked_is_a_refusal() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "No."}, "responseId": "r1"}
    for reply in (gemini.read_reply(encoded(blocked)), streamed_reply(event(blocked))):
        assert (reply.stop, reply.parts) == (Stop.REFUSED, (Refusal("No."),))
    assert gemini.finishes(event(blocked))
    assert gemini.is_reply(event(blocked), streamed=True)


def test_what_of_a_reply_has_no_place_is_named() -> None:
    answer = document(
        {"text": "hi"},
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"executableCode": {"code": "1"}},
        finish="STOP",
    )
    answer["candidates"][0] |= {"groundingMetadata": {}, "safetyRatings": []}
    answer["candidates"].append({"index": 1, "content": {"parts": [{"text": "other"}]}, "finishReason": "STOP"})
    reply = gemini.read_reply(encoded(answer))
    assert reply.parts == (Text("hi"),)
    assert set(reply.lost) == {
        "image in the reply",
        "part executableCode",
        "groundingMetadata",
        "more than one candidate",
    }


def test_a_client_finds_its_own_name_of_the_model_and_all_counts() -> None:
    reply = Reply("r9", "upstream-name", (Text("hi"),), Stop.END, Usage(10, 8, 4, 0, 3))
    assert json.loads(gemini.write_reply(reply, request_of("clients-name"))) == {
        "candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "index": 0, "finishReason": "STOP"}],
        "modelVersion": "clients-name",
        "responseId": "r9",
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 4,
            "totalTokenCount": 18,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
        },
    }


def test_usage_that_is_not_known_is_not_zero() -> None:
    assert "usageMetadata" not in json.loads(gemini.write_reply(Reply("r", "m", (), Stop.END), request_of("m")))


def test_calls_without_id_or_signature_get_both_always_the_same_and_the_signature_is_known_again() -> None:
    reply = Reply("r", "m", (ToolCall("", "f", "{}"), ToolCall("", "f", "{}")), Stop.TOOLS)
    body = gemini.write_reply(reply, request_of("m"))
    assert body == gemini.write_reply(reply, request_of("m"))
    parts = json.loads(body)["candidates"][0]["content"]["parts"]
    ids = {part["functionCall"]["id"] for part in parts}
    assert len(ids) == 2
    assert all(ids)
    for part in parts:
        base64.b64decode(part["thoughtSignature"], validate=True)
    assert [part.token for part in gemini.read_reply(body).parts if isinstance(part, ToolCall)] == [None, None]

    streamed = written_events(*disassemble(reply))
    assert [part for chunk in streamed for part in chunk["candidates"][0]["content"]["parts"]] == parts


def test_each_delta_goes_out_as_soon_as_it_is_in_and_a_call_when_it_is_whole() -> None:
    writer = gemini.EventWriter(request_of("m"))
    assert writer.write(Begin("r", "x")) == b""
    assert b'"thought":true' in writer.write(ThinkingDelta("Hm"))
    assert b'"text":"Hel"' in writer.write(TextDelta("Hel"))
    assert writer.write(CallBegin("a", "f")) == b""
    assert writer.write(CallDelta('{"x":')) == b""
    assert writer.write(CallDelta("1}")) == b""
    assert b'"args":{"x":1}' in writer.write(CallBegin("b", "g"))
    last = writer.write(End(Stop.TOOLS, Usage(1, 2)))
    assert last.count(b"data: ") == 1
    assert b'"functionCall":{"id":"b","name":"g","args":{}}' in last
    assert b'"finishReason":"STOP"' in last
    assert b'"totalTokenCount":3' in last


def test_the_last_event_has_a_part_even_when_nothing_is_left_to_say() -> None:
    *_, last = written_events(Begin("r", "m"), TextDelta("hi"), End(Stop.END))
    assert last["candidates"][0]["content"]["parts"] == [{"text": ""}]


def test_only_the_last_event_of_a_written_stream_finishes_it() -> None:
    writer = gemini.EventWriter(request_of("m"))
    told = (Begin("r", "m"), TextDelta("a"), RefusalDelta("No."), CallBegin("c", "f"), TextDelta("b"), End(Stop.END))
    stream = [event for one in told if (event := writer.write(one))]
    assert [gemini.finishes(event) for event in stream] == [False] * (len(stream) - 1) + [True]
    assert not any(gemini.is_last(event) for event in stream)


def test_the_reader_tells_what_came_before_the_rest_is_there() -> None:
    reader = gemini.EventReader()
    assert reader.read(event(document({"text": "Hel"}, usageMetadata={"promptTokenCount": 9}))) == [
        Begin("r1", "gemini-x", Usage(9)),
        TextDelta("Hel"),
    ]
    assert reader.read(b": keepalive\n\n") == []
    assert reader.read(event(document({"text": "lo"}, finish="STOP"))) == [TextDelta("lo")]
    assert reader.read(event({"usageMetadata": USAGE, "responseId": "r1"})) == []
    assert reader.end() == [End(Stop.END, Usage(10, 8, 4, 0, 3))]


def test_a_stream_that_was_cut_has_no_end() -> None:
    reader = gemini.EventReader()
    reader.read(event(document({"text": "Hel"})))
    with pytest.raises(ValueError, match="finishReason"):
        reader.end()


def test_an_error_in_a_stream_is_a_value_error_in_its_words() -> None:
    reader = gemini.EventReader()
    with pytest.raises(ValueError, match="try later"):
        reader.read(gemini.error_event("try later"))


def test_arguments_that_look_like_a_finish_do_not_finish_a_stream() -> None:
    trap = {"functionCall": {"name": "f", "args": {"finishReason": "STOP", "blockReason": "SAFETY"}}}
    assert not gemini.finishes(event(document(trap)))
    assert gemini.finishes(event(document(trap, finish="STOP")))
    assert not gemini.finishes(event(document({"text": '"finishReason": "STOP"'})))
    assert not gemini.finishes(event(document({"text": "x"}, finish="FINISH_REASON_UNSPECIFIED")))


def test_a_recorded_stream_is_a_reply_when_all_of_it_can_be_read() -> None:
    first, last = event(document({"text": "a"})), event(document({"text": "b"}, finish="STOP"))
    assert gemini.is_reply(first + last, streamed=True)
    assert not gemini.is_reply(first + b"data: {broken\n\n", streamed=True)
    assert not gemini.is_reply(gemini.error_event("no"), streamed=True)
    assert not gemini.is_reply(b"", streamed=True)


def test_usage_is_the_last_that_is_stated() -> None:
    first = event(document({"text": "a"}, usageMetadata={"promptTokenCount": 10}))
    last = event(document({"text": "b"}, finish="STOP", usageMetadata=USAGE))
    expected = Usage(input=10, output=8, cache_read=4, reasoning=3)
    assert gemini.usage(first + last + event(document()), streamed=True) == expected
    assert gemini.usage(encoded(document(usageMetadata=USAGE)), streamed=False) == expected
    assert gemini.usage(event(document({"text": "a"})), streamed=True) is None
    assert gemini.usage(encoded({"usageMetadata": {"promptTokenCount": "many"}}), streamed=False) is None
