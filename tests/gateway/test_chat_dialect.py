"""Reading chat completions out of recorded bytes."""

import json
from typing import Any

import pytest

from whet.exchange import Usage
from whet.gateway.dialects import by_route, chat


def sse(*documents: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents) + b"data: [DONE]\n\n"


def choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"choices": []}', b"\xff"])
@pytest.mark.parametrize("streamed", [True, False])
def test_what_is_no_reply_is_said_to_be_none(body: bytes, streamed: bool) -> None:
    assert not chat.is_reply(body, streamed)
    assert chat.usage(body, streamed) is None


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
