"""Gemini's other form of a stream: one JSON array, whose elements are sent as they come."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from whet.gateway.dialects import gemini
from whet.gateway.sse import data_lines

if TYPE_CHECKING:
    from whet.gateway.translate import Translation

ARRAY_HEADERS: Mapping[str, str] = MappingProxyType(
    {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
)


class ArrayWriter:
    """Writes events of Gemini's as the elements of an array."""

    def __init__(self) -> None:
        self._begun = False

    def events(self, data: bytes) -> bytes:
        """The elements for these whole events.

        >>> writer = ArrayWriter()
        >>> writer.events(b'data: {"n": 1}\\n\\ndata: {"n": 2}\\n\\n') + writer.end()
        b'[{"n": 1}\\n,{"n": 2}\\n]'
        """
        return b"".join(self.element(document) for document in data_lines(data))

    def element(self, document: bytes) -> bytes:
        """One more element."""
        opening = b"," if self._begun else b"["
        self._begun = True
        return opening + document + b"\n"

    def end(self) -> bytes:
        """What closes the array."""
        return b"]" if self._begun else b"[]"

    def error(self, message: str) -> bytes:
        """An error, after which nothing follows."""
        return self.events(gemini.error_event(message)) + self.end()


class InArray:
    """A crossing whose agent wants the stream as an array. All else is as in the crossing within."""

    translated = True
    streams = True
    stream_headers, keep_alive = ARRAY_HEADERS, b"\n"

    def __init__(self, events: "Translation") -> None:
        self.body, self.path = events.body, events.path
        self._events = events
        self._array = ArrayWriter()
        self._ended = False

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._events.warnings

    def feed(self, event: bytes) -> tuple[bytes, bool]:
        data, ends = self._events.feed(event)
        self._ended = self._ended or ends
        return self._array.events(data), ends

    def finish(self, rest: bytes) -> tuple[bytes, bool]:
        data, ends = self._events.finish(rest)
        self._ended = self._ended or ends
        # A reply that broke off is not closed as if it was complete.
        return self._array.events(data) + (self._array.end() if self._ended else b""), ends

    def whole(self, response: bytes) -> bytes:
        reply = self._events.whole(response)
        # A model that does not stream sends the one document that would have been the only event.
        return (self._array.events(reply) or self._array.element(reply)) + self._array.end()

    def error(self, status: int, response: bytes) -> bytes:
        return self._events.error(status, response)

    def error_event(self, message: str) -> bytes:
        return self._array.error(message)
