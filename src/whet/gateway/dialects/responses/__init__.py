"""OpenAI Responses: what the gateway looks for on the wire, and the way into the neutral form and out of it."""

import re
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects.chat import model_card, model_list
from whet.gateway.dialects.lenient import decode
from whet.gateway.dialects.neutral import Request
from whet.gateway.dialects.responses.reply import envelope, read_reply, read_usage, write_reply
from whet.gateway.dialects.responses.request import read_request, write_request
from whet.gateway.dialects.responses.stream import EventReader, EventWriter
from whet.gateway.sse import data_lines, data_lines_from_end

__all__ = [
    "DEFAULT_HEADERS",
    "NAME",
    "EventReader",
    "EventWriter",
    "compacts",
    "credentials",
    "error_body",
    "error_event",
    "finishes",
    "is_last",
    "is_reply",
    "model_card",
    "model_list",
    "owns",
    "read_reply",
    "read_request",
    "upstream_path",
    "usage",
    "wants_stream",
    "write_reply",
    "write_request",
]

_T = TypeVar("_T")

NAME = "responses"
DEFAULT_HEADERS: dict[str, str] = {}

# A name is a line of its own, and inside a JSON string every line break and quote is escaped, so no text of the model
# can look like either. A schema or metadata that the response repeats could look like the second, never like the first.
_EVENT_NAME = re.compile(rb"^event:[ ]?([^\r\n]*)", re.MULTILINE)
_TERMINAL_NAMES = (b"response.completed", b"response.incomplete", b"response.failed")
_TERMINAL = rb"response\.(?:completed|incomplete|failed)"
_TERMINAL_NAME = re.compile(_TERMINAL + rb"\s*")
_TERMINAL_TYPE = re.compile(rb'"type"\s*:\s*"' + _TERMINAL + rb'"')

_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "session_closed"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


class _Asked(msgspec.Struct):
    stream: bool | None = None


class _Response(msgspec.Struct):
    output: list[msgspec.Raw] | None = None
    usage: Any = None


class _StreamEvent(msgspec.Struct):
    type: str
    response: _Response | None = None


def owns(path: str) -> bool:
    """Whether a POST to this path, taken without its version, asks for a response."""
    return path == "/responses"


def compacts(path: str) -> bool:
    """Whether a POST to this path is to compact a conversation, into a form that only its provider can read."""
    return path == "/responses/compact"


def upstream_path(request_path: str, model: str, stream: bool) -> str:  # noqa: ARG001 - the body says both
    """Where a model's endpoint takes the call.

    >>> upstream_path("/v1/responses/compact", "m", stream=False)
    '/v1/responses/compact'
    """
    return "/v1/responses/compact" if urlsplit(request_path).path.endswith("/responses/compact") else "/v1/responses"


def credentials(key: str) -> dict[str, str]:
    """The header that carries the provider's key."""
    return {"Authorization": f"Bearer {key}"}


def wants_stream(body: bytes, path: str) -> bool:  # noqa: ARG001 - the contract of all dialects
    """Whether the request asks for its reply as a stream."""
    asked = _decoded(body, _Asked)
    return asked is not None and asked.stream is True


def finishes(event: bytes) -> bool:
    """Whether the event carries the whole response."""
    if not any(name in event for name in _TERMINAL_NAMES):
        return False
    name = _EVENT_NAME.search(event)
    return (_TERMINAL_NAME.fullmatch(name[1]) if name else _TERMINAL_TYPE.search(event)) is not None


def is_last(event: bytes) -> bool:
    """Whether nothing follows: the event that finishes a response is its last."""
    return finishes(event)


def is_reply(response: bytes, streamed: bool) -> bool:
    """Whether all of the response can be read, and there is output in it, or at least its beginning."""
    if not streamed:
        whole = _decoded(response, _Response)
        return whole is not None and whole.output is not None
    begun = False
    for line in data_lines(response):
        if line.strip() != b"[DONE]":
            event = _decoded(line, _StreamEvent)
            if event is None:
                return False
            begun = begun or event.type.startswith("response.")
    return begun


def usage(response: bytes, streamed: bool) -> Usage | None:
    """The tokens that the response says were used; None when it does not say.

    >>> usage(b'{"output": [], "usage": {"input_tokens": 9, "output_tokens": 2}}', streamed=False)
    Usage(input=9, output=2, cache_read=0, cache_write=0, reasoning=0)
    """
    if not streamed:
        return _usage(_decoded(response, _Response))
    events = (_decoded(line, _StreamEvent) for line in data_lines_from_end(response, b'"usage"'))
    stated = (_usage(event.response) for event in events if event is not None)
    return next((tokens for tokens in stated if tokens is not None), None)


def _usage(response: _Response | None) -> Usage | None:
    return None if response is None else read_usage(response.usage)


def _decoded(document: bytes, kind: type[_T]) -> _T | None:
    try:
        return decode(document, kind)
    except ValueError:
        return None


def error_body(status: int, message: str) -> bytes:
    """An error as the body of a reply."""
    kind, code = _ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def error_event(message: str) -> bytes:
    """An error inside a stream that has begun."""
    failed = envelope(Request("", ()), "resp_failed") | {
        "status": "failed",
        "error": {"code": "server_error", "message": message},
    }
    told = msgspec.json.encode({"type": "response.failed", "sequence_number": 0, "response": failed})
    return b"event: response.failed\ndata: " + told + b"\n\n"
