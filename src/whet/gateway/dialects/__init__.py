"""The dialects in which agents and models speak. A dialect is a module of pure functions over recorded bytes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from whet.exchange import Usage
from whet.gateway.dialects import chat


class Dialect(Protocol):
    """What the gateway must know of a dialect to pass it through."""

    NAME: str
    UPSTREAM_PATH: str
    """Where a model's endpoint takes the calls."""

    def owns(self, path: str) -> bool:
        """Whether a POST to this path, taken without its version, is a call in this dialect."""
        ...

    def credentials(self, key: str) -> dict[str, str]:
        """The headers that carry the provider's key."""
        ...

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

    def error_body(self, status: int, message: str) -> bytes:
        """An error as the body of a reply."""
        ...

    def error_event(self, message: str) -> bytes:
        """An error inside a stream that has begun."""
        ...


DIALECTS: Mapping[str, Dialect] = MappingProxyType({chat.NAME: chat})


def by_route(path: str) -> Dialect | None:
    """The dialect of a call to this path, taken without its version.

    >>> by_route("/chat/completions").NAME
    'chat'
    """
    return next((dialect for dialect in DIALECTS.values() if dialect.owns(path)), None)
