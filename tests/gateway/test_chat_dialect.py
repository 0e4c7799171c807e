"""Reading chat completions out of recorded bytes."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.exchange import Usage
from whet.gateway.dialects import by_route, chat


def sse(*documents: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents) + b"data: [DONE]\n\n"


def choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


texts = st.text(max_size=30)
cuts = st.lists(st.integers(0, 100), max_size=4)


@given(
    content=texts,
    reasoning=texts,
    calls=st.lists(st.tuples(st.text(min_size=1, max_size=8), texts), max_size=3),
    cuts=cuts,
    with_index=st.booleans(),
)
def test_deltas_give_the_message_that_was_cut_up(
    content: str, reasoning: str, calls: list[tuple[str, str]], cuts: list[int], with_index: bool
) -> None:
    documents = [choice(role="assistant", content="")]
    documents += [choice(reasoning_content=piece) for piece in pieces_of(reasoning, cuts)]
    documents += [choice(content=piece) for piece in pieces_of(content, cuts)]
    for number, (name, arguments) in enumerate(calls):
        index = {"index": number} if with_index else {}
        opening = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": ""}}
        documents.append(choice(tool_calls=[index | opening]))
        documents += [
            choice(tool_calls=[index | {"function": {"arguments": piece}}]) for piece in pieces_of(arguments, cuts)
        ]
    documents.append(choice("tool_calls" if calls else "stop"))

    message = chat.reply_message(sse(*documents), streamed=True)

    tool_calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    assert message == {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "finish_reason": "tool_calls" if calls else "stop",
    } | ({"tool_calls": tool_calls} if calls else {})


def test_parallel_tool_calls_may_be_interleaved_and_repeat_their_names() -> None:
    body = sse(
        choice(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "ls", "arguments": "{"}}]),
        choice(tool_calls=[{"index": 1, "id": "b", "type": "function", "function": {"name": "cat", "arguments": "["}}]),
        choice(tool_calls=[{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "}"}}]),
        choice("tool_calls", tool_calls=[{"index": 1, "id": None, "function": {"name": None, "arguments": "]"}}]),
    )
    calls = chat.reply_message(body, streamed=True)["tool_calls"]
    assert [(call["id"], call["function"]) for call in calls] == [
        ("a", {"name": "ls", "arguments": "{}"}),
        ("b", {"name": "cat", "arguments": "[]"}),
    ]


def test_a_cut_stream_gives_what_came_without_a_finish_reason() -> None:
    body = sse(choice(role="assistant", content="fo")).removesuffix(b"data: [DONE]\n\n") + b'data: {"choi'
    assert chat.reply_message(body, streamed=True) == {"role": "assistant", "content": "fo", "finish_reason": None}


def test_tool_calls_that_are_none_are_left_out() -> None:
    body = sse(choice(content="a", tool_calls=[]), choice(tool_calls=[None]), choice("stop", tool_calls={"index": 0}))
    assert chat.reply_message(body, streamed=True)["tool_calls"] == []


def test_a_whole_reply_keeps_every_field_of_its_message() -> None:
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [], "x_new": {"a": 1}}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "length"}]}).encode()
    assert chat.reply_message(body, streamed=False) == message | {"finish_reason": "length"}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"choices": []}', b"\xff"])
@pytest.mark.parametrize("streamed", [True, False])
def test_what_is_no_reply_is_said_to_be_none(body: bytes, streamed: bool) -> None:
    assert not chat.is_reply(body, streamed)
    assert chat.usage(body, streamed) is None
    with pytest.raises(ValueError, match="not a chat reply"):
        chat.reply_message(body, streamed)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"messages": 1}', b'{"messages": ["a"]}', b"\xff"])
def test_what_is_no_request_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a chat request"):
        chat.request_messages(body)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 2, 4)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None, "new": []}, Usage(9, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": None}}, Usage(9, 2)),
        ({"prompt_tokens": 9}, None),
        ({"prompt_tokens": None, "completion_tokens": 2}, None),
        ({}, None),
        (None, None),
    ],
)
def test_usage_is_what_the_reply_says_or_unknown(stated: dict[str, Any] | None, expected: Usage | None) -> None:
    body: dict[str, Any] = {"choices": [{}], "usage": stated}
    assert chat.usage(json.dumps(body).encode(), streamed=False) == expected
    assert chat.usage(sse(choice(content='"usage": 5'), choice("stop"), body), streamed=True) == expected


def test_the_last_usage_of_a_stream_counts_even_when_nulls_follow() -> None:
    first = choice(content="a") | {"usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    second = choice("stop") | {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    assert chat.usage(sse(first, second, choice() | {"usage": None}), streamed=True) == Usage(9, 2)


def test_errors_have_the_shape_that_clients_read() -> None:
    refused = json.loads(chat.error_body(401, "no"))["error"]
    assert refused == {"message": "no", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
    assert json.loads(chat.error_body(502, "no"))["error"]["type"] == "server_error"
    event = chat.error_event("it broke\n\noff")
    assert event.startswith(b"data: {")
    assert event.count(b"\n") == 2
    assert event.endswith(b"\n\n")


def test_a_route_finds_its_dialect() -> None:
    found = by_route("/chat/completions")
    assert found is not None
    assert found.NAME == "chat"
    assert by_route("/embeddings") is None
