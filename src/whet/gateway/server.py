"""HTTP in: what an agent asks for and whether it may; answers in its dialect, and tells nothing of the host."""

import asyncio
import functools
import hmac
import logging
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web

from whet.errors import UserError
from whet.gateway.buffers.decompress import decoder
from whet.gateway.buffers.memory import BODY_LIMIT, LARGE, Memory, TooLargeError, check_decoded_size
from whet.gateway.buffers.reply_buffer import ReplyBuffer
from whet.gateway.buffers.spool import Spool
from whet.gateway.calls.call import JSON, Call, Request
from whet.gateway.dialects import (
    Dialect,
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
"""Keeps aiohttp from naming itself, its version and Python's."""

_PATH_SECRET = re.compile(r"^/s/([^/]*)")


def http_server(session: Session) -> web.Server:
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


async def _answer(session: Session, request: web.BaseRequest) -> web.StreamResponse:
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
    query = f"?{request.query_string}" if request.query_string else ""
    found = await _call(session, request, Request(dialect, path + query, tuple(request.headers.items()), b""), route)
    if isinstance(found, web.Response):
        return found
    with found.followed() as delivery:
        return await _deliver(delivery, request)


async def _call(session: Session, request: web.BaseRequest, asked: Request, route: str) -> Call | web.Response:
    """The call that a request makes, or the answer to one that makes none. Nothing here outlives it but the call."""
    try:
        spool = await _body(session.memory, request)
    except (TooLargeError, UserError):
        return await _reject_unread(session, asked, 413, "The request is too large.")
    except (web.RequestPayloadError, ConnectionError, ValueError):
        return await _reject_unread(session, asked, 400, "The request body could not be read.")
    hold, kept = await session.share.hold(spool.size), False
    try:
        asked = replace(asked, body=spool.read())
        spool.close()
        check_decoded_size(asked.body)
        if session.closed:
            return _error(403, "This key is no longer valid.", asked.dialect)
        if request.method == "POST" and (counter := token_counter(route)) is not None:
            return _reply(200, await session.count_tokens(asked, counter))
        if request.headers.get("Upgrade", "").lower() == "websocket":
            # Programs that try this first fall back on plain requests at this status.
            return _reply(426, await session.reject(asked, 426, "Only plain HTTP requests are answered here."))
        if request.method != "POST" or not _serves(session, asked.dialect, route):
            return _reply(404, await session.reject(asked, 404, "There is nothing at this address."))
        async with session.memory.large if len(asked.body) > LARGE else nullcontext():
            if _has_closed(session):
                return _error(403, "This key is no longer valid.", asked.dialect)
            call = session.call(asked, hold.release)
        kept = True
        return call
    except TooLargeError:
        return await _reject_unread(session, replace(asked, body=b""), 413, "The request is too large.")
    except (ValueError, LimitError) as error:
        # 400, because every agent's program stops at it; what looks like a passing failure would be tried again.
        return _reply(400, await session.reject(asked, 400, str(error)))
    finally:
        if not kept:
            hold.release()


def _has_closed(session: Session) -> bool:
    """Whether the session was closed while a request waited."""
    return session.closed


async def _reject_unread(session: Session, asked: Request, status: int, message: str) -> web.Response:
    """Answer a request whose body cannot be had. The record says so, without the body."""
    if session.closed:
        return _error(status, message, asked.dialect)
    return _reply(status, await session.reject(asked, status, message))


def _serves(session: Session, dialect: Dialect, route: str) -> bool:
    """Whether a POST to this route is a call."""
    return dialect.owns(route) or (responses.compacts(route) and session.model.dialect == responses.NAME)


async def _body(memory: Memory, request: web.BaseRequest) -> Spool:
    """The body as the agent meant it. ValueError when it cannot be decompressed, TooLargeError when it is too large."""
    decode = decoder(request.headers.get("Content-Encoding", ""))
    if (request.content_length or 0) > BODY_LIMIT:
        raise TooLargeError
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11:
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


async def _deliver(delivery: ReplyBuffer, request: web.BaseRequest) -> web.StreamResponse:
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
    while chunk := await delivery.after(sent):
        await response.write(chunk)
        sent += len(chunk)
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
