"""Gemini's generateContent: routes, errors and the marks that the gateway looks for on the wire. Start here."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import msgspec

from whet.gateway.dialects.gemini import reply
from whet.gateway.dialects.gemini.reply import is_reply, read_reply, usage, write_reply
from whet.gateway.dialects.gemini.request import count_reply, read_request, wants_stream, write_request
from whet.gateway.dialects.gemini.stream import EventReader, EventWriter
from whet.gateway.dialects.gemini.wire import COUNT, STREAM, UNARY, target
from whet.gateway.sse import data_lines

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
    "stream_as_array",
    "upstream_path",
    "usage",
    "wants_stream",
    "write_reply",
    "write_request",
]

NAME = "gemini"
DEFAULT_HEADERS: Mapping[str, str] = MappingProxyType({})

_MAY_FINISH = re.compile(rb'"(?:finishReason|blockReason)"\s*:\s*"')
_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}


class _Count(msgspec.Struct):
    totalTokens: int  # noqa: N815 - Google's name


def owns(path: str) -> bool:
    """Whether a POST to this path asks a model for an answer in this dialect."""
    return _method(path) in {UNARY, STREAM}


def counts_tokens(path: str) -> bool:
    """Whether a POST to this path asks for a count of tokens."""
    return _method(path) == COUNT


def stream_as_array(path: str) -> bool:
    """Whether the stream is to be a JSON array of the documents that would be the events' data."""
    called = target(path)
    return called is not None and called.method == STREAM and not called.as_events


def upstream_path(request_path: str, model: str, stream: bool) -> str:  # noqa: ARG001 - nothing of it is kept
    """Where a provider takes a call for this model.

    >>> upstream_path("", "gemini-x", stream=True)
    '/v1beta/models/gemini-x:streamGenerateContent?alt=sse'
    """
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"{_model_path(model)}:{method}"


def count_path(model: str) -> str:
    """Where a provider counts the tokens of a request."""
    return f"{_model_path(model)}:countTokens"


def is_count(response: bytes) -> bool:
    """Whether the response says how many tokens a request has."""
    try:
        return msgspec.json.decode(response, type=_Count).totalTokens >= 0
    except ValueError:
        return False


def credentials(key: str) -> dict[str, str]:
    """The header that carries the provider's key."""
    return {"x-goog-api-key": key}


def model_card(name: str) -> dict[str, Any]:
    """A model as the list of models shows it."""
    methods = ["generateContent", "streamGenerateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


def model_list(name: str) -> dict[str, Any]:
    """The list of this one model."""
    return {"models": [model_card(name)]}


def finishes(event: bytes) -> bool:
    """Whether the event says why the reply ends."""
    # No text of the model can look like this, for its quotes are escaped; the arguments of a call can. So look twice.
    return (
        b'Reason"' in event
        and _MAY_FINISH.search(event) is not None
        and any(reply.finishes(data) for data in data_lines(event))
    )


def is_last(event: bytes) -> bool:  # noqa: ARG001 - the end of the body is the end
    """False: no event says that it is the last."""
    return False


def error_body(status: int, message: str) -> bytes:
    """An error as the body of a reply."""
    kind = _STATUSES.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    return msgspec.json.encode({"error": {"code": status, "message": message, "status": kind, "details": []}})


def error_event(message: str) -> bytes:
    """An error inside a stream that has begun."""
    return b"data: " + error_body(502, message) + b"\n\n"


def _model_path(model: str) -> str:
    return f"/v1beta/models/{quote(model.removeprefix('models/'), safe='/:')}"


def _method(path: str) -> str | None:
    called = target(path)
    return called.method if called else None
