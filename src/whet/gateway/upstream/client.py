"""HTTP out: sends a call to an endpoint of its model, to another when that one fails, and reads the reply in time."""

import asyncio
import importlib
import io
import itertools
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from multidict import CIMultiDict

from whet.errors import UserError
from whet.exchange import CallError, Headers, is_event_stream
from whet.gateway.buffers.decompress import Decoder, decoder
from whet.gateway.buffers.memory import ERROR_LIMIT, REPLY_LIMIT, STREAM_LIMIT
from whet.gateway.buffers.spool import Spool
from whet.gateway.model import Model, address_at
from whet.gateway.upstream.parameter_fixes import Fix, Repair
from whet.ids import digest

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may be different the next time, or at another endpoint."""
RETRY_AFTER_LIMIT_SEC = 60.0
END_SEC = 1.0
"""How long to wait for the end of a body whose last event is there."""
LONGEST_REPLY_SEC = 3600.0
"""How long a reply may take that never is silent for long."""
MOST_ARRIVALS = 1 << 16
"""Pieces of a reply whose times are kept."""
ONE_WRITE = 1 << 20
"""Bytes that are given to a connection at once."""
FIRST_REST_SEC = 1.0
LONGEST_REST_SEC = 30.0
OWN_CREDENTIALS = frozenset({"authorization", "x-api-key", "x-goog-api-key"})
AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
AZURE_MARGIN_SEC = 300.0
"""How long before its end a token is replaced."""
AZURE_LOGIN_SEC = 60.0


class UpstreamError(Exception):
    """The call got no reply, or not the whole of it."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.value)
        self.error = error


@dataclass(slots=True)
class Received:
    """What has come back so far. It lives outside the sending, so that a stopped call keeps what it got."""

    body: Spool
    """Of the reply, decompressed."""
    attempts: int = 0
    unanswered: int = 0
    """Attempts that a model may have worked on without anybody learning of it."""
    upstream: str = ""
    """The address that answered, or that was tried last."""
    token: str = field(default="", repr=False)
    """A token that the call was sent with. Like a key, it must not be recorded."""
    status: int | None = None
    headers: Headers = ()
    streamed: bool = False
    """The reply is good, and comes as server-sent events."""
    first_byte: float | None = None
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the call began, and bytes received by then, for each piece of the reply that answered."""
    began: float = field(default_factory=time.monotonic)
    repair: Repair | None = None
    """What was changed in the request because the endpoint refuses it; None before it is sent."""

    def begin(self, status: int, headers: Headers) -> None:
        """A reply begins so."""
        self.status, self.headers = status, headers
        self.streamed = self.succeeded and is_event_stream(headers)

    def forget(self) -> None:
        """The reply that has come so far is not the one that counts."""
        self.status, self.headers, self.first_byte = None, (), None
        self.body.close()
        self.arrivals = []

    def take(self, chunk: bytes) -> None:
        """Keep a piece of the reply. UpstreamError when it is too large; then it is kept as far as it may be."""
        over = self.body.size + len(chunk) - self._limit
        self.body.write(chunk if over <= 0 else chunk[:-over])
        if len(self.arrivals) >= MOST_ARRIVALS:
            self.arrivals.pop()  # what comes in so many pieces is told of as one
        self.arrivals.append((round(time.monotonic() - self.began, 6), self.body.size))
        if over > 0:
            raise UpstreamError(CallError.TOO_LARGE)

    @property
    def _limit(self) -> int:
        if self.failed:
            return ERROR_LIMIT
        return STREAM_LIMIT if self.streamed else REPLY_LIMIT

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def failed(self) -> bool:
        return self.status is not None and not self.succeeded


class Incoming:
    """The body of a reply on its way in."""

    def __init__(
        self, content: aiohttp.StreamReader, decoder: Decoder | None, model: Model, received: Received
    ) -> None:
        self._content = content
        self._decoder = decoder
        self._decoded: Iterator[bytes] = iter(())
        self._ends_at = time.monotonic() + LONGEST_REPLY_SEC
        self._received = received
        self._idle_sec = model.idle_sec
        self._complete = False
        self._waits_since = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wait_at_most(model.first_byte_sec)

    async def read(self) -> bytes:
        """The next bytes as they come, decompressed; empty at the end. UpstreamError when there is more to come."""
        chunk = await (self._next() if self._decoder is None else self._next_decoded(self._decoder))
        if chunk:
            self._waits_since = time.monotonic()
            if self._received.first_byte is None:
                self._received.first_byte = time.time()
                self._wait_at_most(self._idle_sec)
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
        """Nothing more is expected; a server that forgets to end the body must not delay the reply."""
        self._complete = True
        self._wait_at_most(min(self._idle_sec, END_SEC))

    def close(self) -> None:
        """Nothing more is read."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait_at_most(self, seconds: float) -> None:
        self.close()
        self._patience_sec = seconds
        self._timer = self._loop.call_later(seconds, self._look_at_clock)

    def _look_at_clock(self) -> None:
        """End the wait for bytes if it lasts too long. One timer for all waits: most end soon, and need none."""
        left_sec = self._waits_since + self._patience_sec - time.monotonic()
        if left_sec > 0:
            self._timer = self._loop.call_later(left_sec, self._look_at_clock)
        else:
            self._content.set_exception(TimeoutError())


class Endpoint:
    """One address of a model. After a failure it rests, so that calls go to others; the rests double up to a limit."""

    def __init__(self, url: str, place: int, concurrency: int, clock: Callable[[], float]) -> None:
        self.url = url
        self.place = place
        self.slots = asyncio.Semaphore(concurrency)
        self.retry_after: str | None = None
        """What it asked for when it failed."""
        self._clock = clock
        self._rests_until = clock()
        self._next_rest_sec = FIRST_REST_SEC

    @property
    def rest_left_sec(self) -> float:
        return max(0.0, self._rests_until - self._clock())

    def fail(self, retry_after: str | None = None) -> None:
        """It did not answer, or not well."""
        now = self._clock()
        # Calls that were under way together fail together, and count once.
        if now >= self._rests_until:
            self._rests_until = now + self._next_rest_sec
            self._next_rest_sec = min(2 * self._next_rest_sec, LONGEST_REST_SEC)
        self._rests_until = max(self._rests_until, now + min(_seconds(retry_after), RETRY_AFTER_LIMIT_SEC))
        self.retry_after = retry_after

    def recover(self) -> None:
        """It answered."""
        self._rests_until = self._clock()
        self._next_rest_sec = FIRST_REST_SEC
        self.retry_after = None

    @contextmanager
    def blamed_for_a_broken_body(self) -> Iterator[None]:
        """An answer that begins well and breaks off is a failure too."""
        try:
            yield
        except UpstreamError:
            self.fail()
            raise


class Pool:
    """The endpoints of one model."""

    def __init__(self, model: Model, clock: Callable[[], float]) -> None:
        self._endpoints = [Endpoint(url, place, model.concurrency, clock) for place, url in enumerate(model.urls)]
        self.fixes: defaultdict[str, list[Fix]] = defaultdict(list)
        """What requests to each path must do without."""
        self._turns = itertools.count()

    def first(self, affinity: str) -> Endpoint:
        """Where a call begins: calls of one affinity where the prefix caches know them, all others in turn."""
        if len(self._endpoints) == 1:
            return self._endpoints[0]
        return self._healthy_from(int(digest(affinity.encode()), 16) if affinity else next(self._turns))

    def after(self, endpoint: Endpoint) -> Endpoint:
        """Where a call goes on that failed here."""
        return self._healthy_from(endpoint.place + 1)

    def _healthy_from(self, place: int) -> Endpoint:
        """The first healthy endpoint from this place on. When all rest, the one whose rest ends first."""
        start = place % len(self._endpoints)
        ring = self._endpoints[start:] + self._endpoints[:start]
        return min(ring, key=lambda endpoint: endpoint.rest_left_sec)


class Upstream:
    """The connections to all models, shared by all sessions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # Cookies would tie sessions together; the number of connections is limited per endpoint instead.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # here its memory is bounded
            skip_auto_headers=["User-Agent"],
        )
        self._clock = clock
        self._pools: dict[Model, Pool] = {}
        self._azure = AzureLogin()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    @asynccontextmanager
    async def send(
        self,
        model: Model,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        received: Received,
        affinity: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[Incoming]:
        """Send a call, again if need be; inside the block its body is read. UpstreamError when there is no reply.

        Calls of the same affinity go to the same endpoint as long as it is healthy. `check` is called each time that
        the call is about to be sent, and may raise.
        """
        pool = self._pools.get(model)
        if pool is None:
            pool = self._pools[model] = Pool(model, self._clock)
        sent = await self._headers(model, headers, received)
        repair = received.repair = Repair(pool.fixes[path], model, body)
        endpoint = pool.first(affinity)
        while True:
            async with endpoint.slots:
                check()
                response = await self._attempt(model, endpoint, path, sent, repair.body, received)
                if response is not None:
                    with closing(response), endpoint.blamed_for_a_broken_body():
                        received.begin(response.status, tuple(response.headers.items()))
                        decoder = _decoder(response)
                        with closing(Incoming(response.content, decoder, model, received)) as incoming:
                            if await _mended(repair, incoming, received):
                                continue
                            yield incoming
                    return
            failed, endpoint = endpoint, pool.after(endpoint)
            if endpoint is failed or endpoint.rest_left_sec > 0:
                jitter = random.random()  # noqa: S311 - spreads retries, protects nothing
                await asyncio.sleep(retry_delay(received.attempts, model.backoff_sec, endpoint.retry_after, jitter))

    async def _attempt(
        self, model: Model, endpoint: Endpoint, path: str, headers: Mapping[str, str], body: bytes, received: Received
    ) -> aiohttp.ClientResponse | None:
        """The answer of this endpoint. None when the call is to be sent again, UpstreamError when it is not."""
        received.attempts += 1
        received.upstream = address_at(endpoint.url, path)
        last = received.attempts >= model.attempts
        try:
            response = await self._post(model, received.upstream, headers, body)
        except UpstreamError as failure:
            endpoint.fail()
            received.unanswered += failure.error is CallError.TIMEOUT
            # A silence costs minutes, so a call bears no more of them than there are endpoints.
            elsewhere = failure.error is CallError.TIMEOUT and received.attempts < len(model.urls)
            if last or not (failure.error is CallError.REFUSED or elsewhere):
                raise
            return None
        if response.status not in RETRIED:
            endpoint.recover()
            return response
        endpoint.fail(response.headers.get("Retry-After"))
        if last:
            return response
        response.close()
        return None

    async def _post(
        self, model: Model, address: str, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(model.connect_sec + model.first_byte_sec):
                return await self._http.post(
                    address,
                    # In one write where that is short; from a file, aiohttp writes piece by piece.
                    data=body if len(body) <= ONE_WRITE else io.BytesIO(body),
                    headers=headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, connect=model.connect_sec),
                )
        except aiohttp.ClientResponseError as error:
            raise UpstreamError(CallError.MALFORMED) from error
        except aiohttp.ClientError as error:
            raise UpstreamError(CallError.REFUSED) from error
        except TimeoutError as error:
            raise UpstreamError(CallError.TIMEOUT) from error

    async def _headers(self, model: Model, headers: Mapping[str, str], received: Received) -> CIMultiDict[str]:
        """What is sent: the call's headers, the model's in place of them, and what signs the call in at Azure."""
        sent = CIMultiDict(headers)
        sent.update(model.headers)
        sent["Accept-Encoding"] = "identity"
        if model.auth == "azure":
            sent.pop("Authorization", None)
            if model.key is not None:
                sent["api-key"] = model.key
            else:
                received.token = await self._azure_token()
                sent["Authorization"] = f"Bearer {received.token}"
        return sent

    async def _azure_token(self) -> str:
        try:
            return await self._azure.token()
        except UserError as error:
            raise UpstreamError(CallError.AUTH) from error


class AzureLogin:
    """Tokens of the Azure account that this machine is logged in with."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._token = ""
        self._good_until = 0.0

    async def token(self) -> str:
        """A token that is good for some minutes. UserError when nobody is logged in."""
        async with self._one_at_a_time:
            if self._clock() >= self._good_until:
                try:
                    async with asyncio.timeout(AZURE_LOGIN_SEC):
                        self._token, ends = await asyncio.to_thread(_new_azure_token)
                except TimeoutError as error:
                    raise UserError(f"Azure gave no token within {AZURE_LOGIN_SEC:g} seconds") from error
                self._good_until = ends - AZURE_MARGIN_SEC
            return self._token


def _new_azure_token() -> tuple[str, float]:
    """A token, and when it ends in seconds since the epoch."""
    try:
        # Large, and needed by few: it is an extra.
        identity: Any = importlib.import_module("azure.identity")
        errors: Any = importlib.import_module("azure.core.exceptions")
    except ModuleNotFoundError as error:
        raise UserError(
            "a login at Azure needs a package that is not installed; install it: pip install 'whet[azure]', "
            "or give a key with 'key_env'"
        ) from error
    try:
        with identity.DefaultAzureCredential() as credential:
            granted = credential.get_token(AZURE_SCOPE)
    except errors.AzureError as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"Azure gave no token: {reason}; log in, for example with 'az login'") from error
    return str(granted.token), float(granted.expires_on)


def _decoder(response: aiohttp.ClientResponse) -> Decoder | None:
    """What undoes the compression of a reply, which no endpoint is asked for."""
    try:
        return decoder(", ".join(response.headers.getall("Content-Encoding", [])))
    except ValueError as error:
        raise UpstreamError(CallError.MALFORMED) from error


async def _mended(repair: Repair, incoming: Incoming, received: Received) -> bool:
    """Whether this is a refusal of one parameter, without which the call is to be sent again."""
    if received.status != 400:
        return False
    while await incoming.read():
        pass
    if repair.learn(received.body.read()):
        received.forget()
        return True
    return False


def own_credentials(headers: Headers) -> dict[str, str]:
    """The agent's own credentials among its headers, for a model with `auth = "own"`.

    >>> own_credentials((("Authorization", "Bearer abc"), ("Accept", "*/*")))
    {'Authorization': 'Bearer abc'}
    """
    return {name: value for name, value in headers if name.lower() in OWN_CREDENTIALS}


def credential_secrets(credentials: Mapping[str, str]) -> list[str]:
    """What must be masked of these credentials: the values, with and without the scheme in front.

    >>> credential_secrets({"Authorization": "Bearer abc"})
    ['Bearer abc', 'abc']
    """
    return [secret for value in credentials.values() for secret in (value, value.rpartition(" ")[2])]


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
        return (date.astimezone(UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
