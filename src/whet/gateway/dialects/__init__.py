"""The dialects in which agents and models speak. A dialect is a module of pure functions over bytes."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from whet.exchange import Usage
from whet.gateway.dialects import chat, gemini, messages, responses
from whet.gateway.dialects.neutral import Event, Reply, Request

_VERSION = re.compile(r"^(?:/v1(?:beta|alpha)?)+(?=/|$)")
_OF_GEMINI = re.compile(r"(?:/v1)*(?:/v1(?:beta|alpha)(?=/|$)|/models/[^/]*:[a-zA-Z]+$)")


class EventReader(Protocol):
    """Reads a stream of a model, one whole event at a time."""

    def read(self, event: bytes) -> list[Event]: ...

    def end(self) -> list[Event]:
        """What is due at the end of the stream. ValueError when it was cut."""
        ...


class EventWriter(Protocol):
    """Writes a stream for an agent. Only `End` yields what ends it."""

    def write(self, event: Event) -> bytes: ...


class Dialect(Protocol):
    """What the gateway must know of a dialect to pass it through and to translate it."""

    NAME: str

    @property
    def DEFAULT_HEADERS(self) -> Mapping[str, str]:  # noqa: N802 - a dialect's constant
        """Headers that a model of this dialect expects, unless the agent sends them itself."""
        ...

    def owns(self, path: str) -> bool:
        """Whether a POST to this path, taken without its version, is a call in this dialect."""
        ...

    def upstream_path(self, request_path: str, model: str, stream: bool) -> str:
        """Where a model's endpoint takes such a call."""
        ...

    def credentials(self, key: str) -> dict[str, str]:
        """The headers that carry the provider's key."""
        ...

    def wants_stream(self, body: bytes, path: str) -> bool: ...

    def finishes(self, event: bytes) -> bool:
        """Whether an agent could act on this event as the end of the reply."""
        ...

    def is_last(self, event: bytes) -> bool:
        """Whether nothing follows this event."""
        ...

    def is_reply(self, response: bytes, streamed: bool) -> bool:
        """Whether the response holds at least the beginning of a reply."""
        ...

    def usage(self, response: bytes, streamed: bool) -> Usage | None:
        """The tokens that the response says were used; None when it does not say."""
        ...

    def model_card(self, name: str) -> dict[str, Any]:
        """The description of a model that an agent gets."""
        ...

    def model_list(self, name: str) -> dict[str, Any]:
        """The list of models, when there is only this one."""
        ...

    def error_body(self, status: int, message: str) -> bytes:
        """An error as the body of a reply."""
        ...

    def error_event(self, message: str) -> bytes:
        """An error inside a stream that has begun."""
        ...

    def read_request(self, body: bytes, path: str) -> Request: ...

    def write_request(self, request: Request) -> tuple[bytes, tuple[str, ...]]:
        """A request for a model of this dialect, and what it cannot say."""
        ...

    def read_reply(self, body: bytes) -> Reply: ...

    def write_reply(self, reply: Reply, request: Request) -> bytes: ...

    def EventReader(self) -> EventReader: ...  # noqa: N802 - a dialect's class

    def EventWriter(self, request: Request) -> EventWriter: ...  # noqa: N802


class TokenCounter(Dialect, Protocol):
    """A dialect in which agents can ask how many tokens a request has."""

    def counts_tokens(self, path: str) -> bool:
        """Whether a POST to this path, taken without its version, asks so."""
        ...

    def count_path(self, model: str) -> str:
        """Where a model's endpoint counts tokens."""
        ...

    def count_reply(self, body: bytes) -> bytes:
        """The answer, estimated by length. ValueError when the request cannot be read."""
        ...

    def is_count(self, response: bytes) -> bool:
        """Whether this is an answer."""
        ...


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {dialect.NAME: dialect for dialect in (chat, responses, messages, gemini)}
)
TOKEN_COUNTERS: tuple[TokenCounter, ...] = (messages, gemini)


def without_version(path: str) -> str:
    """A path without the version in front of it, however often it stands there.

    >>> without_version("/v1/v1/messages"), without_version("/v1beta/models")
    ('/messages', '/models')
    """
    return _VERSION.sub("", path) or "/"


def by_route(path: str) -> Dialect | None:
    """The dialect of a call to this path, taken without its version.

    >>> by_route("/chat/completions").NAME
    'chat'
    """
    return next((dialect for dialect in DIALECTS.values() if dialect.owns(path)), None)


def likely_dialect(path: str, headers: Mapping[str, str]) -> Dialect:
    """Which dialect a caller reads that asks for something that all dialects serve, or none.

    >>> likely_dialect("/v1beta/models", {}).NAME, likely_dialect("/v1/models", {"anthropic-version": "1"}).NAME
    ('gemini', 'messages')
    """
    route = without_version(path)
    if "anthropic-version" in headers or route.startswith("/messages"):
        return DIALECTS["messages"]
    if "x-goog-api-key" in headers or _OF_GEMINI.match(path):
        return DIALECTS["gemini"]
    return DIALECTS["responses" if route.startswith("/responses") else "chat"]


def token_counter(path: str) -> TokenCounter | None:
    """The dialect in which a POST to this path, taken without its version, asks for a count of tokens."""
    return next((dialect for dialect in TOKEN_COUNTERS if dialect.counts_tokens(path)), None)
