"""What the gateway's tests share: a model server whose every byte the test decides, a recorder, and a session."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from whet.exchange import Exchange
from whet.gateway import Gateway, Limits, Model, Session
from whet.text.redact import Redactor

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

PROVIDER_KEY = "sk-provider-0123456789"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "2+2?"}]}
PATIENCE = 10.0
NO_LIMITS = Limits()


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text} | more, "finish_reason": finish}]})


DONE = event("[DONE]")
USAGE = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
STREAM = [delta("fo", role="assistant"), delta("ur"), delta(finish="stop"), USAGE, DONE]
UNARY = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}


@dataclass
class Records:
    """A recorder that can be held back, or made to fail."""

    exchanges: list[Exchange] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    allowed: asyncio.Event | None = None
    failure: Exception | None = None

    async def __call__(self, exchange: Exchange) -> None:
        self.asked.set()
        if self.allowed is not None:
            await self.allowed.wait()
        if self.failure is not None:
            raise self.failure
        self.exchanges.append(exchange)

    @contextmanager
    def held_back(self) -> Iterator[asyncio.Event]:
        """No commit returns before the event is set, or this is left."""
        self.allowed = asyncio.Event()
        try:
            yield self.allowed
        finally:
            self.allowed.set()

    @property
    def only(self) -> Exchange:
        (exchange,) = self.exchanges
        return exchange


@dataclass
class World:
    gateway: Gateway
    session: Session
    url: str
    records: Records
    http: aiohttp.ClientSession

    def post(self, path: str = "/v1/chat/completions", **options: Any) -> Any:
        options.setdefault("headers", {"Authorization": f"Bearer {self.session.secret}"})
        if "data" not in options:
            options.setdefault("json", BODY)
        return self.http.post(self.url + path, **options)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A model server; its handler is cancelled when the gateway hangs up."""
    server = web.Server(handler, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def model(url: str, **options: Any) -> Model:
    settings: dict[str, Any] = {"name": "small", "upstream_name": "tiny", "key": PROVIDER_KEY, "backoff_sec": 0.001}
    return Model(url=url, **(settings | options))


def _client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


@asynccontextmanager
async def session_for(
    url: str, limits: Limits = NO_LIMITS, run_limits: Limits = NO_LIMITS, **options: Any
) -> AsyncIterator[World]:
    records = Records()
    async with Gateway(Redactor([PROVIDER_KEY]), run_limits) as gateway, _client() as http:
        session = gateway.open_session("rollout-1", model(url, **options), records, limits)
        yield World(gateway, session, await session.listen(), records, http)


@asynccontextmanager
async def world(handler: Handler, **options: Any) -> AsyncIterator[World]:
    """A model server, and a session of a gateway in front of it."""
    async with serving(handler) as url, session_for(url, **options) as made:
        yield made


async def stream(request: web.BaseRequest) -> web.StreamResponse:
    """Begin a stream of events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


Step = bytes | asyncio.Event | Callable[[web.BaseRequest], None]


def streaming(*steps: Step) -> Handler:
    """A model that streams these bytes, waits where an event stands, and does what is to be done with the request."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        response = await stream(request)
        for step in steps:
            if isinstance(step, bytes):
                await response.write(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                step(request)
        return response

    return handler


def answering(body: Any, status: int = 200) -> Handler:
    """A model that answers with this JSON."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        return web.json_response(body, status=status)

    return handler


answer_stream, answer_unary = streaming(*STREAM), answering(UNARY)


def cut(request: web.BaseRequest) -> None:
    """Break the connection off."""
    assert request.transport is not None
    request.transport.close()


async def read_until(reply: aiohttp.ClientResponse, expected: bytes) -> bytes:
    """Read a reply until this has come."""
    received = b""
    async with asyncio.timeout(PATIENCE):
        while expected not in received:
            chunk = await reply.content.readany()
            assert chunk, f"the reply ended with {received!r}"
            received += chunk
    return received


async def read_to_break(reply: aiohttp.ClientResponse) -> bytes:
    """Read a reply that must break off rather than end."""
    received = b""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                chunk = await reply.content.readany()
            except aiohttp.ClientPayloadError:
                return received
            assert chunk, "the reply ended as if it was complete"
            received += chunk
