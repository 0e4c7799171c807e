"""The reply to an agent: a call writes it as it becomes known, and the agent's connection gets it at once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from whet.gateway.buffers.spool import PIECE, Spool


@dataclass(slots=True, eq=False)
class ReplyHead:
    """The beginning of a reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None = None
    """The whole body; None when it follows in pieces."""


class ReplyConnection(Protocol):
    """An agent's connection, for one reply. What is sent on a lost connection is dropped."""

    @property
    def ready(self) -> bool:
        """Whether it takes more now. If not, it calls `ReplyBuffer.resume` later."""
        ...

    def start(self, head: ReplyHead) -> None: ...

    def send(self, data: bytes) -> None: ...

    def finish(self, *, broken: bool) -> None: ...

    async def flush(self) -> bool:
        """Return when the agent has taken most of the reply; whether nothing was dropped."""
        ...


class ReplyBuffer:
    """One reply to an agent. It grows at its end only, so an agent that asks again gets it from the beginning."""

    def __init__(self, body: Spool) -> None:
        """`body` is empty, and holds what follows the head."""
        self.body = body
        self.ended = False
        self.broken = False
        """It ended before the reply was complete; the connection must not look as if it was."""
        self._head: ReplyHead | None = None
        self._connection: ReplyConnection | None = None
        """One at a time: an agent that asks again has given up its earlier request."""
        self._sent = 0
        """Bytes of the body that were given to the connection."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def begun(self) -> bool:
        return self._head is not None

    def begin(self, head: ReplyHead) -> None:
        """Send the head. A head with a body is the whole reply."""
        self._head = head
        if self._connection is not None:
            self._connection.start(head)
        if head.body is not None:
            self.end()

    def put(self, chunk: bytes) -> None:
        """Add to the body."""
        if not chunk:
            return
        self.body.write(chunk)
        connection = self._connection
        if connection is not None and connection.ready and self._sent + len(chunk) == self.body.size:
            connection.send(chunk)
            self._sent += len(chunk)

    def end(self, *, broken: bool = False) -> None:
        """Nothing follows."""
        self.ended, self.broken = True, broken
        self.resume()

    def attach(self, connection: ReplyConnection | None) -> None:
        """Send to this connection from now on, from the beginning of the reply; None for to none."""
        self._connection, self._sent = connection, 0
        self._wake()
        if connection is not None and self._head is not None:
            connection.start(self._head)
            self.resume()

    def resume(self) -> None:
        """Send what the connection has not got yet, as far as it takes it."""
        connection = self._connection
        if connection is None:
            return
        while self._sent < self.body.size:
            if not connection.ready:
                return
            piece = self.body.read(self._sent, PIECE)
            connection.send(piece)
            self._sent += len(piece)
        if self.ended:
            connection.finish(broken=self.broken)
            self._connection = None
            self._wake()

    async def wait_until_sent(self, connection: ReplyConnection) -> None:
        """Return when this connection was given the whole reply, or is no longer attached."""
        while self._connection is connection:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
