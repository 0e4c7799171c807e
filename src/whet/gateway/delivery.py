"""What goes to the agent for one call: written by the call as it becomes known, followed by the agent's connection."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None = None
    """The whole body; None when it follows in chunks."""


class Delivery:
    """One reply to an agent. It grows at its end only, so that it can be followed from any point."""

    def __init__(self) -> None:
        self._head: Head | None = None
        self.chunks: list[bytes] = []
        self._changed = asyncio.Event()
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
        self._changed.set()

    def put(self, chunk: bytes) -> None:
        """Add to the body."""
        if chunk:
            self.chunks.append(chunk)
            self._changed.set()

    def end(self, *, broken: bool = False) -> None:
        """Nothing follows."""
        self.ended, self.broken = True, broken
        self._changed.set()

    async def head(self) -> Head:
        """The beginning, when it is known."""
        while self._head is None:
            await self._change()
        return self._head

    async def after(self, count: int) -> list[bytes]:
        """The chunks after the first `count`, as soon as there are any; empty at the end."""
        while len(self.chunks) == count and not self.ended:
            await self._change()
        return self.chunks[count:]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
