"""Gemini's other form of a stream: one JSON array, whose elements are sent as they come."""

from collections.abc import Mapping
from types import MappingProxyType

from whet.gateway.dialects import gemini
from whet.gateway.sse import data_lines

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
