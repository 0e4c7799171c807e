"""What goes to the agent for one call: written by the call as it becomes known, followed by the agent's connection."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from whet.gateway.buffers.spool import PIECE, Spool


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None = None
    """The whole body; None when it follows in chunks."""


class ReplyBuffer:
    """One reply to an agent. It grows at its end only, so that it can be followed from any point."""

    def __init__(self, body: Spool) -> None:
        """`body` is empty, and holds what follows the head."""
        self._head: Head | None = None
        self.body = body
        self._waiter: asyncio.Future[None] | None = None
        """One at a time follows: an agent that asks again has given up its earlier request."""
        self.ended = False
        self.broken = False
        """It ended before the reply was complete; the connection must not look as if it was."""

    @property
    def begun(self) -> bool:
        return self._head is not None

    def begin(self, head: Head) -> None:
        """Say how the reply begins. A head with a body is all of it."""
        self._head = head
        self.ended = head.body is not None
        self._wake()

    def put(self, chunk: bytes) -> None:
        """Add to the body."""
        if chunk:
            self.body.write(chunk)
            self._wake()

    def end(self, *, broken: bool = False) -> None:
        """Nothing follows."""
        self.ended, self.broken = True, broken
        self._wake()

    async def head(self) -> Head:
        """The beginning, when it is known."""
        while self._head is None:
            await self._change()
        return self._head

    async def after(self, start: int) -> bytes:
        """The next bytes of the body from here on, as soon as there are any; empty at the end."""
        while self.body.size == start and not self.ended:
            await self._change()
        return self.body.read(start, PIECE)

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
