"""HTTP in: what an agent asks for and whether it may; answers in its dialect, and tells nothing of the host."""

import asyncio
import functools
import hmac
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import HttpVersion11, web

from whet.gateway.call import JSON, Request
from whet.gateway.delivery import Delivery
from whet.gateway.dialects import (
    Dialect,
    by_route,
    chat,
    likely_dialect,
    responses,
    token_counter,
    without_version,
)
from whet.gateway.encodings import TooLargeError, decompressed
from whet.gateway.limits import LimitError

if TYPE_CHECKING:
    from whet.gateway.session import Session

logger = logging.getLogger(__name__)

BODY_LIMIT = 256 << 20
HEADER_LIMIT = 64 << 10

_ANONYMOUS = {"Server": ""}
"""Keeps aiohttp from naming itself, its version and Python's."""

_PATH_SECRET = re.compile(r"^/s/([^/]*)")


def http_server(session: "Session") -> web.Server:
    """The server that answers for this session only."""
    return _Server(
        functools.partial(_answer, session),
        request_factory=_request,
        handler_cancellation=True,
        access_log=None,
        auto_decompress=False,  # not all that agents send is known to aiohttp
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
    )


async def _answer(session: "Session", request: web.BaseRequest) -> web.StreamResponse:
    prefix = _PATH_SECRET.match(request.path)
    path = request.path.removeprefix(prefix[0]) if prefix else request.path
    route = without_version(path)
    dialect = by_route(route) or likely_dialect(path, request.headers)

    if request.method == "OPTIONS":
        return _reply(204)
    if route == "/" and request.method in {"GET", "HEAD"}:
        return _reply(200, b"{}")
    if route == "/health" and request.method in {"GET", "HEAD"}:
        return _reply(200, b'{"status":"ok"}')
    in_path = prefix[1] if prefix else ""
    # A model that takes the agent's own credentials finds them where the secret would be.
    presented = [in_path] if session.model.auth == "own" else [in_path, *_presented_keys(request)]
    if not _authorised(session.secret, presented):
        return _error(401, "Incorrect API key provided.", dialect)
    if request.method == "GET" and (route == "/models" or route.startswith("/models/")):
        # A name with a colon in it is no method of Gemini's here, so only what stands before it tells who asks.
        asker = likely_dialect(path.removesuffix(route) + "/models", request.headers)
        return _models(asker, session.model_name, route)
    try:
        body = await _body(request)
    except (web.HTTPRequestEntityTooLarge, TooLargeError):
        return _error(413, "The request is too large.", dialect)
    except (web.RequestPayloadError, ConnectionError, ValueError):
        return _error(400, "The request body could not be read.", dialect)
    if session.closed:
        return _error(403, "This key is no longer valid.", dialect)
    query = f"?{request.query_string}" if request.query_string else ""
    asked = Request(dialect, path + query, tuple(request.headers.items()), body)
    try:
        if request.method == "POST" and (counter := token_counter(route)) is not None:
            return _reply(200, await session.count_tokens(asked, counter))
        if request.headers.get("Upgrade", "").lower() == "websocket":
            # Programs that try this first fall back on plain requests at this status.
            return _reply(426, await session.reject(asked, 426, "Only plain HTTP requests are answered here."))
        if request.method != "POST" or not _serves(session, dialect, route):
            return _reply(404, await session.reject(asked, 404, "There is nothing at this address."))
        call = session.call(asked)
    except (ValueError, LimitError) as error:
        # 400, because every agent's program stops at it; what looks like a passing failure would be tried again.
        return _reply(400, await session.reject(asked, 400, str(error)))
    with call.followed() as delivery:
        return await _deliver(delivery, request)


def _serves(session: "Session", dialect: Dialect, route: str) -> bool:
    """Whether a POST to this route is a call."""
    return dialect.owns(route) or (responses.compacts(route) and session.model.dialect == responses.NAME)


async def _body(request: web.BaseRequest) -> bytes:
    """The body as the agent meant it. ValueError when it cannot be decompressed."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the reply has not begun
    body = await request.read()
    encoding = request.headers.get("Content-Encoding")
    if encoding is None:
        return body
    # A few bytes can become as many as the limit allows, which takes longer than other calls should wait.
    return await asyncio.to_thread(decompressed, body, encoding, BODY_LIMIT)


async def _deliver(delivery: Delivery, request: web.BaseRequest) -> web.StreamResponse:
    """Follow a delivery to its end."""
    head = await delivery.head()
    if head.body is not None:
        whole = _reply(head.status, head.body, head.headers)
        await whole.prepare(request)
        await whole.write_eof()
        return whole
    response = web.StreamResponse(status=head.status, headers={**head.headers, **_ANONYMOUS})
    await response.prepare(request)
    sent = 0
    while chunks := await delivery.after(sent):
        await response.write(b"".join(chunks))
        sent += len(chunks)
    if delivery.broken and request.transport is not None:
        # Without the end of the body, no client can take the reply for a complete one.
        request.transport.close()
    return response


def _presented_keys(request: web.BaseRequest) -> list[str]:
    """The keys of a request, wherever agents put them."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return [
        token.strip() if scheme.lower() == "bearer" else scheme,
        request.headers.get("x-api-key", ""),
        request.headers.get("x-goog-api-key", ""),
        request.query.get("key", "") if request.query_string else "",
    ]


def _authorised(secret: str, presented: list[str]) -> bool:
    """Whether the secret was presented, and no other key beside it."""
    keys = [key.encode(errors="surrogateescape") for key in presented if key]
    return bool(keys) and all(hmac.compare_digest(key, secret.encode()) for key in keys)


def _models(dialect: Dialect, name: str, route: str) -> web.Response:
    asked = route.removeprefix("/models").removeprefix("/")
    if asked and asked != name:
        return _error(404, "There is no such model.", dialect)
    return _reply(200, msgspec.json.encode(dialect.model_card(name) if asked else dialect.model_list(name)))


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
    """aiohttp's connection without aiohttp's error pages, which tell what runs here."""

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
