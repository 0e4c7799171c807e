"""The chat dialect of the scripted model: what is its own."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_world import JSON
from whet.testing import Reply, ToolCall, call, say
from whet.testing.chat import events, read, whole
from whet.testing.dialect import BadRequestError


def _body(**more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **more}).encode()


def _chunks(stream: list[bytes]) -> list[dict[str, Any]]:
    assert stream[-1] == b"data: [DONE]\n\n"
    return [json.loads(event.removeprefix(b"data: ")) for event in stream[:-1]]


def test_a_stream_has_the_order_of_the_dialect() -> None:
    reply = Reply(
        thinking="Hm. Files?",
        text="Let me look at the files.",
        tools=call("bash", command="ls -la src tests docs").tools,
    )
    deltas = [chunk["choices"][0]["delta"] for chunk in _chunks(events(read(_body(stream=True)), reply))]
    assert deltas[:4] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm. Files?"},
        {"content": "Let me look "},
        {"content": "at the files."},
    ]
    opening = deltas[4]["tool_calls"][0]
    assert (opening["index"], opening["type"]) == (0, "function")
    assert opening["function"] == {"name": "bash", "arguments": ""}
    fragments = [delta["tool_calls"][0] for delta in deltas[5:-1]]
    assert len(fragments) > 1
    assert all(fragment.keys() == {"index", "function"} for fragment in fragments)
    assert deltas[-1] == {}


def test_usage_is_streamed_only_when_asked_for() -> None:
    chunks = _chunks(events(read(_body(stream=True)), say("Hi.")))
    assert all(chunk["choices"] for chunk in chunks)
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_counts_a_token_for_four_characters_of_all_that_is_said() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "12345678"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "bash", "arguments": "{}"}}]},
        {"role": "assistant", "content": None, "reasoning_content": "1234"},
    ]
    reply = Reply(thinking="12345", text="1234", tools=(ToolCall(name="bash", arguments="12345"),))
    assert json.loads(whole(read(_body(messages=messages)), reply))["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_ids_come_from_the_request_and_differ_within_an_answer() -> None:
    def ids(body: bytes) -> list[str]:
        answer = json.loads(whole(read(body), Reply(tools=(*call("a").tools, *call("a").tools))))
        return [answer["id"], *(one["id"] for one in answer["choices"][0]["message"]["tool_calls"])]

    first = ids(_body())
    assert first == ids(_body())
    assert len({*first, *ids(_body(seed=1))}) == 6
    assert first[0].startswith("chatcmpl-")
    assert first[1].startswith("call_")


def test_developer_messages_are_system_messages() -> None:
    messages = [{"role": "developer", "content": "a"}, {"role": "tool", "content": None, "tool_call_id": "x"}]
    assert [(turn.role, turn.text) for turn in read(_body(messages=messages)).conversation] == [
        ("system", "a"),
        ("tool", ""),
    ]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "Input data was truncated"),
        (b'{"messages": [', "Input data was truncated"),
        (b"\xff", "JSON is malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "Object missing required field `messages`"),
        (b'{"messages": "x"}', "Expected `array`, got `str` - at `$.messages`"),
        (b'{"messages": []}', "Expected at least one message - at `$.messages`"),
        (b'{"messages": [{}]}', "Object missing required field `role`"),
    ],
)
def test_a_request_that_is_none_is_refused_with_the_reason(body: bytes, complaint: str) -> None:
    with pytest.raises(BadRequestError) as refusal:
        read(body)
    assert complaint in str(refusal.value)


@given(body=st.binary() | JSON.map(lambda value: json.dumps({"messages": value}).encode()))
def test_any_body_reads_or_is_refused(body: bytes) -> None:
    with contextlib.suppress(BadRequestError):
        assert read(body).conversation
