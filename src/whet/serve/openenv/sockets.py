"""The WebSockets: `/ws` with OpenEnv's frames, `/mcp` with JSON-RPC. One request, one reply, in order.

While a tool runs, the socket is still read: a client that goes away frees its slot at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from whet.serve.access import Caller
from whet.serve.openenv.environment import OpenEnv
from whet.serve.openenv.frames import (
    CloseMessage,
    ErrorCode,
    FrameError,
    Message,
    ResetMessage,
    RpcMessage,
    StateMessage,
    StepMessage,
    error_frame,
    observation_frame,
    read_frame,
    validation_error,
)
from whet.serve.openenv.rpc import RpcCode, RpcError, RpcRequest, check_request, failure, read_request, success
from whet.serve.openenv.sessions import CapacityError, Session, SessionError
from whet.serve.openenv.sizes import HTTP_BYTES, SOCKET_BYTES
from whet.serve.problems import Refused

REFUSAL_SEC = 2.0
"""How long a socket that got no session stays open, so that its client can read why."""
WAITING_FRAMES = 16
"""Frames of one socket that wait for the one before them. Further ones are not read yet."""
LARGE_CHARS = 1 << 20
"""A frame that is longer waits alone: many of them, on many sockets, would fill the memory."""
CLOSE_CHARS = 1000
"""A frame that is longer does not ask for the end."""

Json = dict[str, Any]
Answer = Callable[[str], Awaitable[Json | None]]
"""What is sent in reply to a frame; None for nothing."""


class _Closed(Exception):  # noqa: N818 - an event, not an error
    """The client asked for the end."""


async def serve_frames(websocket: WebSocket, openenv: OpenEnv, caller: Caller) -> None:
    """Serve `/ws`: with a session of its own, or attached to one that was created over HTTP."""
    await websocket.accept()
    ended, name = asyncio.Event(), websocket.query_params.get("session_id")
    try:
        session = openenv.sessions.find(name, caller.name) if name else openenv.sessions.create(caller.name)
        openenv.sessions.attach(session, ended.set)
    except CapacityError as full:
        refusal = FrameError(ErrorCode.CAPACITY_REACHED, str(full), active_sessions=full.active, max_sessions=full.most)
        await _refuse(websocket, error_frame(refusal))
        return
    except SessionError as error:
        await _refuse(websocket, error_frame(FrameError(ErrorCode.SESSION_ERROR, str(error))))
        return
    session.closing = not name  # its slot is as old as its socket
    # Clients that attach to a session came later than those that refuse large frames.
    frames = _Frames(openenv, session, caller, HTTP_BYTES if name else SOCKET_BYTES)
    try:
        await _serve(websocket, frames.answer, ended)
    finally:
        openenv.sessions.detach(session)


async def serve_rpc(websocket: WebSocket, openenv: OpenEnv, caller: Caller) -> None:
    """Serve `WS /mcp`, with a session of its own."""
    await websocket.accept()
    ended = asyncio.Event()
    try:
        session = openenv.sessions.create(caller.name)
    except CapacityError as full:
        data = {"active_sessions": full.active, "max_sessions": full.most}
        await _refuse(websocket, failure(None, RpcError(RpcCode.SERVER_ERROR, str(full), data)))
        return
    openenv.sessions.attach(session, ended.set)
    session.closing = True

    async def answer(frame: str) -> Json | None:
        return await answer_rpc(openenv, caller, lambda: read_request(frame), session, HTTP_BYTES)

    try:
        await _serve(websocket, answer, ended)
    finally:
        openenv.sessions.detach(session)


async def answer_rpc(
    openenv: OpenEnv, caller: Caller, read: Callable[[], RpcRequest], session: Session | None, most_bytes: int
) -> Json | None:
    """The reply to a JSON-RPC request, whatever becomes of it; None for a notification."""
    request: RpcRequest | None = None
    try:
        request = read()
        if request.is_notification:
            return None
        return success(request.id, await openenv.answer(request, caller, session, most_bytes))
    except RpcError as error:
        return failure(request.id if request else None, error)


class _Frames:
    """Answers the frames of one socket."""

    def __init__(self, openenv: OpenEnv, session: Session, caller: Caller, most_bytes: int) -> None:
        self._openenv, self._session, self._caller, self._most_bytes = openenv, session, caller, most_bytes

    async def answer(self, frame: str) -> Json | None:
        try:
            message = read_frame(frame)
            with self._session.use():
                return await self._answer(message)
        except FrameError as error:
            return error_frame(error)
        except ValidationError as error:
            return error_frame(validation_error(error))
        except Refused as refused:
            return error_frame(FrameError(ErrorCode.EXECUTION_ERROR, str(refused)))

    async def _answer(self, message: Message) -> Json | None:
        openenv, session, caller = self._openenv, self._session, self._caller
        match message:
            case ResetMessage(data=data):
                return observation_frame(openenv.reset(session, data))
            case StepMessage(data=data):
                return observation_frame(await openenv.step(session, caller, data, self._most_bytes))
            case StateMessage():
                return {"type": "state", "data": openenv.state(session)}
            case RpcMessage(data=data):
                reply = await answer_rpc(openenv, caller, lambda: check_request(data), session, self._most_bytes)
                return {"type": "mcp", "data": reply} if reply is not None else None
            case CloseMessage():
                raise _Closed


async def _serve(websocket: WebSocket, answer: Answer, ended: asyncio.Event) -> None:
    """Answer the frames of a socket in order, until it is closed by either side."""
    frames: asyncio.Queue[str] = asyncio.Queue(WAITING_FRAMES)
    parts = [
        asyncio.create_task(_receive(websocket, frames)),
        asyncio.create_task(_reply(websocket, frames, answer)),
        asyncio.create_task(ended.wait()),
    ]
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in parts:
            part.cancel()
        await asyncio.wait(parts)
    await _close(websocket)
    for part in done:
        if part.cancelled():
            continue
        if (error := part.exception()) is not None and not isinstance(error, _Closed | WebSocketDisconnect):
            raise error


async def _receive(websocket: WebSocket, frames: asyncio.Queue[str]) -> None:
    """Read frames until the client is gone, or asks for the end."""
    while (message := await websocket.receive())["type"] == "websocket.receive":
        frame = message.get("text")
        frame = message["bytes"].decode(errors="replace") if frame is None else frame
        if _asks_for_close(frame):
            return  # at once, also while a tool runs
        if len(frame) > LARGE_CHARS:
            await frames.join()
        await frames.put(frame)


def _asks_for_close(frame: str) -> bool:
    if len(frame) > CLOSE_CHARS or '"close"' not in frame:
        return False
    try:
        return isinstance(read_frame(frame), CloseMessage)
    except FrameError:
        return False


async def _reply(websocket: WebSocket, frames: asyncio.Queue[str], answer: Answer) -> None:
    while True:
        reply = await answer(await frames.get())
        if reply is not None:
            await websocket.send_text(encode(reply).decode())
        frames.task_done()


def encode(reply: Json) -> bytes:
    """A reply as JSON. Long texts in it are encoded already."""
    return msgspec.json.encode(reply)


async def _refuse(websocket: WebSocket, reply: Json) -> None:
    """Say why there is no session, and wait a little: a client that sends first would not read a closed socket."""
    await websocket.send_text(encode(reply).decode())
    with suppress(TimeoutError, WebSocketDisconnect):
        async with asyncio.timeout(REFUSAL_SEC):
            await websocket.receive()
    await _close(websocket)


async def _close(websocket: WebSocket) -> None:
    if websocket.client_state is WebSocketState.CONNECTED and websocket.application_state is WebSocketState.CONNECTED:
        with suppress(WebSocketDisconnect, RuntimeError):  # it may have been lost just now
            await websocket.close(1000)
