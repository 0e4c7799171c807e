"""Anthropic Messages: routes, errors and the marks that the gateway looks for on the wire. Start here."""

import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from whet.gateway.dialects.messages.reply import is_reply, read_reply, usage, write_reply
from whet.gateway.dialects.messages.request import count_reply, read_request, wants_stream, write_request
from whet.gateway.dialects.messages.stream import EventReader, EventWriter
from whet.gateway.dialects.messages.wire import dump

__all__ = [
    "DEFAULT_HEADERS",
    "NAME",
    "EventReader",
    "EventWriter",
    "count_path",
    "count_reply",
    "counts_tokens",
    "credentials",
    "error_body",
    "error_event",
    "finishes",
    "is_count",
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

NAME = "messages"
DEFAULT_HEADERS = {"anthropic-version": "2023-06-01"}
"""What an endpoint demands of every call, when the agent did not say it."""

# The name of an event has a line of its own. A model's text has none: its line breaks are escaped. The type inside
# the data proves nothing, because the input of a tool is the model's own JSON and may hold any key.
_LAST = re.compile(rb"(?:^|\n)event:[ ]?message_stop\b")
_FINISHES = re.compile(_LAST.pattern + rb'|(?:^|\n)event:[ ]?message_delta\b.*"stop_reason"\s*:\s*"', re.DOTALL)

_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Count(msgspec.Struct):
    input_tokens: int


def owns(path: str) -> bool:
    """Whether a POST to this path, taken without its version, is a call in this dialect."""
    return path == "/messages"


def counts_tokens(path: str) -> bool:
    """Whether a POST to this path, taken without its version, asks how many tokens a request has."""
    return path == "/messages/count_tokens"


def upstream_path(request_path: str, model: str, stream: bool) -> str:  # noqa: ARG001 - the body says both
    """Where an endpoint takes the call.

    >>> upstream_path("/v1/messages?beta=true", "m", stream=True)
    '/v1/messages?beta=true'
    """
    beta = ("beta", "true") in parse_qsl(urlsplit(request_path).query)
    return "/v1/messages?beta=true" if beta else "/v1/messages"


def count_path(model: str) -> str:  # noqa: ARG001 - the body says it
    """Where an endpoint counts the tokens of a request."""
    return "/v1/messages/count_tokens"


def is_count(response: bytes) -> bool:
    """Whether the response says how many tokens a request has."""
    try:
        return msgspec.json.decode(response, type=_Count).input_tokens >= 0
    except ValueError:
        return False


def credentials(key: str) -> dict[str, str]:
    """The header that carries the provider's key."""
    return {"x-api-key": key}


def model_card(name: str) -> dict[str, Any]:
    """A model as the list of models shows it."""
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def model_list(name: str) -> dict[str, Any]:
    """The list of this one model."""
    return {"data": [model_card(name)], "has_more": False, "first_id": name, "last_id": name}


def finishes(event: bytes) -> bool:
    """Whether the event says why the model stopped, or ends the stream."""
    return (b"message_stop" in event or b"message_delta" in event) and _FINISHES.search(event) is not None


def is_last(event: bytes) -> bool:
    """Whether the event is message_stop."""
    return b"message_stop" in event and _LAST.search(event) is not None


def error_body(status: int, message: str) -> bytes:
    """An error as the body of a reply."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return dump({"type": "error", "error": {"type": kind, "message": message}, "request_id": None})


def error_event(message: str) -> bytes:
    """An error inside a stream that has begun."""
    return b"event: error\ndata: " + error_body(502, message) + b"\n\n"
