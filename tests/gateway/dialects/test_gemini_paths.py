"""Gemini calls: which paths are whose, where they go, and how errors look."""

import json

import pytest

from whet.gateway.dialects import gemini


@pytest.mark.parametrize(
    ("path", "owned", "streamed", "array", "counted"),
    [
        ("/models/gemini-x:generateContent", True, False, False, False),
        ("/models/gemini-x:generatecontent", True, False, False, False),
        ("/v1beta/models/gemini-x:generateContent?key=k", True, False, False, False),
        ("/models/org/some:7b:streamGenerateContent?alt=sse", True, True, False, False),
        ("/models/gemini-x:streamGenerateContent?key=k&alt=sse", True, True, False, False),
        ("/models/gemini-x:streamGenerateContent", True, True, True, False),
        ("/models/gemini-x:StreamGenerateContent?alt=json", True, True, True, False),
        ("/models/gemini-x:countTokens", False, False, False, True),
        ("/models/gemini-x:embedContent", False, False, False, False),
        ("/models/gemini-x", False, False, False, False),
        ("/chat/completions", False, False, False, False),
    ],
)
def test_what_a_path_asks_for(path: str, owned: bool, streamed: bool, array: bool, counted: bool) -> None:
    assert gemini.owns(path) is owned
    assert gemini.wants_stream(b"", path) is streamed
    assert gemini.stream_as_array(path) is array
    assert gemini.counts_tokens(path) is counted


def test_the_model_is_what_the_path_says() -> None:
    request = gemini.read_request(b'{"contents": []}', "/v1beta/models/org%2Fsome:7b:generateContent")
    assert (request.model, request.stream) == ("org/some:7b", False)


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("gemini-x", False, "/v1beta/models/gemini-x:generateContent"),
        ("gemini-x", True, "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("models/gemini-x", False, "/v1beta/models/gemini-x:generateContent"),
        ("a?b", False, "/v1beta/models/a%3Fb:generateContent"),
    ],
)
def test_where_a_call_is_sent(model: str, stream: bool, path: str) -> None:
    assert gemini.upstream_path("/v1/models/other:generateContent", model, stream) == path


def test_the_key_goes_into_its_header() -> None:
    assert gemini.credentials("k") == {"x-goog-api-key": "k"}


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (413, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (502, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
        (529, "UNAVAILABLE"),
    ],
)
def test_errors_have_the_providers_form(status: int, name: str) -> None:
    error = {"code": status, "message": "no", "status": name, "details": []}
    assert json.loads(gemini.error_body(status, "no")) == {"error": error}


def test_an_error_in_a_stream_is_an_event() -> None:
    event = gemini.error_event("no")
    assert event.startswith(b"data: {")
    assert event.endswith(b"\n\n")
    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == "no"
