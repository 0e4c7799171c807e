"""Replies that take a while: JSON that comes when something is done, and events as they happen."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from whet.client.models import Event, Problem, Status
from whet.serve.access import Caller
from whet.serve.problems import Refused
from whet.serve.replies import JSON, json_reply
from whet.serve.rest.parts import Parts

PULSE_SEC = 1.0
"""A space is sent so often while a reply is not there yet. Clients and proxies count their time-outs per read."""
HEARTBEAT_SEC = 10.0
"""A comment is sent so often while there is no event."""
RETRY_MS = 1000
"""How soon a client is to come back that lost its stream."""
_BUFFER_NONE = {"X-Accel-Buffering": "no"}
"""Asks proxies to pass on what they get."""


async def wait_reply(
    parts: Parts,
    read: Callable[[], Awaitable[BaseModel]],
    wait: Callable[[float], Awaitable[BaseModel]],
    seconds: float,
    status: int = 200,
    now: BaseModel | None = None,
) -> Response:
    """Something as it is now, or when it is done, if that is within these seconds. Spaces come first meanwhile. `now`
    is how it is, if the caller knows."""
    now = now or await read()
    first = min(seconds, PULSE_SEC)
    if first and not _is_done(now):
        now = await wait(first)
    if seconds <= first or _is_done(now):
        return json_reply(now, status)
    body = _when_done(parts.stopping, read, wait, seconds - first)
    return StreamingResponse(body, status, _BUFFER_NONE, JSON)


def _is_done(model: BaseModel) -> bool:
    return getattr(model, "status", None) is Status.DONE


async def _when_done(
    stopping: asyncio.Event,
    read: Callable[[], Awaitable[BaseModel]],
    wait: Callable[[float], Awaitable[BaseModel]],
    seconds: float,
) -> AsyncGenerator[bytes, None]:
    waiting = asyncio.ensure_future(wait(seconds))
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        yield b" "
        while not (done := await _first_of(waiting, stopped, PULSE_SEC)):
            yield b" "
        found = await (waiting if waiting in done else read())
        yield found.model_dump_json().encode()
    except Refused as refused:
        # The status has been sent already.
        yield Problem(error=str(refused), code=refused.code).model_dump_json().encode()
    finally:
        await _end(waiting, stopped)


def event_reply(parts: Parts, caller: Caller, events: AsyncIterator[tuple[str, Event]]) -> Response:
    """Events, each with its id, as server-sent events."""
    parts.check_streams(caller)
    body = _format_events(parts, caller, events)
    return StreamingResponse(body, 200, _BUFFER_NONE, "text/event-stream")


async def _format_events(
    parts: Parts, caller: Caller, events: AsyncIterator[tuple[str, Event]]
) -> AsyncGenerator[bytes, None]:
    stopped = asyncio.ensure_future(parts.stopping.wait())
    coming = asyncio.ensure_future(anext(events, None))
    try:
        with parts.count_stream(caller):
            yield f"retry: {RETRY_MS}\n\n".encode()
            while True:
                done = await _first_of(coming, stopped, HEARTBEAT_SEC)
                if coming in done:
                    if (found := coming.result()) is None:
                        return
                    name, event = found
                    yield f"id: {name}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n".encode()
                    coming = asyncio.ensure_future(anext(events, None))
                elif stopped in done:
                    return
                else:
                    yield b": still there\n\n"
    finally:
        await _end(coming, stopped)
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def _first_of(one: "asyncio.Future[Any]", other: "asyncio.Future[Any]", seconds: float) -> set[Any]:
    done, _ = await asyncio.wait({one, other}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return done


async def _end(*futures: "asyncio.Future[Any]") -> None:
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)
