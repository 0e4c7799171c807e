"""What every request passes before it reaches a door: who calls, from where, how much it sends, how much it has open.

It works below FastAPI, so that no route of any protocol can be reached without it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from whet.serve.access import Caller, Tokens
from whet.serve.problems import Code, Refused
from whet.serve.replies import problem_reply
from whet.serve.values import TOO_MANY_VALUES, has_too_many_values

OPEN_PATHS = frozenset({"/health"})
"""What anybody may ask."""
MOST_BODY_BYTES = 8 << 20
"""The largest body of a request."""
MOST_BODIES_BYTES = 256 << 20
"""The bodies of all requests that are under way."""
MOST_DISCARDED_BYTES = 64 << 20
"""A body that is too large is read up to here, so that its sender sees the reply."""
BODY_SEC = 60.0
"""How long a body may take to arrive."""
MOST_OPEN = 1024
"""Requests and sockets that one caller may have open at the same time."""
_CALLER = "whet.caller"
_SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def caller_of(connection: HTTPConnection) -> Caller:
    """Who sent a request, or opened a socket."""
    caller = connection.scope[_CALLER]
    assert isinstance(caller, Caller)
    return caller


class Guard:
    """Passes on the requests that may pass, with their caller and their whole body."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens
        self._open: Counter[str] = Counter()
        self._body_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        send = _with_safe_headers(send)
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            scope[_CALLER] = caller = self._admit(Headers(scope=scope))
            with self._count_open(caller):
                await self._pass_on(scope, receive, send)
        except Refused as refused:
            await _refuse(refused, scope, receive, send)

    def _admit(self, headers: Headers) -> Caller:
        self._tokens.check_origin(headers.get("host"), headers.get("origin"))
        return self._tokens.authenticate(headers.get("authorization"))

    @contextmanager
    def _count_open(self, caller: Caller) -> Iterator[None]:
        if self._open[caller.name] >= MOST_OPEN:
            raise Refused(Code.BUSY, f"{MOST_OPEN} requests are open already; expected fewer at the same time", 1)
        self._open[caller.name] += 1
        try:
            yield
        finally:
            self._open[caller.name] -= 1

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        try:
            await self._read_body(body, Headers(scope=scope), receive)
            await self._app(scope, _give_first(bytes(body), receive), send)
        finally:
            self._body_bytes -= len(body)

    async def _read_body(self, body: bytearray, headers: Headers, receive: Receive) -> None:
        """Read a whole body into `body`. Refused when it is too large or too slow."""
        too_large = int(headers.get("content-length", "0") or 0) > MOST_BODY_BYTES
        discarded = 0
        try:
            async with asyncio.timeout(BODY_SEC):
                while (message := await receive())["type"] == "http.request":
                    chunk = message.get("body", b"")
                    if too_large or len(body) + len(chunk) > MOST_BODY_BYTES:
                        too_large, discarded = True, discarded + len(chunk)
                    elif self._body_bytes + len(chunk) > MOST_BODIES_BYTES:
                        raise Refused(Code.BUSY, "too many large requests at the same time; try again later", 1)
                    else:
                        body += chunk
                        self._body_bytes += len(chunk)
                    if not message.get("more_body") or discarded > MOST_DISCARDED_BYTES:
                        break
        except TimeoutError:
            raise Refused(Code.INVALID, f"the body did not arrive within {BODY_SEC:g} seconds") from None
        if too_large:
            raise Refused(Code.TOO_LARGE, f"the body is too large; expected at most {MOST_BODY_BYTES} bytes")
        if has_too_many_values(body):
            raise Refused(Code.TOO_LARGE, f"the body is too large: {TOO_MANY_VALUES}")


def _give_first(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read already, and then whatever comes after it."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _with_safe_headers(send: Send) -> Send:
    """What keeps a browser from taking a reply for anything else than data."""

    async def send_safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SAFE_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_safely


async def _refuse(refused: Refused, scope: Scope, receive: Receive, send: Send) -> None:
    reply = problem_reply(refused)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(reply)
        return
    # What is left of the body is not read.
    reply.headers["Connection"] = "close"
    await reply(scope, receive, send)
