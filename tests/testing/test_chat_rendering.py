"""The chat dialect of the scripted model: the stream and the whole answer are two forms of one message."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.testing import Reply, ToolCall, call, say
from whet.testing.chat import BadRequestError, events, read, whole

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TOOLS = st.builds(
    ToolCall, name=st.text(min_size=1), arguments=st.text() | st.dictionaries(st.text(), JSON, max_size=3)
)
SPOKEN = st.text() | st.text(alphabet=" \nab")
REPLIES = st.builds(Reply, text=st.none() | SPOKEN, tools=st.lists(TOOLS, max_size=3).map(tuple))


def _body(**more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **more}).encode()


STREAMED = _body(stream=True, stream_options={"include_usage": True})


def _chunks(stream: list[bytes]) -> list[dict[str, Any]]:
    assert stream[-1] == b"data: [DONE]\n\n"
    return [json.loads(event.removeprefix(b"data: ")) for event in stream[:-1]]


def _assemble(chunks: list[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    message: dict[str, Any] = {}
    finish = None
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        delta, finish = choice["delta"], choice["finish_reason"]
        message |= {key: delta[key] for key in ("role",) if key in delta}
        if "content" in delta:
            message["content"] = delta["content"] if "content" not in message else message["content"] + delta["content"]
        for piece in delta.get("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            if piece["index"] == len(calls):
                calls.append({key: piece[key] for key in ("id", "type", "function")})
            else:
                calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return message, finish


@given(reply=REPLIES)
def test_the_stream_assembles_to_the_whole_answer(reply: Reply) -> None:
    request = read(STREAMED)
    one = json.loads(whole(request, reply))
    chunks = _chunks(events(request, reply))
    assert _assemble(chunks) == (one["choices"][0]["message"], one["choices"][0]["finish_reason"])
    assert [chunk["usage"] for chunk in chunks] == [None] * (len(chunks) - 1) + [one["usage"]]
    assert {(chunk["id"], chunk["model"], chunk["created"]) for chunk in chunks} == {
        (one["id"], one["model"], one["created"])
    }


@given(reply=REPLIES)
def test_the_message_says_what_the_script_says(reply: Reply) -> None:
    choice = json.loads(whole(read(_body()), reply))["choices"][0]
    assert (choice["message"]["content"] or "") == (reply.text or "")
    calls = choice["message"].get("tool_calls", [])
    assert [one["function"]["name"] for one in calls] == [tool.name for tool in reply.tools]
    for one, tool in zip(calls, reply.tools, strict=True):
        arguments = one["function"]["arguments"]
        assert (arguments if isinstance(tool.arguments, str) else json.loads(arguments)) == tool.arguments
    assert choice["finish_reason"] == ("tool_calls" if reply.tools else "stop")


def test_a_stream_has_the_order_of_the_dialect() -> None:
    reply = Reply(text="Let me look at the files.", tools=call("bash", command="ls -la src tests docs").tools)
    deltas = [chunk["choices"][0]["delta"] for chunk in _chunks(events(read(_body(stream=True)), reply))]
    assert deltas[:3] == [
        {"role": "assistant", "content": ""},
        {"content": "Let me look "},
        {"content": "at the files."},
    ]
    opening = deltas[3]["tool_calls"][0]
    assert (opening["index"], opening["type"]) == (0, "function")
    assert opening["function"] == {"name": "bash", "arguments": ""}
    fragments = [delta["tool_calls"][0] for delta in deltas[4:-1]]
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
    ]
    reply = Reply(text="1234", tools=(ToolCall(name="bash", arguments="12345"),))
    assert json.loads(whole(read(_body(messages=messages)), reply))["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 4,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
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
