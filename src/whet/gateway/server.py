"""HTTP from agents: routes, keys and bodies in, replies out. Nothing in a reply describes the host."""

import asyncio
import functools
import hmac
import http
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import HttpVersion11, web

from whet.errors import UserError
from whet.gateway.buffers.decompress import decoder
from whet.gateway.buffers.memory import BODY_LIMIT, LARGE, GatewayMemory, TooLargeError, check_decoded_size
from whet.gateway.buffers.reply_buffer import ReplyHead
from whet.gateway.buffers.spool import Spool
from whet.gateway.calls.call import Call
from whet.gateway.calls.requests import AgentRequest
from whet.gateway.calls.transfer import JSON
from whet.gateway.dialects import (
    Dialect,
    TokenCounter,
    by_route,
    chat,
    likely_dialect,
    responses,
    token_counter,
    without_version,
)
from whet.gateway.limits import LimitError
from whet.gateway.session import Session

logger = logging.getLogger(__name__)

HEADER_LIMIT = 64 << 10

_ANONYMOUS = {"Server": ""}
"""Keeps aiohttp from sending its name, its version and Python's."""
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}
_PATH_SECRET = re.compile(r"^/s/([^/]*)")


def http_server(session: Session) -> web.Server:
    """The server that answers for this session only."""
    return _Server(
        functools.partial(_answer, session),
        request_factory=_request,
        handler_cancellation=False,  # a call continues when the agent hangs up
        access_log=None,
        auto_decompress=False,  # agents use encodings that aiohttp does not know
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
    )


class _Route(NamedTuple):
    """What a path says."""

    secret: str
    path: str
    """Without the secret."""
    name: str
    """Without the version too."""
    dialect: Dialect | None
    counter: TokenCounter | None


@functools.lru_cache(256)
def _read_route(whole: str) -> _Route:
    prefix = _PATH_SECRET.match(whole)
    path = whole.removeprefix(prefix[0]) if prefix else whole
    name = without_version(path)
    return _Route(prefix[1] if prefix else "", path, name, by_route(name), token_counter(name))


async def _answer(session: Session, request: web.BaseRequest) -> web.StreamResponse:
    route = _read_route(request.path)
    dialect = route.dialect or likely_dialect(route.path, request.headers)
    if request.method != "POST" and (reply := _answer_side_route(request, route)) is not None:
        return reply
    # A model that takes the agent's own credentials finds them where the secret would be.
    keys = [route.secret] if session.model.auth == "own" else [route.secret, *_read_keys(request)]
    if not _are_valid(keys, session.secret):
        return _error(401, "Incorrect API key provided.", dialect)
    if request.method == "GET" and (route.name == "/models" or route.name.startswith("/models/")):
        # Here a name with a colon in it is not a method of Gemini's: only the path before it shows the dialect.
        caller = likely_dialect(route.path.removesuffix(route.name) + "/models", request.headers)
        return _models(caller, session.model_name, route.name)
    query = request.query_string
    path = f"{route.path}?{query}" if query else route.path
    agent_request = AgentRequest(dialect, path, tuple(request.headers.items()), b"")
    made = await _make_call(session, request, agent_request, route)
    return made if isinstance(made, web.Response) else await _deliver(made, request)


def _answer_side_route(request: web.BaseRequest, route: _Route) -> web.Response | None:
    """The reply to a request that needs no key."""
    if request.method == "OPTIONS":
        return _reply(204)
    if request.method in {"GET", "HEAD"} and route.name == "/":
        return _reply(200, b"{}")
    if request.method in {"GET", "HEAD"} and route.name == "/health":
        return _reply(200, b'{"status":"ok"}')
    return None


async def _make_call(
    session: Session, request: web.BaseRequest, made: AgentRequest, route: _Route
) -> Call | web.Response:
    """The call that a request makes, or the reply to a request that makes none."""
    try:
        spool = await _read_body(session.memory, request)
    except (TooLargeError, UserError):
        return await _reject_unread(session, made, 413, "The request is too large.")
    except (web.RequestPayloadError, ValueError):
        return await _reject_unread(session, made, 400, "The request body could not be read.")
    hold, kept = await session.share.hold(spool.size), False
    try:
        made.body = spool.read()
        spool.close()
        check_decoded_size(made.body)
        if session.closed:
            return _error(403, "This key is no longer valid.", made.dialect)
        if request.method == "POST" and route.counter is not None:
            return _reply(200, await session.count_tokens(made, route.counter))
        if "Upgrade" in request.headers and request.headers["Upgrade"].lower() == "websocket":
            # Programs that try this first fall back on plain requests at this status.
            return _reply(426, await session.reject(made, 426, "Only plain HTTP requests are answered here."))
        if request.method != "POST" or not _is_call(session, made.dialect, route.name):
            return _reply(404, await session.reject(made, 404, "There is nothing at this address."))
        async with session.memory.large if len(made.body) > LARGE else nullcontext():
            if _has_closed(session):
                return _error(403, "This key is no longer valid.", made.dialect)
            call = session.call(made, hold.release)
        kept = True
        return call
    except TooLargeError:
        made.body = b""
        return await _reject_unread(session, made, 413, "The request is too large.")
    except (ValueError, LimitError) as error:
        # 400, because every agent's program stops at it; what looks like a passing failure would be tried again.
        return _reply(400, await session.reject(made, 400, str(error)))
    finally:
        if not kept:
            hold.release()


def _has_closed(session: Session) -> bool:
    """Whether the session was closed while a request waited."""
    return session.closed


async def _reject_unread(session: Session, made: AgentRequest, status: int, message: str) -> web.Response:
    """Answer a request whose body cannot be read. It is recorded without the body."""
    if session.closed:
        return _error(status, message, made.dialect)
    return _reply(status, await session.reject(made, status, message))


def _is_call(session: Session, dialect: Dialect, route: str) -> bool:
    """Whether a POST to this route is a call."""
    return dialect.owns(route) or (responses.compacts(route) and session.model.dialect == responses.NAME)


async def _read_body(memory: GatewayMemory, request: web.BaseRequest) -> Spool:
    """The body, decompressed. ValueError when it cannot be decompressed, TooLargeError when it is too large."""
    headers = request.headers
    decode = decoder(headers["Content-Encoding"]) if "Content-Encoding" in headers else None
    if (request.content_length or 0) > BODY_LIMIT:
        raise TooLargeError
    if "Expect" in headers and headers["Expect"].lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the reply has not begun
    body = memory.spool()
    while chunk := await request.content.readany():
        if decode is None:
            _add(body, chunk)
            continue
        for piece in decode.feed(chunk):
            _add(body, piece)
            await asyncio.sleep(0)  # a few bytes can become many, and others must not wait for that
    if decode is not None and not decode.complete:
        raise ValueError("it breaks off")
    return body


def _add(body: Spool, piece: bytes) -> None:
    if body.size + len(piece) > BODY_LIMIT:
        raise TooLargeError
    body.write(piece)


async def _deliver(call: Call, request: web.BaseRequest) -> web.StreamResponse:
    """Give the agent the reply to a call."""
    connection = request.protocol
    assert isinstance(connection, _Connection)
    reply = _AgentReply(request)
    connection.on_lost = functools.partial(call.hang_up, reply)
    connection.on_writable = call.reply.resume
    try:
        await call.answer(reply)
    finally:
        connection.on_lost = connection.on_writable = None
    return reply


class _AgentReply(web.StreamResponse):
    """A reply that is written to the agent's connection as it comes. For aiohttp, it is a response that was sent.

    aiohttp's own response takes a header dictionary, a writer and several awaits for each reply.
    """

    def __init__(self, request: web.BaseRequest) -> None:  # all that aiohttp reads of it is overridden
        self._agent_request = request
        self._agent_transport = request.transport
        self._chunked_body = False
        self._dropped = request.transport is None
        self._stays_open = bool(request.keep_alive)

    @property
    def ready(self) -> bool:
        return not self._agent_request.protocol.writing_paused

    def start(self, head: ReplyHead) -> None:
        body = head.body
        if body is not None:
            self.send_raw(_format_head(head, f"Content-Length: {len(body)}", self._stays_open) + body)
            return
        self._chunked_body = self._agent_request.version >= HttpVersion11
        self._stays_open = self._stays_open and self._chunked_body
        framing = "Transfer-Encoding: chunked" if self._chunked_body else ""
        self.send_raw(_format_head(head, framing, self._stays_open))

    def send(self, data: bytes) -> None:
        self.send_raw(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked_body else data)

    def finish(self, *, broken: bool) -> None:
        if broken:
            # Without the end of the body, no client can take the reply for a complete one.
            if self._agent_transport is not None:
                self._agent_transport.close()
        elif self._chunked_body:
            self.send_raw(b"0\r\n\r\n")

    def send_raw(self, data: bytes) -> None:
        transport = self._agent_transport
        if transport is None or transport.is_closing():
            self._dropped = True
            return
        self._agent_request.writer.output_size += len(data)
        transport.write(data)

    async def flush(self) -> bool:
        if not self._dropped and not self.ready:
            try:
                await self._agent_request.writer.drain()
            except (ConnectionError, aiohttp.ClientError):
                self._dropped = True
        return not self._dropped

    @property
    def keep_alive(self) -> bool | None:
        return self._stays_open

    async def prepare(self, request: web.BaseRequest) -> None:
        """It was sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """It was sent."""


def _format_head(head: ReplyHead, framing: str, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {head.status} {_REASONS.get(head.status, '')}"]
    lines += [f"{name}: {value}" for name, value in head.headers.items()]
    if framing:
        lines.append(framing)
    if not keep_alive:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


def _read_keys(request: web.BaseRequest) -> list[str]:
    """The keys of a request, wherever agents put them."""
    headers = request.headers
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return [
        token.strip() if scheme.lower() == "bearer" else scheme,
        headers.get("x-api-key", ""),
        headers.get("x-goog-api-key", ""),
        request.query.get("key", "") if request.query_string else "",
    ]


def _are_valid(keys: list[str], secret: str) -> bool:
    """Whether there is a key, and every key is the secret."""
    encoded = [key.encode(errors="surrogateescape") for key in keys if key]
    return bool(encoded) and all(hmac.compare_digest(key, secret.encode()) for key in encoded)


def _models(dialect: Dialect, name: str, route: str) -> web.Response:
    wanted = route.removeprefix("/models").removeprefix("/")
    if wanted and wanted != name:
        return _error(404, "There is no such model.", dialect)
    return _reply(200, msgspec.json.encode(dialect.model_card(name) if wanted else dialect.model_list(name)))


def _reply(status: int, body: bytes | None = None, headers: Mapping[str, str] = JSON) -> web.Response:
    return web.Response(status=status, body=body, headers={**headers, **_ANONYMOUS})


def _error(status: int, message: str, dialect: Dialect) -> web.Response:
    return _reply(status, dialect.error_body(status, message))


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_LIMIT)


class _Server(web.Server):
    """aiohttp's server with our connections."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    """aiohttp's connection without aiohttp's error pages, which say what runs here."""

    __slots__ = ("on_lost", "on_writable")

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(manager, loop=loop, **options)
        self.on_lost: Callable[[], None] | None = None
        """Called when the agent hangs up during a call. Without one, whatever answers the request is cancelled."""
        self.on_writable: Callable[[], None] | None = None
        """Called when the agent has read enough for more to be written."""

    def connection_lost(self, exc: BaseException | None) -> None:
        answering = self._task_handler
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
        elif answering is not None:
            answering.cancel()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's words, not for agents
    ) -> web.StreamResponse:
        """What is not HTTP gets a 400; a defect of ours is logged and gets a 500."""
        if isinstance(exc, ConnectionError):
            raise exc
        if status >= 500:
            logger.error("a request could not be answered", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun, so it can only be broken off")
        words = "The request failed." if status >= 500 else "The request is not valid HTTP."
        response = _error(status, words, chat)
        response.force_close()
        return response
