"""OpenAI chat completions: routes, errors and the marks that the gateway looks for on the wire. Start here."""

import re
from typing import Any

import msgspec

from whet.gateway.dialects.chat.reply import is_reply, read_reply, usage, write_reply
from whet.gateway.dialects.chat.request import read_request, wants_stream, write_request
from whet.gateway.dialects.chat.stream import EventReader, EventWriter

__all__ = [
    "DEFAULT_HEADERS",
    "NAME",
    "UPSTREAM_PATH",
    "EventReader",
    "EventWriter",
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

NAME = "chat"
UPSTREAM_PATH = "/v1/chat/completions"
DEFAULT_HEADERS: dict[str, str] = {}

# Inside a JSON string every quote and line break is escaped, so no text of the model can look like these.
_LAST = re.compile(rb"(?:^|\n)data:[ ]?\[DONE\]")
_FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"[^"]')

_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "session_closed"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def owns(path: str) -> bool:
    """Whether a POST to this path, taken without its version, is a chat completion."""
    return path == "/chat/completions"


def upstream_path(request_path: str, model: str, stream: bool) -> str:  # noqa: ARG001 - the contract of all dialects
    """Where a model's endpoint takes the calls."""
    return UPSTREAM_PATH


def credentials(key: str) -> dict[str, str]:
    """The header that carries the provider's key."""
    return {"Authorization": f"Bearer {key}"}


def model_card(name: str) -> dict[str, Any]:
    """A model as the list of models shows it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "system"}


def model_list(name: str) -> dict[str, Any]:
    """The list of this one model."""
    return {"object": "list", "data": [model_card(name)]}


def finishes(event: bytes) -> bool:
    """Whether the event carries a finish reason, or ends the stream."""
    # A plain search for the key first: the pattern alone takes longer over the many events without a reason.
    key = event.find(b'"finish_reason"')
    return (key >= 0 and _FINISH_REASON.search(event, key) is not None) or is_last(event)


def is_last(event: bytes) -> bool:
    """Whether the event is [DONE]."""
    return b"[DONE]" in event and _LAST.search(event) is not None


def error_body(status: int, message: str) -> bytes:
    """An error as the body of a reply."""
    kind, code = _ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def error_event(message: str) -> bytes:
    """An error inside a stream that has begun."""
    return b"data: " + error_body(502, message) + b"\n\n"
