"""How much a gateway holds in memory: sizes that a body and a reply may have, and what all of them have together."""

import asyncio
import ctypes
import re
from collections.abc import Sequence
from contextlib import suppress

from whet.gateway.buffers.spool import Spool, SpoolRoom
from whet.gateway.buffers.waiting_line import Line

BODY_LIMIT = 32 << 20
"""Bytes of a request, decompressed. Anthropic takes 32 MB, Google 20 MB."""
REPLY_LIMIT = 32 << 20
"""Bytes of a reply in one piece. With a log-probability for each of 100,000 tokens it has about 20 MB."""
ERROR_LIMIT = 1 << 20
"""Bytes of a reply with an error status."""
STREAM_LIMIT = 64 << 20
"""Bytes of a stream. 128,000 tokens, an event each, are about 40 MB."""
EVENT_LIMIT = 16 << 20
"""Bytes of one event of a stream. The last one of a Responses stream holds the whole reply."""
MOST_EVENTS = 1 << 20
"""Events of a stream."""
MOST_MARKS = 1 << 19
"""Commas and opening brackets of a JSON text. Each may become an object in memory, which is some thirty times as large
as it is in the text. A text with so many has about as many tokens, which is more than models read."""
DECODED_LIMIT = 48 << 20
"""Bytes of a JSON text once it is decoded: with one character beyond the first 65,536, all of a text take 4 bytes."""

SPOOLED = 64 << 20
"""Bytes of requests and replies on their way that are in memory, of all sessions."""
SPOOLED_EACH = 1 << 20
BODIES = 96 << 20
"""Bytes of the requests of all calls under way, with one copy of each as it is sent."""
COPIES = 2
LARGE = 1 << 20
"""Of larger requests and replies, one is read or recorded at a time."""
REMEMBERED = 64 << 20
"""Bytes of earlier requests that all sessions keep, so that what continues them is not read whole again."""

_BELOW_FOUR_BYTES = bytes(range(0xF0))
_PAIR = re.compile(rb"\\u[dD][89abAB]")


_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of mallopt(3)."""


def return_large_blocks() -> None:
    """Have this process give memory of large bodies back to the system as soon as it is freed.

    By default glibc keeps up to 32 MB of each such block for later: the same requests then take 559 MB, not 412.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE)


class TooLargeError(Exception):
    """It is larger than allowed."""


def check_decoded_size(text: bytes) -> None:
    """TooLargeError when a JSON text takes too much memory once it is decoded.

    >>> check_decoded_size(b"[" + b"{}," * (1 << 19) + b"{}]")
    Traceback (most recent call last):
    whet.gateway.buffers.memory.TooLargeError
    """
    if len(text) > MOST_MARKS and text.count(b",") + text.count(b"{") + text.count(b"[") > MOST_MARKS:
        raise TooLargeError
    if len(text) * 4 > DECODED_LIMIT:
        escapes = b"\\u" in text
        width = 1 if text.isascii() and not escapes else 2
        if text.translate(None, _BELOW_FOUR_BYTES) or (escapes and _PAIR.search(text)):
            width = 4
        if len(text) * width > DECODED_LIMIT:
            raise TooLargeError


class Hold:
    """Room that is taken until it is released."""

    def __init__(self, rooms: Sequence["Room"], weight: int) -> None:
        self._rooms = rooms
        self._weight = weight

    def release(self) -> None:
        """Give it back. Later times change nothing."""
        for room in self._rooms:
            room.give_back(self._weight)
        self._rooms = ()


class Room:
    """Bytes that may be held at once. Whoever needs more than is left waits; one alone may hold any size."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._held = 0
        self._line = Line()

    async def take(self, weight: int) -> None:
        """Wait for room, and take it."""
        if self._line.empty and self._take(weight):
            return
        await self._line.enter(lambda: self._take(weight), lambda: self._give_back(weight))

    def give_back(self, weight: int) -> None:
        """Others may have it."""
        self._give_back(weight)
        self._line.advance()

    def _take(self, weight: int) -> bool:
        if self._held and self._held + weight > self._total:
            return False
        self._held += weight
        return True

    def _give_back(self, weight: int) -> None:
        self._held -= weight


class MemoryBudget:
    """What is kept of earlier requests, by all sessions."""

    def __init__(self, total: int) -> None:
        self._left = total

    def fits(self, more: int) -> bool:
        """Whether so much more may be kept than before. If not, nothing is counted."""
        if more > self._left:
            return False
        self._left -= more
        return True


class GatewayMemory:
    """What the sessions of one gateway hold."""

    def __init__(self) -> None:
        self.large = asyncio.Lock()
        """Held while a large request or reply is read or recorded."""
        self.remembered = MemoryBudget(REMEMBERED)
        self._spools = SpoolRoom(SPOOLED, SPOOLED_EACH)
        self._bodies = Room(BODIES)

    def spool(self) -> Spool:
        """A new spool."""
        return Spool(self._spools)

    def share(self) -> "MemoryShare":
        """One session's part of the room for bodies."""
        return MemoryShare(self._bodies)


class MemoryShare:
    """One session's part of the room for bodies: half of it, so that a session alone keeps no other one waiting."""

    def __init__(self, bodies: Room) -> None:
        self._rooms = (Room(BODIES // 2), bodies)

    async def hold(self, size: int) -> Hold:
        """Hold a body of this size, once there is room for it."""
        weight, taken = COPIES * size, []
        try:
            for room in self._rooms:
                await room.take(weight)
                taken.append(room)
        except asyncio.CancelledError:
            Hold(taken, weight).release()
            raise
        return Hold(taken, weight)
