"""HTTP in: what an agent asks for and whether it may; answers in its dialect, and tells nothing of the host."""

import asyncio
import functools
import hmac
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from whet.gateway.call import JSON, Call, Request
from whet.gateway.dialects import Dialect, by_route, chat

if TYPE_CHECKING:
    from whet.gateway.session import Session

logger = logging.getLogger(__name__)

BODY_LIMIT = 256 << 20
HEADER_LIMIT = 64 << 10

_ANONYMOUS = {"Server": ""}
"""Keeps aiohttp from naming itself, its version and Python's."""

_PATH_SECRET = re.compile(r"^/s/([^/]*)")
_VERSION = re.compile(r"^(?:/v1)+(?=/|$)")


def http_server(session: "Session") -> web.Server:
    """The server that answers for this session only."""
    return _Server(
        functools.partial(_answer, session),
        request_factory=_request,
        handler_cancellation=True,
        access_log=None,
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
    )


async def _answer(session: "Session", request: web.BaseRequest) -> web.StreamResponse:
    prefix = _PATH_SECRET.match(request.path)
    path = request.path.removeprefix(prefix[0]) if prefix else request.path
    route = _VERSION.sub("", path) or "/"
    dialect = by_route(route)

    if request.method == "OPTIONS":
        return _reply(204)
    if route == "/" and request.method in {"GET", "HEAD"}:
        return _reply(200, b"{}")
    if not _authorised(session.secret, request, prefix[1] if prefix else ""):
        return _error(401, "Incorrect API key provided.", dialect)
    if request.method == "GET" and (route == "/models" or route.startswith("/models/")):
        return _models(session.model.upstream_name, route.removeprefix("/models").removeprefix("/"))
    if request.method != "POST" or dialect is None or session.model.dialect != dialect.NAME:
        return _error(404, "There is nothing at this address.", dialect)

    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return _error(413, "The request is too large.", dialect)
    except (web.RequestPayloadError, ConnectionError):
        return _error(400, "The request body could not be read.", dialect)
    if session.closed:
        return _error(403, "This key is no longer valid.", dialect)
    query = f"?{request.query_string}" if request.query_string else ""
    call = session.start_call(Request(dialect, path + query, tuple(request.headers.items()), body))
    try:
        return await _deliver(call, request)
    except (asyncio.CancelledError, ConnectionError):
        call.hang_up()
        raise


async def _deliver(call: Call, request: web.BaseRequest) -> web.StreamResponse:
    """Follow the call's delivery to its end."""
    delivery = call.delivery
    head = await delivery.head()
    if head.body is not None:
        return _reply(head.status, head.body, head.headers)
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


def _authorised(secret: str, request: web.BaseRequest, in_path: str) -> bool:
    """Whether the request carries the secret, and no other key beside it."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    presented = [
        in_path,
        token.strip() if scheme.lower() == "bearer" else scheme,
        request.headers.get("x-api-key", ""),
        request.headers.get("x-goog-api-key", ""),
        request.query.get("key", ""),
    ]
    keys = [key.encode(errors="surrogateescape") for key in presented if key]
    return bool(keys) and all(hmac.compare_digest(key, secret.encode()) for key in keys)


def _models(name: str, asked: str) -> web.Response:
    if asked and asked != name:
        return _error(404, "There is no such model.", chat)
    card = chat.model_card(name)
    return _reply(200, msgspec.json.encode(card if asked else {"object": "list", "data": [card]}))


def _reply(status: int, body: bytes | None = None, headers: Mapping[str, str] = JSON) -> web.Response:
    return web.Response(status=status, body=body, headers={**headers, **_ANONYMOUS})


def _error(status: int, message: str, dialect: Dialect | None) -> web.Response:
    return _reply(status, (dialect or chat).error_body(status, message))


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
