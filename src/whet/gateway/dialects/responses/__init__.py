"""OpenAI Responses: routes, errors and the marks that the gateway looks for on the wire. Start here."""

import re
from urllib.parse import urlsplit

import msgspec

from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.chat import model_card, model_list
from whet.gateway.dialects.responses.reply import envelope, is_reply, read_reply, usage, write_reply
from whet.gateway.dialects.responses.request import read_request, wants_stream, write_request
from whet.gateway.dialects.responses.stream import EventReader, EventWriter

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


def finishes(event: bytes) -> bool:
    """Whether the event carries the whole response."""
    if not any(name in event for name in _TERMINAL_NAMES):
        return False
    name = _EVENT_NAME.search(event)
    return (_TERMINAL_NAME.fullmatch(name[1]) if name else _TERMINAL_TYPE.search(event)) is not None


def is_last(event: bytes) -> bool:
    """Whether nothing follows: the event that finishes a response is its last."""
    return finishes(event)


def error_body(status: int, message: str) -> bytes:
    """An error as the body of a reply."""
    kind, code = _ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def error_event(message: str) -> bytes:
    """An error inside a stream that has begun."""
    failed = envelope(n.Request("", ()), "resp_failed") | {
        "status": "failed",
        "error": {"code": "server_error", "message": message},
    }
    told = msgspec.json.encode({"type": "response.failed", "sequence_number": 0, "response": failed})
    return b"event: response.failed\ndata: " + told + b"\n\n"
