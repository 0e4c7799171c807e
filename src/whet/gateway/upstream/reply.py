"""A model's reply while it is received: its head, its body as it comes, and the silences that end the wait for it."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.client_proto import ResponseHandler

from whet.exchange import CallError, Headers, is_event_stream
from whet.gateway.buffers.decompress import Decoder, decoder
from whet.gateway.buffers.memory import ERROR_LIMIT, REPLY_LIMIT, STREAM_LIMIT
from whet.gateway.buffers.spool import Spool
from whet.gateway.model import Model
from whet.gateway.upstream.parameter_fixes import Repair
from whet.gateway.upstream.pool import PoolEndpoint

END_SEC = 1.0
"""How long to wait for the end of a body after its last event."""
FIRST_BYTE_SEC = 600.0
"""How long to wait for the first byte of a stream, where the model does not say."""
LONGEST_REPLY_SEC = 3600.0
"""How long a reply may take that is never silent for long."""
MOST_ARRIVALS = 1 << 16
"""Pieces of a reply whose times are kept."""


class UpstreamError(Exception):
    """There is no reply, or not the whole of it."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.value)
        self.error = error


@dataclass(slots=True, eq=False)
class ReceivedReply:
    """What has been received so far. It outlives the sending, so that a stopped call keeps what it got."""

    body: Spool
    """Decompressed."""
    attempts: int = 0
    unanswered: int = 0
    """Attempts that timed out: the model may have worked on them."""
    upstream: str = ""
    """The address that answered, or that was tried last."""
    token: str = field(default="", repr=False)
    """A token that the call was sent with. Like a key, it must not be recorded."""
    status: int | None = None
    headers: Headers = ()
    streamed: bool = False
    """The status is good, and the body is server-sent events."""
    first_byte: float | None = None
    began: float = field(default_factory=time.monotonic)
    repair: Repair | None = None
    """The request as it is sent, with fixes for what the endpoint refuses; None before it is sent."""
    # Two flat lists: the garbage collector would have to visit a pair for each of 100,000 pieces.
    _times: list[float] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _limit: int = ERROR_LIMIT

    @property
    def arrivals(self) -> tuple[tuple[float, int], ...]:
        """For each piece of the reply: seconds since the call began, and bytes received by then."""
        return tuple((round(at, 6), size) for at, size in zip(self._times, self._sizes, strict=True))

    def begin(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        self.streamed = self.succeeded and is_event_stream(headers)
        if self.succeeded:
            self._limit = STREAM_LIMIT if self.streamed else REPLY_LIMIT
        else:
            self._limit = ERROR_LIMIT

    def forget(self) -> None:
        """Drop what was received: another reply is the one that counts."""
        self.status, self.headers, self.first_byte = None, (), None
        self.streamed = False
        self.body.close()
        self._times, self._sizes = [], []

    def take(self, chunk: bytes) -> None:
        """Keep a piece of the reply. UpstreamError when it is too large; then as much is kept as is allowed."""
        over = self.body.size + len(chunk) - self._limit
        self.body.write(chunk if over <= 0 else chunk[:-over])
        if len(self._times) >= MOST_ARRIVALS:
            self._times.pop()  # the last entry stands for all further pieces
            self._sizes.pop()
        self._times.append(time.monotonic() - self.began)
        self._sizes.append(self.body.size)
        if over > 0:
            raise UpstreamError(CallError.TOO_LARGE)

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def failed(self) -> bool:
        return self.status is not None and not self.succeeded


class IncomingReply:
    """A reply on its way in. One timer watches all its silences. To be closed by whoever reads it."""

    def __init__(
        self, connection: aiohttp.connector.Connection, model: Model, received: ReceivedReply, *, in_one_piece: bool
    ) -> None:
        assert connection.protocol is not None
        self._connection: aiohttp.connector.Connection | None = connection
        self._protocol: ResponseHandler = connection.protocol
        self._content: aiohttp.StreamReader | None = None
        self._endpoint: PoolEndpoint | None = None
        self._writing: asyncio.Task[None] | None = None
        self._received = received
        self._encodings: list[str] = []
        self._decoder: Decoder | None = None
        self._decoded: Iterator[bytes] = iter(())
        self._complete = False
        self._idle_sec = model.idle_sec
        self._waits_since = time.monotonic()
        self._ends_at = self._waits_since + LONGEST_REPLY_SEC
        # A reply in one piece begins when the model has written all of it.
        usual_sec = LONGEST_REPLY_SEC if in_one_piece else FIRST_BYTE_SEC
        self._longest_wait_sec = usual_sec if model.first_byte_sec is None else model.first_byte_sec
        self._loop = asyncio.get_running_loop()
        # Never later than the shortest silence that matters, so it need not be set again when the reply begins.
        first_look = min(self._longest_wait_sec, model.idle_sec)
        self._timer = self._loop.call_later(first_look, self._check_silence)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An answer that begins well and breaks off is a failure of the endpoint too.
        if isinstance(error, UpstreamError) and self._endpoint is not None:
            self._endpoint.fail()
        self.close()

    async def read_head(self) -> None:
        """Wait for status and headers."""
        while True:
            message, content = await self._protocol.read()
            if message.code >= 200 or message.code == 101:
                break
        self._content = content
        self._waits_since = time.monotonic()
        content.on_eof(self._release)
        self._received.begin(message.code, tuple(message.headers.items()))
        self._encodings = message.headers.getall("Content-Encoding", [])

    def accept_from(self, endpoint: PoolEndpoint) -> None:
        """This reply counts: when it is closed, release the endpoint's slot."""
        self._endpoint = endpoint

    def read_encoding(self) -> None:
        """UpstreamError when the body cannot be decompressed."""
        if self._encodings:
            try:
                self._decoder = decoder(", ".join(self._encodings))
            except ValueError as error:
                raise UpstreamError(CallError.MALFORMED) from error

    def write_meanwhile(self, writing: asyncio.Task[None]) -> None:
        """The request is still being written: stop that when the reply is closed."""
        self._writing = writing

    async def read(self) -> bytes:
        """The next bytes as they come, decompressed; empty at the end. UpstreamError when the reply breaks off."""
        chunk = await (self._next() if self._decoder is None else self._next_decoded(self._decoder))
        if chunk:
            if self._received.first_byte is None:
                self._received.first_byte = time.time()
                self._longest_wait_sec = self._idle_sec
            self._received.take(chunk)
        return chunk

    async def _next_decoded(self, decoder: Decoder) -> bytes:
        while True:
            try:
                piece = next(self._decoded, b"")
            except ValueError as error:
                raise UpstreamError(CallError.MALFORMED) from error
            if piece:
                await asyncio.sleep(0)  # a few bytes can become many, and others must not wait for that
                return piece
            raw = await self._next()
            if not raw:
                if not decoder.complete and not self._complete:
                    raise UpstreamError(CallError.CUT)
                return b""
            self._decoded = decoder.feed(raw)

    async def _next(self) -> bytes:
        assert self._content is not None
        self._waits_since = time.monotonic()
        try:
            chunk = await self._content.readany()
        except (aiohttp.ClientError, TimeoutError) as error:
            if self._complete:
                return b""
            raise UpstreamError(CallError.TIMEOUT if isinstance(error, TimeoutError) else CallError.CUT) from error
        if self._waits_since > self._ends_at:
            raise UpstreamError(CallError.TIMEOUT)
        return chunk

    def expect_end(self) -> None:
        """Wait only shortly from now on: a server that forgets to end the body must not delay the reply."""
        self._complete = True
        if self._connection is not None:
            self._timer.cancel()
            self._longest_wait_sec = min(self._idle_sec, END_SEC)
            self._timer = self._loop.call_later(self._longest_wait_sec, self._check_silence)

    def close(self) -> None:
        """Stop reading. A connection on which more may come is closed."""
        self._timer.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._endpoint is not None:
            self._endpoint.slots.release()
            self._endpoint = None

    def _release(self) -> None:
        """The body is complete: other calls may use the connection, unless the request is still being written."""
        if self._connection is None:
            return
        if self._writing is not None and not self._writing.done():
            self._connection.close()
        else:
            self._connection.release()
        self._connection = None

    def _check_silence(self) -> None:
        """End the wait for bytes if it lasts too long. One timer for all waits: most end soon, and need none."""
        left_sec = self._waits_since + self._longest_wait_sec - time.monotonic()
        if left_sec > 0:
            self._timer = self._loop.call_later(left_sec, self._check_silence)
        elif self._content is not None:
            self._content.set_exception(TimeoutError())
        else:
            self._protocol.set_exception(TimeoutError())
