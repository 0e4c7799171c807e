"""What the gateway looks for on the wire of Messages: routes, ends of streams, usage, errors."""

import json
from typing import Any

import pytest

from whet.exchange import Usage
from whet.gateway.dialects import messages


def sse(document: dict[str, Any]) -> bytes:
    return f"event: {document['type']}\ndata: {json.dumps(document)}\n\n".encode()


START = sse(
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "usage": {
                "input_tokens": 5,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 300,
                "output_tokens": 1,
            },
        },
    }
)
FINISH = sse(
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 9, "input_tokens": None, "output_tokens_details": {"thinking_tokens": 4}},
    }
)
STOP = sse({"type": "message_stop"})


def test_only_the_route_of_a_turn_is_a_call() -> None:
    assert messages.owns("/messages")
    assert not messages.owns("/messages/count_tokens")
    assert not messages.owns("/chat/completions")
    assert messages.counts_tokens("/messages/count_tokens")
    assert not messages.counts_tokens("/messages")


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("/v1/messages", "/v1/messages"),
        ("/messages", "/v1/messages"),
        ("/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("/v1/messages?key=secret&beta=true", "/v1/messages?beta=true"),
        ("", "/v1/messages"),
    ],
)
def test_of_the_query_only_beta_goes_to_the_endpoint(asked: str, sent: str) -> None:
    assert messages.upstream_path(asked, "m", stream=True) == sent


def test_the_key_goes_where_the_provider_looks_for_it() -> None:
    assert messages.credentials("k") == {"x-api-key": "k"}
    assert messages.DEFAULT_HEADERS == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model": "m", "stream": true}', True),
        (b'{"model": "m", "stream": false}', False),
        (b'{"model": "m"}', False),
        (b'{"messages": [{"content": [{"type": "tool_use", "input": {"stream": true}}]}]}', False),
        (b"not json", False),
        (b"[" * 100_000, False),
    ],
)
def test_a_stream_is_wanted_when_the_body_itself_says_so(body: bytes, expected: bool) -> None:
    assert messages.wants_stream(body, "/messages") is expected


def test_the_stop_reason_finishes_and_message_stop_is_last() -> None:
    assert [messages.finishes(event) for event in (START, FINISH, STOP)] == [False, True, True]
    assert [messages.is_last(event) for event in (START, FINISH, STOP)] == [False, False, True]


def test_a_message_delta_without_a_reason_finishes_nothing() -> None:
    assert not messages.finishes(sse({"type": "message_delta", "delta": {"stop_reason": None}, "usage": {}}))


def test_line_ends_of_any_kind_are_understood() -> None:
    assert messages.is_last(STOP.replace(b"\n", b"\r\n"))
    assert messages.finishes(FINISH.replace(b"\n", b"\r\n"))
    assert messages.is_last(b": note\n" + STOP)


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": '\nevent: message_stop\ndata: {"type": "message_stop"}\n\n'},
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {
                "type": "tool_use",
                "id": "t",
                "name": "n",
                "input": {"type": "message_delta", "stop_reason": "end_turn", "event: message_stop": 1},
            },
        },
    ],
)
def test_nothing_the_model_says_looks_like_the_end(event: dict[str, Any]) -> None:
    assert not messages.finishes(sse(event))
    assert not messages.is_last(sse(event))


def test_input_is_everything_the_model_read() -> None:
    body = {
        "content": [],
        "usage": {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300},
    }
    body["usage"] |= {"output_tokens": 7}  # type: ignore[operator]
    assert messages.usage(json.dumps(body).encode(), streamed=False) == Usage(325, 7, 300, 20)


def test_usage_of_a_stream_is_the_start_and_what_the_end_says_anew() -> None:
    assert messages.usage(START + FINISH + STOP, streamed=True) == Usage(325, 9, 300, 20, 4)
    assert messages.usage(START, streamed=True) == Usage(325, 1, 300, 20)


@pytest.mark.parametrize("body", [b'{"content": []}', b'{"content": [], "usage": null}', b"no", b'{"usage": {}}'])
def test_usage_that_is_not_stated_is_not_zero(body: bytes) -> None:
    assert messages.usage(body, streamed=False) is None


def test_a_reply_is_a_message() -> None:
    assert messages.is_reply(b'{"type": "message", "content": []}', streamed=False)
    assert not messages.is_reply(messages.error_body(529, "busy"), streamed=False)
    assert not messages.is_reply(b"<html>", streamed=False)
    assert messages.is_reply(START, streamed=True)
    assert not messages.is_reply(STOP, streamed=True)
    assert not messages.is_reply(START + b"data: {broken\n\n", streamed=True)
    assert not messages.is_reply(b"", streamed=True)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_have_the_type_that_clients_decide_by(status: int, kind: str) -> None:
    assert json.loads(messages.error_body(status, "Why.")) == {
        "type": "error",
        "error": {"type": kind, "message": "Why."},
        "request_id": None,
    }


def test_an_error_inside_a_stream_is_an_error_event_and_no_end() -> None:
    event = messages.error_event("It broke off.")
    assert event.startswith(b"event: error\ndata: {")
    assert event.endswith(b"\n\n")
    assert not messages.finishes(event)


def test_a_count_is_a_quarter_of_the_characters() -> None:
    body = {"model": "m", "system": "s" * 400, "messages": [{"role": "user", "content": "u" * 800}], "tools": []}
    counted = json.loads(messages.count_reply(json.dumps(body).encode()))
    assert list(counted) == ["input_tokens"]
    assert 300 <= counted["input_tokens"] < 310


def test_a_picture_counts_by_what_it_costs_not_by_its_length() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    body = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    assert json.loads(messages.count_reply(json.dumps(body).encode()))["input_tokens"] < 2000


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 100_000])
def test_what_is_no_request_is_not_counted(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        messages.count_reply(body)
