"""HTTP out: sends a call to its model, again while nothing was received, and reads the reply within time limits."""

import asyncio
import io
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp

from whet.exchange import CallError, Headers, is_event_stream

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may be different the next time."""
RETRY_AFTER_LIMIT_SEC = 60.0
END_SEC = 1.0
"""How long to wait for the end of a body whose last event is there."""


@dataclass(frozen=True, slots=True)
class Model:
    """An upstream endpoint.

    >>> Model(name="small", url="http://127.0.0.1:8000/v1", upstream_name="qwen", key=None).address("/v1/models")
    'http://127.0.0.1:8000/v1/models'
    """

    name: str
    """What the user calls it."""
    url: str
    """Root address; a /v1 at its end is tolerated."""
    upstream_name: str
    """The model's name as the endpoint knows it, and as agents are told it."""
    key: str | None = field(repr=False)
    """The provider's key. It is neither recorded nor shown to an agent."""
    dialect: str = "chat"
    concurrency: int = 64
    """Calls under way at once."""
    attempts: int = 4
    """How often a call is sent before its failure is passed on."""
    backoff_sec: float = 0.5
    """Mean wait before the second attempt; it doubles with every further one."""
    connect_sec: float = 30
    first_byte_sec: float = 300
    idle_sec: float = 120
    """Longest silence inside a reply."""
    price_input: float | None = None
    """Dollars per million tokens; None when unknown."""
    price_output: float | None = None

    def address(self, path: str) -> str:
        """The address of a path that begins with its version."""
        return self.url.rstrip("/").removesuffix("/v1") + path


class UpstreamError(Exception):
    """The call got no reply, or not the whole of it."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.value)
        self.error = error


@dataclass(slots=True)
class Received:
    """What has come back so far. It lives outside the sending, so that a stopped call keeps what it got."""

    attempts: int = 0
    status: int | None = None
    headers: Headers = ()
    chunks: list[bytes] = field(default_factory=list)
    first_byte: float | None = None

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def failed(self) -> bool:
        return self.status is not None and not self.succeeded

    @property
    def streamed(self) -> bool:
        return self.succeeded and is_event_stream(self.headers)


class Incoming:
    """The body of a reply on its way in."""

    def __init__(self, content: aiohttp.StreamReader, model: Model, received: Received) -> None:
        self._content = content
        self._received = received
        self._idle_sec = model.idle_sec
        self._patience_sec = model.first_byte_sec

    async def read(self) -> bytes:
        """The next bytes as they come; empty at the end."""
        try:
            async with asyncio.timeout(self._patience_sec):
                chunk = await self._content.readany()
        except aiohttp.ClientError as error:
            raise UpstreamError(CallError.CUT) from error
        except TimeoutError as error:
            raise UpstreamError(CallError.TIMEOUT) from error
        if chunk:
            if self._received.first_byte is None:
                self._received.first_byte = time.time()
                self._patience_sec = self._idle_sec
            self._received.chunks.append(chunk)
        return chunk

    def expect_end(self) -> None:
        """Nothing more is expected; a server that forgets to end the body must not delay the reply."""
        self._patience_sec = min(self._idle_sec, END_SEC)


class Upstream:
    """The connections to all models, shared by all sessions."""

    def __init__(self) -> None:
        # Cookies would tie sessions together; the number of connections is limited per model instead.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
        )
        self._slots: dict[Model, asyncio.Semaphore] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    @asynccontextmanager
    async def send(
        self, model: Model, path: str, headers: Mapping[str, str], body: bytes, received: Received
    ) -> AsyncIterator[Incoming]:
        """Send a call, again if need be; inside the block its body is read. UpstreamError when there is no reply."""
        async with self._slots.setdefault(model, asyncio.Semaphore(model.concurrency)):
            response = await self._first_answer(model, path, headers, body, received)
            try:
                received.status = response.status
                received.headers = tuple(response.headers.items())
                yield Incoming(response.content, model, received)
            finally:
                response.close()

    async def _first_answer(
        self, model: Model, path: str, headers: Mapping[str, str], body: bytes, received: Received
    ) -> aiohttp.ClientResponse:
        while True:
            received.attempts += 1
            last = received.attempts >= model.attempts
            retry_after = None
            try:
                response = await self._post(model, path, headers, body)
            except UpstreamError as failure:
                if last or failure.error is not CallError.REFUSED:
                    raise
            else:
                if last or response.status not in RETRIED:
                    return response
                retry_after = response.headers.get("Retry-After")
                response.close()
            jitter = random.random()  # noqa: S311 - spreads retries, protects nothing
            await asyncio.sleep(retry_delay(received.attempts, model.backoff_sec, retry_after, jitter))

    async def _post(self, model: Model, path: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(model.connect_sec + model.first_byte_sec):
                return await self._http.post(
                    model.address(path),
                    data=io.BytesIO(body),
                    headers={**headers, "Accept-Encoding": "identity"},
                    skip_auto_headers=["User-Agent"],
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, connect=model.connect_sec),
                )
        except aiohttp.ClientResponseError as error:
            raise UpstreamError(CallError.MALFORMED) from error
        except aiohttp.ClientError as error:
            raise UpstreamError(CallError.REFUSED) from error
        except TimeoutError as error:
            raise UpstreamError(CallError.TIMEOUT) from error


def retry_delay(attempts: int, backoff_sec: float, retry_after: str | None, jitter: float) -> float:
    """Seconds to wait after this many attempts; `jitter` is a number in [0, 1).

    >>> retry_delay(3, 0.5, None, jitter=0.5), retry_delay(1, 0.5, "7", jitter=0.5)
    (2.0, 7.0)
    """
    backoff: float = backoff_sec * 2 ** (attempts - 1) * (0.5 + jitter)
    return max(backoff, min(_seconds(retry_after), RETRY_AFTER_LIMIT_SEC))


def _seconds(retry_after: str | None) -> float:
    """What a Retry-After header asks for: a number of seconds, or a date. 0 when it cannot be read."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isascii() and retry_after.strip().replace(".", "", 1).isdigit():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    return (date.astimezone(UTC) - datetime.now(UTC)).total_seconds()
