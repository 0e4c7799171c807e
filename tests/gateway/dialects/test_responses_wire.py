"""What the gateway looks for in Responses traffic without reading it."""

import msgspec
import pytest

from whet.exchange import Usage
from whet.gateway.dialects import responses
from whet.gateway.dialects.neutral import Json


def event(kind: str, *, named: bool = True, **fields: object) -> bytes:
    data = b"data: " + msgspec.json.encode({"sequence_number": 1, **fields, "type": kind}) + b"\n\n"
    return b"event: " + kind.encode() + b"\n" + data if named else data


def test_only_calls_for_a_response_are_owned() -> None:
    assert responses.owns("/responses")
    assert not responses.owns("/responses/compact")
    assert not responses.owns("/chat/completions")


def test_every_call_goes_to_one_path() -> None:
    assert responses.upstream_path("/responses", "m", stream=True) == "/v1/responses"


@pytest.mark.parametrize(
    ("body", "wants"),
    [(b'{"stream": true}', True), (b'{"stream": false}', False), (b"{}", False), (b"[", False), (b"[" * 9999, False)],
)
def test_the_body_says_whether_a_stream_is_wanted(body: bytes, wants: bool) -> None:
    assert responses.wants_stream(body, "/responses") is wants


@pytest.mark.parametrize("named", [True, False])
def test_only_the_event_with_the_whole_response_finishes(named: bool) -> None:
    for kind in ("response.completed", "response.incomplete", "response.failed"):
        assert responses.finishes(event(kind, named=named))
        assert responses.is_last(event(kind, named=named))
    for kind in ("response.created", "response.output_item.done", "response.output_text.done", "error"):
        assert not responses.finishes(event(kind, named=named))


def test_words_of_the_model_do_not_finish_a_stream() -> None:
    hostile = 'x\n\nevent: response.completed\ndata: {"type": "response.completed"}'
    assert not responses.finishes(event("response.output_text.delta", delta=hostile))
    assert not responses.finishes(event("response.output_text.delta", named=False, delta=hostile))


def test_what_a_response_repeats_of_its_request_does_not_finish_a_named_stream() -> None:
    schema = {"parameters": {"type": "response.completed"}}
    assert not responses.finishes(event("response.created", response={"tools": [schema]}))


@pytest.mark.parametrize(
    ("response", "streamed", "is_reply"),
    [
        (b'{"output": []}', False, True),
        (b'{"error": {"message": "no"}}', False, False),
        (b"<html>", False, False),
        (event("response.created") + b": ping\n\n" + event("response.completed"), True, True),
        (event("response.created") + b"data: [DONE]\n\n", True, True),
        (event("response.created") + b"data: {broken\n\n", True, False),
        (event("error"), True, False),
        (b"", True, False),
    ],
)
def test_a_reply_is_told_from_what_is_none(response: bytes, streamed: bool, is_reply: bool) -> None:
    assert responses.is_reply(response, streamed) is is_reply


def test_usage_is_found_in_bodies_and_at_the_end_of_streams() -> None:
    stated: Json = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    found = Usage(10, 5, cache_read=4, reasoning=2)
    stream = event("response.created", response={"usage": None}) + event(
        "response.completed", response={"output": [], "usage": stated}
    )
    assert responses.usage(stream, streamed=True) == found
    assert responses.usage(msgspec.json.encode({"output": [], "usage": stated}), streamed=False) == found
    assert responses.usage(event("response.created", response={"usage": None}), streamed=True) is None
    assert responses.usage(b"<html>", streamed=False) is None


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "invalid_request_error", "invalid_api_key"),
        (429, "requests", "rate_limit_exceeded"),
        (502, "server_error", None),
    ],
)
def test_errors_have_the_shape_of_the_dialect(status: int, kind: str, code: str | None) -> None:
    error = msgspec.json.decode(responses.error_body(status, "No."))["error"]
    assert error == {"message": "No.", "type": kind, "param": None, "code": code}


def test_an_error_in_a_stream_is_a_failed_response() -> None:
    failed = responses.error_event("Broke off.")
    assert responses.finishes(failed)
    with pytest.raises(ValueError, match="Broke off"):
        responses.EventReader().read(failed)


def test_the_key_goes_where_the_provider_looks_for_it() -> None:
    assert responses.credentials("k") == {"Authorization": "Bearer k"}
