"""Stdio: one client, which started this process and talks to it over its standard input and output.

The tools are listed before the service is open, because clients do not wait long for a server that they start.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, cast

from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from whet.serve.mcp.server import Context, make_server

if TYPE_CHECKING:
    from whet.serve.access import Caller
    from whet.serve.mcp.served import Served

MOST_LINE_BYTES = 8 << 20
"""The longest message. A longer one is answered as one that cannot be read."""
MOST_WAITING = 64
"""Messages that are read before those before them are taken."""
TOO_LONG = "[the message is too long]"
_CHUNK = 1 << 16

OpenServed = Callable[[], AbstractAsyncContextManager["Served"]]
"""Opens the service."""


async def serve_stdio(prepare: Callable[[], OpenServed]) -> None:
    """Serve until the client closes its end. `prepare` does what takes long before a service can be opened, in a
    thread; UserError when it, or the service, fails."""
    found: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def keep_open() -> None:
        open_served = await asyncio.to_thread(prepare)
        async with open_served() as opened:
            found.set_result(opened)
            await over.wait()

    async def served() -> "Served":
        return await asyncio.shield(found)

    with _take_streams() as (stdin, stdout):
        keeping = asyncio.create_task(keep_open())
        serving = asyncio.create_task(_talk(make_server(served, _caller), stdin, stdout))
        try:
            await asyncio.wait({keeping, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.set()
            serving.cancel()
            await _finish({keeping, serving})
    for task in (keeping, serving):
        if not task.cancelled():
            task.result()


async def _finish(tasks: "set[asyncio.Task[None]]") -> None:
    """Wait for tasks, also when a signal cancels the wait: clients close the input and send a signal soon after."""
    while not all(task.done() for task in tasks):
        with suppress(asyncio.CancelledError):
            await asyncio.wait(tasks)


def _caller(_: Context) -> "Caller":
    from whet.serve.access import LOCAL

    return LOCAL


async def _talk(server: Server[Any], stdin: int, stdout: int) -> None:
    # The SDK only iterates over the one, and writes to the other.
    lines, output = cast("Any", _Lines(stdin)), cast("Any", _Output(stdout))
    async with stdio_server(lines, output) as (read, write):
        await server.run(read, write, server.create_initialization_options())


@contextmanager
def _take_streams() -> Iterator[tuple[int, int]]:
    """The standard input and output, for the protocol alone: whatever else prints goes to the standard error."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        yield stdin, stdout
    finally:
        # The copy of the input stays open: a thread may be reading it.
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


class _Lines:
    """The lines of an input. A thread reads them that does not keep the process alive, as a read cannot be ended."""

    def __init__(self, source: int) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(MOST_WAITING)
        reader = (source, asyncio.get_running_loop())
        threading.Thread(target=self._read, args=reader, name="whet-stdin", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        self._room.release()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self, source: int, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            for line in chain(_split(source), [None]):
                self._room.acquire()
                loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _split(source: int) -> Iterator[str]:
    """The lines of a file descriptor. Of a line that is too long, only as much as cannot be read as a message."""
    line = bytearray()
    while chunk := os.read(source, _CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield (line + end).decode(errors="replace") if len(line) <= MOST_LINE_BYTES else TOO_LONG
            line.clear()
        if len(line) <= MOST_LINE_BYTES:
            line += rest


class _Output:
    """Where answers are written. When the client is gone, they are dropped."""

    def __init__(self, target: int) -> None:
        self._target = target

    async def write(self, text: str) -> None:
        with suppress(BrokenPipeError):
            await asyncio.to_thread(self._write, text.encode())

    async def flush(self) -> None:
        """Nothing is kept back."""

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._target, data) :]
