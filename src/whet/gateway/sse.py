"""Server-sent events as bytes: cutting a stream into whole events, and reading the data out of recorded ones."""

import re
from collections.abc import Iterator
from io import BytesIO

from whet.gateway.buffers.spool import Spool

_EVENT_END = re.compile(rb"\n\r?\n")
_LONGEST_END = 3
_LONG = 64 << 10
_FIELD = b"data:"


class EventFramer:
    """Cuts chunks, however they are split, into whole events. Every byte is searched once.

    >>> framer = EventFramer()
    >>> framer.feed(b"data: a\\n\\nda"), framer.feed(b"ta: b\\n\\n")
    ([b'data: a\\n\\n'], [b'data: b\\n\\n'])
    """

    def __init__(self, spool: Spool | None = None) -> None:
        """A long event is kept in the spool, if there is one, until it is whole."""
        self._pending = bytearray()
        self._spool = spool
        self._begun = 0
        """Where the event that is not yet whole begins in the spool."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are whole now."""
        if not self._pending and _is_one_event(chunk):
            return [chunk]
        search_from = max(0, len(self._pending) - _LONGEST_END + 1)
        self._pending += chunk
        events, start = [], 0
        while end := _EVENT_END.search(self._pending, max(start, search_from)):
            events.append(self._from_spool() + bytes(self._pending[start : end.end()]))
            start = end.end()
        del self._pending[:start]
        if self._spool is not None and len(self._pending) > _LONG:
            self._spool.write(bytes(self._pending[: 1 - _LONGEST_END]))
            del self._pending[: 1 - _LONGEST_END]
        return events

    @property
    def pending(self) -> int:
        """How long the event is that is not yet whole."""
        return len(self._pending) + (self._spool.size - self._begun if self._spool is not None else 0)

    def rest(self) -> bytes:
        """What came after the last whole event."""
        return self._from_spool() + bytes(self._pending)

    def _from_spool(self) -> bytes:
        if self._spool is None or self._spool.size == self._begun:
            return b""
        begun, self._begun = self._begun, self._spool.size
        return self._spool.read(begun)


def _is_one_event(chunk: bytes) -> bool:
    """Whether a chunk is one whole event and no more, as most chunks are."""
    return chunk.find(b"\n\n") == len(chunk) - 2 >= 0 and b"\r" not in chunk


def data_lines(body: bytes) -> Iterator[bytes]:
    """The data of each event, first to last. Model servers send one line of data per event.

    >>> list(data_lines(b"event: delta\\ndata: a\\n\\ndata:b\\r\\n\\r\\n"))
    [b'a', b'b']
    """
    return (_data(line) for line in BytesIO(body) if line.startswith(_FIELD))


def data_lines_from_end(body: bytes, containing: bytes) -> Iterator[bytes]:
    """The data lines with this text in them, last to first, without looking at what comes before a hit."""
    end = len(body)
    while (hit := body.rfind(containing, 0, end)) >= 0:
        start = body.rfind(b"\n", 0, hit) + 1
        if body.startswith(_FIELD, start):
            line_end = body.find(b"\n", hit)
            yield _data(body[start:] if line_end < 0 else body[start:line_end])
        end = start


def _data(line: bytes) -> bytes:
    return line[len(_FIELD) :].removeprefix(b" ").rstrip(b"\n").partition(b"\r")[0]
