"""The scripted model: an HTTP server on loopback that plays a script to whoever calls it like a real model."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from whet.errors import UserError
from whet.testing import chat, gemini, messages, responses
from whet.testing.adapt import adapted
from whet.testing.dialect import BadRequestError, Dialect, Provider, Request
from whet.testing.play import reply_to
from whet.testing.script import Fault, Reply, Script

HOST = "127.0.0.1"
_VERSION = "/{version:(?:v1(?:beta)?/)*}"
"""Clients are told addresses with and without a version, and some add one of their own."""
_GRACE = 0.01
"""Seconds that calls under way get when the server stops. Zero would mean no limit."""

R = TypeVar("R", bound=Request)


@dataclass(frozen=True, slots=True)
class Received:
    """One request as the scripted model received it."""

    path: str
    headers: Mapping[str, str]
    """Their names match in any case."""
    body: bytes


class ScriptedModel:
    """A scripted model that serves inside an `async with`, and remembers what it was sent.

    >>> async def ask() -> None:
    ...     async with ScriptedModel(Script(scenes=(Scene(replies=(say("Hello."),)),))) as model:
    ...         print(model.url)  # http://127.0.0.1:34567; the API is below /v1
    """

    def __init__(self, script: Script, *, port: int = 0, key: str | None = None, tokens: bool = False) -> None:
        self.url = ""
        self.requests: list[Received] = []
        self._serving = _serving(_application(script, key, tokens or script.tokens, _remember(self.requests)), port)

    async def __aenter__(self) -> Self:
        self.url = await self._serving.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._serving.__aexit__(kind, error, traceback)


async def serve(script: Script, port: int, key: str | None) -> None:
    """Play a script on a port of this machine until cancelled."""
    async with _serving(_application(script, key, script.tokens), port):
        await asyncio.Event().wait()


@asynccontextmanager
async def _serving(application: web.Application, port: int) -> AsyncIterator[str]:
    # Cancelling the handler when its client leaves ends the hangs that nobody waits for any more.
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=_GRACE)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port, backlog=1024).start()
        except OSError as error:
            raise UserError(f"port {port} on {HOST} cannot be opened: {error.strerror}") from None
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _application(script: Script, key: str | None, tokens: bool, *first: Middleware) -> web.Application:
    demands = [] if key is None else [_demand(key)]
    # No limit on the size of a request: long conversations pass aiohttp's default of 1 MiB.
    application = web.Application(middlewares=[*first, *demands, _refuse], client_max_size=0)
    player = _Player(script, tokens)
    application.add_routes(
        [
            web.get("/", _alive),
            web.get(_VERSION + "models", _models),
            web.post(_VERSION + "chat/completions", player.chat),
            web.post(_VERSION + "responses", player.responses),
            web.post(_VERSION + "messages", player.messages),
            web.post(_VERSION + "messages/count_tokens", _count_messages),
            web.post(_VERSION + "models/{model:.+}:{method}", player.gemini),
            web.route("*", "/{path:.*}", _not_found),
        ]
    )
    return application


def _remember(requests: list[Received]) -> Middleware:
    @web.middleware
    async def remember(request: web.Request, handler: Handler) -> web.StreamResponse:
        requests.append(Received(request.path, request.headers, await request.read()))
        return await handler(request)

    return remember


def _demand(key: str) -> Middleware:
    expected = key.encode()

    @web.middleware
    async def demand(request: web.Request, handler: Handler) -> web.StreamResponse:
        known = any(secrets.compare_digest(given, expected) for given in _keys(request))
        if not known and request.path != "/":
            return _error(_provider(request), 401, "The scripted model was given another key than it was started with.")
        return await handler(request)

    return demand


@web.middleware
async def _refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequestError as error:
        return _error(_provider(request), 400, str(error))


def _keys(http: web.Request) -> Iterator[bytes]:
    """The keys that the request presents, in any of the places where the dialects put one."""
    scheme, _, bearer = http.headers.get("authorization", "").partition(" ")
    named = (http.headers.get("x-api-key"), http.headers.get("x-goog-api-key"), http.query.get("key"))
    for key in (bearer if scheme.lower() == "bearer" else None, *named):
        if key is not None:
            yield key.encode(errors="surrogateescape")


async def _alive(_: web.Request) -> web.Response:
    return web.Response()


async def _models(http: web.Request) -> web.Response:
    return _json(_provider(http).models())


async def _count_messages(http: web.Request) -> web.Response:
    return _json(messages.count(await http.read()))


async def _not_found(http: web.Request) -> web.Response:
    return _error(_provider(http), 404, f"The scripted model has no route {http.method} {http.path}")


def _provider(http: web.Request) -> Provider:
    """Whose API a request is for, by its address, or else by its headers."""
    if http.path.endswith(("/chat/completions", "/responses")):
        return chat
    if http.path.endswith(("/messages", "/messages/count_tokens")) or "anthropic-version" in http.headers:
        return messages
    if http.path.startswith("/v1beta") or ":" in http.path or "x-goog-api-key" in http.headers:
        return gemini
    return chat


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _error(
    dialect: Dialect[Any] | Provider, status: int, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    body = dialect.error(status, message)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


class _Player:
    """Answers requests from a script, and keeps count of the faults that end after some times."""

    def __init__(self, script: Script, tokens: bool) -> None:
        self._script = script
        self._tokens = tokens
        self._strikes: Counter[str] = Counter()

    async def chat(self, http: web.Request) -> web.StreamResponse:
        return await self._answer(http, chat, partial(chat.read, with_tokens=self._tokens))

    async def responses(self, http: web.Request) -> web.StreamResponse:
        return await self._answer(http, responses, responses.read)

    async def messages(self, http: web.Request) -> web.StreamResponse:
        return await self._answer(http, messages, messages.read)

    async def gemini(self, http: web.Request) -> web.StreamResponse:
        method = http.match_info["method"].lower()
        if method == "counttokens":
            return _json(gemini.count(await http.read()))
        if method not in {"generatecontent", "streamgeneratecontent"}:
            return await _not_found(http)
        stream, sse = method.startswith("stream"), http.query.get("alt") == "sse"
        read = partial(gemini.read, model=http.match_info["model"], stream=stream, sse=sse)
        return await self._answer(http, gemini, read)

    async def _answer(self, http: web.Request, dialect: Dialect[R], read: Callable[[bytes], R]) -> web.StreamResponse:
        request = read(await http.read())
        reply = adapted(reply_to(request.conversation, self._script), request)
        fault = self._strike(reply, request.digest)
        await asyncio.sleep(reply.delay)
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.REFUSE:
            return _hang_up(http, web.Response())
        if fault is not None and fault.status is not None:
            status = 503 if fault is Fault.OVERLOADED and dialect is not messages else fault.status
            return _error(dialect, status, f"Scripted fault {fault}.", _retry_after(reply))
        played = None if fault is Fault.EMPTY else reply
        if not request.stream:
            return await _send_whole(http, dialect.whole(request, played), fault)
        content_type = "text/event-stream" if request.sse else "application/json"
        return await _send_stream(http, dialect.events(request, played), content_type, fault, reply.chunk_delay)

    def _strike(self, reply: Reply, digest: str) -> Fault | None:
        if reply.times is None:
            return reply.fault
        self._strikes[digest] += 1
        return reply.fault if self._strikes[digest] <= reply.times else None


def _retry_after(reply: Reply) -> dict[str, str]:
    return {} if reply.retry_after is None else {"retry-after": str(reply.retry_after)}


async def _send_whole(http: web.Request, body: bytes, fault: Fault | None) -> web.StreamResponse:
    half = body[: len(body) // 2]
    if fault is not Fault.CUT:
        return web.Response(body=half if fault is Fault.MALFORMED else body, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": str(len(body))})
    await response.prepare(http)
    await response.write(half)
    return _hang_up(http, response)


async def _send_stream(
    http: web.Request, events: list[bytes], content_type: str, fault: Fault | None, chunk_delay: float
) -> web.StreamResponse:
    if fault is Fault.CUT:
        events = events[: max(1, (len(events) - 1) // 2)]
    if fault is Fault.MALFORMED:
        torn = events[1][: len(events[1]) // 2] + b"\n\n"
        events = [events[0], torn, events[-1]]
    response = web.StreamResponse(headers={"content-type": content_type, "cache-control": "no-cache"})
    await response.prepare(http)
    for number, event in enumerate(events):
        if number:
            await asyncio.sleep(chunk_delay)
        await response.write(event)
    return _hang_up(http, response) if fault is Fault.CUT else response


def _hang_up(http: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection after what is already written; aiohttp then drops the rest of the response."""
    if http.transport is not None:
        http.transport.close()
    return response
