"""The HTTP server: uvicorn with bounds on connections that are slow, idle or too many, and with a stop of its own."""

import asyncio
import resource
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from whet.errors import UserError
from whet.serve.guard import MOST_BODY_BYTES

HEADER_SEC = 15.0
"""How long the head of a request may take to arrive."""
IDLE_SEC = 30
"""How long a connection stays open after a reply. Trainers call again and again."""
STALLED_SEC = 60.0
"""A client that takes nothing of a reply for this long is cut off."""
MOST_HEADER_BYTES = 64 << 10
MOST_CONNECTIONS = 4096
"""Connections, of all callers together. Further ones are closed at once."""
GOODBYE_SEC = 5
"""How long replies that are under way get when the server stops."""
_WANTED_FILES = 65_536


class _Stalled:
    """Cuts a connection off whose client does not read."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(STALLED_SEC, cut_off, self._transport)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def cut_off(transport: asyncio.Transport) -> None:
    """End a connection at once, and drop what its client has not read, in the kernel as well."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class HttpProtocol(H11Protocol):
    """A connection whose requests must arrive, and whose replies must be read, within a time."""

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        full = len(self.connections) >= MOST_CONNECTIONS
        super().connection_made(transport)
        self._stalled = _Stalled(transport)
        if full:
            cut_off(transport)
        else:
            self._await_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_protocol() is not self or self._is_busy():
            self._stop_awaiting_header()
        elif self.timeout_keep_alive_task is None:
            # A part of a request, or of a body whose request was answered already.
            self._await_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_awaiting_header()
        self._stalled.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._stalled.begin()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled.end()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP. A request whose body it is has been passed on: nothing more is sent for it."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            # A reply is under way, or may not have a body.
            self.transport.close()
        if self._is_busy():
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_awaiting_header()
        super().handle_websocket_upgrade(event)

    def _is_busy(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _await_header(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SEC, cut_off, self.transport)

    def _stop_awaiting_header(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class SocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket whose client must read what is sent to it, and answer pings."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._stalled = _Stalled(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stalled.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._stalled.begin()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled.end()
        super().resume_writing()

    def send_receive_event_to_app(self) -> None:
        """Close a socket whose text is not UTF-8. uvicorn would write a traceback for each, and fail on one that is
        closing already."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
        else:
            super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        if self.close_sent and message["type"] == "websocket.send":
            raise ClientDisconnected  # it was closed because of what the client sent
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # by a refusal, which uvicorn would report as an error

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        # A close would wait for a client that does not read.
        cut_off(self.transport)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class HttpServer(Server):
    """uvicorn's server, which leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at this address. UserError when it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"`host` is '{host}': {error.strerror}; expected an address of this machine") from error
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise UserError(f"cannot listen on {host} port {port}: {error.strerror}; name another `port`") from error
    return opened


@asynccontextmanager
async def serve_http(app: ASGIApp, listening: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a socket for as long as this is open."""
    _allow_many_files()
    server = HttpServer(_configure(app))
    running = asyncio.create_task(server.serve([listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error


def _configure(app: ASGIApp) -> Config:
    settings: dict[str, Any] = {"http": HttpProtocol, "ws": SocketProtocol}
    return Config(
        app,
        **settings,
        log_config=None,
        log_level="error",  # whoever sends nonsense must not fill the log
        access_log=False,
        lifespan="off",
        proxy_headers=False,  # who calls is known by its token, never by a header that anybody may send
        server_header=False,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        ws_max_size=MOST_BODY_BYTES,
        ws_per_message_deflate=False,  # compressing a large result would keep all others waiting
        timeout_keep_alive=IDLE_SEC,
        timeout_graceful_shutdown=GOODBYE_SEC,
    )


def _allow_many_files() -> None:
    """Many systems let a process have 1,024 files and sockets open, unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
