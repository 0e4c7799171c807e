"""The scripted model: an HTTP server on loopback that answers from a script like a real model."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from whet.errors import UserError
from whet.gateway.dialects import Dialect, by_route, likely_dialect, messages, token_counter, without_version
from whet.testing.adapt import adapt_reply
from whet.testing.play import reply_to
from whet.testing.script import Fault, Script, ScriptedReply
from whet.testing.wire import BadRequestError, read_call, write_count, write_stream, write_whole

HOST = "127.0.0.1"
MODEL = "scripted"
_GRACE = 0.01
"""Seconds that calls under way get when the server stops. Zero would mean no limit."""


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
    routes = [web.get("/", _alive), web.post("/{path:.*}", player.answer), web.route("*", "/{path:.*}", _other)]
    application.add_routes(routes)
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
            return _error(_dialect(request), 401, "The key is not the one that the scripted model was started with.")
        return await handler(request)

    return demand


@web.middleware
async def _refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequestError as error:
        return _error(_dialect(request), 400, str(error))


def _keys(http: web.Request) -> Iterator[bytes]:
    """The keys that the request presents, in any of the places where the dialects put one."""
    scheme, _, bearer = http.headers.get("authorization", "").partition(" ")
    named = (http.headers.get("x-api-key"), http.headers.get("x-goog-api-key"), http.query.get("key"))
    for key in (bearer if scheme.lower() == "bearer" else None, *named):
        if key is not None:
            yield key.encode(errors="surrogateescape")


async def _alive(_: web.Request) -> web.Response:
    return web.Response()


async def _other(http: web.Request) -> web.Response:
    if http.method == "GET" and without_version(http.path) == "/models":
        return _json(msgspec.json.encode(_dialect(http).model_list(MODEL)))
    return _not_found(http)


def _not_found(http: web.Request) -> web.Response:
    return _error(_dialect(http), 404, f"The scripted model has no route {http.method} {http.path}")


def _dialect(http: web.Request) -> Dialect:
    return by_route(without_version(http.path)) or likely_dialect(http.path, http.headers)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _error(dialect: Dialect, status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    body = dialect.error_body(status, message)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


class _Player:
    """Answers requests from a script, and keeps count of the faults that end after some times."""

    def __init__(self, script: Script, tokens: bool) -> None:
        self._script = script
        self._tokens = tokens
        self._strikes: Counter[str] = Counter()

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Answer a request in its dialect, or make it fail as the script says."""
        route = without_version(http.path)
        if counter := token_counter(route):
            return _json(write_count(counter, await http.read(), http.path_qs))
        dialect = by_route(route)
        if dialect is None:
            return _not_found(http)
        call = read_call(dialect, await http.read(), http.path_qs, with_tokens=self._tokens)
        reply = adapt_reply(reply_to(call.conversation, self._script), call)
        fault = self._strike(reply, call.digest)
        await asyncio.sleep(reply.delay)
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.REFUSE:
            return _hang_up(http, web.Response())
        if fault is not None and fault.status is not None:
            status = 503 if fault is Fault.OVERLOADED and dialect is not messages else fault.status
            return _error(dialect, status, f"Scripted fault {fault}.", _retry_after(reply))
        played = None if fault is Fault.EMPTY else reply
        if not call.request.stream:
            return await _send_whole(http, write_whole(call, played), fault)
        content_type = "application/json" if call.as_array else "text/event-stream"
        return await _send_stream(http, write_stream(call, played), content_type, fault, reply.chunk_delay)

    def _strike(self, reply: ScriptedReply, digest: str) -> Fault | None:
        if reply.times is None:
            return reply.fault
        self._strikes[digest] += 1
        return reply.fault if self._strikes[digest] <= reply.times else None


def _retry_after(reply: ScriptedReply) -> dict[str, str]:
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
        second = events[:2][-1]
        events = [events[0], second[: len(second) // 2] + b"\n\n", events[-1]]
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
