"""The load of the gateway benchmark: agents that hold conversations with a server, or take streams from it."""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import cast

from gateway_process import Endpoint, Endpoints
from gateway_wire import DIALECTS, words

LIMIT_SEC = 12.0
"""A server that is too slow for its load is cut off here, and measured by what it did."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SENT = re.compile(rb"@(\d+) ")


@dataclass(frozen=True)
class Case:
    """One kind of load."""

    name: str
    front: str = "chat"
    """The dialect of the agents."""
    behind: str = "chat"
    """The dialect of the model."""
    agents: int = 16
    turns: int = 1
    grows: bool = False
    """Whether each turn sends all turns before it."""
    message_bytes: int = 200
    tools: int = 0
    chunks: int = 0
    """Of a streamed reply; 0 for a reply that comes at once."""
    spread_sec: float = 0.0
    """The time over which the agents begin."""
    rounds: int = 3
    """How often it is measured."""


@dataclass
class Tally:
    """What came of a load."""

    requests: int = 0
    first: list[float] = field(default_factory=list)
    """Seconds from each request to the first piece of its stream."""
    delays: list[float] = field(default_factory=list)
    """Seconds that each piece of a stream was on its way."""
    seconds: float = 0.0
    whole: bool = True


class StatusError(Exception):
    """The server did not answer with 200."""

    def __init__(self, status: int, reply: bytes) -> None:
        super().__init__(f"status {status}: {reply[-500:].decode(errors='replace')}")
        self.status = status


class Connection(asyncio.Protocol):
    """HTTP with as little work as possible, so that the time of the machine goes to the servers."""

    def __init__(self, host: str, secret: str, tally: Tally) -> None:
        self._head = f"Host: {host}\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n".encode()
        self._tally = tally
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def post(self, path: str, body: bytes) -> bytes:
        """Send a request; the body of its reply, with the marks of chunks when it has them."""
        self._received = bytearray()
        self._head_end = 0
        self._length: int | None = None
        self._searched = self._last_sent = 0
        self._done = asyncio.get_running_loop().create_future()
        self._began = time.monotonic_ns()
        head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (path.encode(), self._head, len(body))
        self._transport.writelines([head, body])
        await self._done
        self._tally.requests += 1
        status = int(self._received[9:12])
        if status != 200:
            raise StatusError(status, bytes(self._received))
        return bytes(self._received[self._head_end :])

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._received += data
        if not self._head_end:
            self._read_head()
        for mark in _SENT.finditer(self._received, self._searched):
            self._searched = mark.end()
            self._note(int(mark[1]), now)
        if self._head_end and self._complete() and self._done and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        self._transport.abort()

    def _read_head(self) -> None:
        self._head_end = self._received.find(b"\r\n\r\n") + 4 if b"\r\n\r\n" in self._received else 0
        length = _LENGTH.search(self._received, 0, self._head_end)
        self._length = int(length[1]) if length else None

    def _note(self, sent: int, now: int) -> None:
        # Some dialects repeat the whole text at the end.
        if sent <= self._last_sent:
            return
        if not self._last_sent:
            self._tally.first.append((now - self._began) / 1e9)
        self._last_sent = sent
        self._tally.delays.append((now - sent) / 1e9)

    def _complete(self) -> bool:
        if self._length is None:
            return self._received.endswith(b"\r\n0\r\n\r\n")
        return len(self._received) - self._head_end >= self._length


async def load(case: Case, endpoints: Endpoints) -> Tally:
    """Put a load on a server."""
    tally = Tally()
    slots = endpoints[case.behind]
    began = time.perf_counter()
    agents = [
        asyncio.create_task(_agent(case, slots[number % len(slots)], number / case.agents, tally))
        for number in range(case.agents)
    ]
    done, late = await asyncio.wait(agents, timeout=LIMIT_SEC, return_when=asyncio.FIRST_EXCEPTION)
    tally.seconds = time.perf_counter() - began
    for agent in late:
        agent.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for error in [agent.exception() for agent in done]:
        if error:
            raise error
    tally.whole = not late
    return tally


async def _agent(case: Case, endpoint: Endpoint, place: float, tally: Tally) -> None:
    dialect = DIALECTS[case.front]
    before, after = dialect.request_edges(tools=case.tools, streamed=case.chunks > 0)
    path = dialect.stream_path if case.chunks else dialect.path
    conversation = bytearray(before)
    await asyncio.sleep(place * case.spread_sec)
    url, secret = endpoint
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(host, secret, tally), host, int(port))
    try:
        for _ in range(case.turns):
            text = f"chunks={case.chunks} {words(case.message_bytes)}"
            conversation += json.dumps(dialect.user(text)).encode()
            reply = await connection.post(path, bytes(conversation) + after)
            if case.grows:
                said = dialect.said(json.loads(reply))
                conversation += b"".join(b"," + json.dumps(part).encode() for part in said) + b","
            else:
                conversation = bytearray(before)
    finally:
        connection.close()
