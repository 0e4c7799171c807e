"""Streamable HTTP: the SDK's transport behind the guard of the server, which has checked the caller and the body."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.serve.access import Caller
from whet.serve.guard import MOST_BODY_BYTES, caller_of
from whet.serve.mcp.served import Served
from whet.serve.mcp.server import Context, make_server
from whet.serve.problems import Code, Refused
from whet.serve.runs import Runs
from whet.serve.service import Service

MOST_SESSIONS = 64
"""Sessions that one caller may have open. Clients of protocol 2026-07-28 need none."""
IDLE_SEC = 1800.0
"""A session that sends nothing, and waits for nothing, is closed after this time."""
GOODBYE_SEC = 3.0
"""How long calls get to end when the server stops."""


@asynccontextmanager
async def open_mcp(
    service: Service, runs: Runs, callers: Iterable[Caller], stopping: asyncio.Event
) -> AsyncIterator[ASGIApp]:
    """What answers MCP clients, for as long as this is open. Requests have passed the guard. When `stopping` is set,
    calls end that wait for a rollout, and then all sessions.

    Every caller has sessions of its own: nobody can use another's, nor take all there are.
    """
    served = Served(service, runs, _describe_rest, stopping)
    managers = {caller.name: _make_manager(served) for caller in callers}
    calls: set[asyncio.Task[Any]] = set()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if stopping.is_set():
            raise Refused(Code.DRAINING, "the server is about to stop")
        caller, task = caller_of(HTTPConnection(scope)), asyncio.current_task()
        assert task is not None
        if scope["method"] == "POST":
            calls.add(task)
            task.add_done_callback(calls.discard)
        await managers[caller.name].handle_request(scope, receive, _refuse_as_busy(send))

    async def keep_running() -> None:
        async with AsyncExitStack() as stack:
            for manager in managers.values():
                await stack.enter_async_context(manager.run())
            running.set()
            await stopping.wait()
            if calls:
                await asyncio.wait(calls, timeout=GOODBYE_SEC)

    running = asyncio.Event()
    with _quiet():
        # In a task of their own: the SDK's task groups must be left by the task that entered them.
        keeping = asyncio.create_task(keep_running())
        try:
            await running.wait()
            yield answer
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep out of the log what clients can cause as often as they like: the SDK logs refused requests, and a traceback
    for each request whose client ends its own session meanwhile."""
    levels = {"mcp.server": logging.ERROR, "mcp.server.streamable_http": logging.CRITICAL}
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _refuse_as_busy(send: Send) -> Send:
    """The SDK answers 503 to a caller who has too many sessions open. It is 429, as everywhere on this server."""

    async def send_status(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
            message = {**message, "status": Code.BUSY.status}
        await send(message)

    return send_status


def _make_manager(served: Served) -> StreamableHTTPSessionManager:
    async def ready() -> Served:
        return served

    return StreamableHTTPSessionManager(
        make_server(ready, _caller),
        # The guard has looked at Host and Origin, by the same rules for all protocols.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        session_idle_timeout=IDLE_SEC,
        max_request_body_size=MOST_BODY_BYTES,
        max_sessions=MOST_SESSIONS,
    )


def _caller(context: Context) -> Caller:
    assert isinstance(context.request, HTTPConnection)
    return caller_of(context.request)


def _describe_rest(rollout: str) -> str:
    place = f"/v1/rollouts/{rollout}"
    return f"rows and files: GET {place}/rows and {place}/files at this server"
