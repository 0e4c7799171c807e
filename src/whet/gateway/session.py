"""Session: one rollout's part of the gateway, with its own secret, its own ports, its counters and its calls."""

import asyncio
import logging
import socket
from dataclasses import replace
from urllib.parse import urlsplit

from whet.exchange import CallError, Exchange, Headers, Recorder, Usage
from whet.gateway.call import Call, NotRecordedError, Request
from whet.gateway.server import http_server
from whet.gateway.upstream import Model, Upstream
from whet.ids import new_secret
from whet.redact import Redactor

logger = logging.getLogger(__name__)

SECRET_HEADERS = frozenset(
    {"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "x-goog-api-key"}
)
WITHOUT_TOKENS = frozenset({CallError.REFUSED, CallError.STATUS, CallError.AUTH})
"""Calls that ended so used no tokens; of all others without a count, the usage is unknown."""
SHUTDOWN_SEC = 5.0
BACKLOG = 1024


class Session:
    """Answers one rollout's model calls and records them until it is closed."""

    def __init__(self, session_id: str, model: Model, record: Recorder, redactor: Redactor, upstream: Upstream) -> None:
        self.id = session_id
        self.model = model
        self.secret = new_secret()
        self.calls = 0
        self.answered = 0
        """How many calls went well."""
        self.usage = Usage()
        self.calls_without_usage = 0
        """How many calls may have used tokens that `usage` does not count."""
        self.last_error: CallError | None = None
        """How the call that ended last went wrong; None when it went well."""
        self.last_status: int | None = None
        self.auth_failed = False
        """The model's endpoint refused the provider's key."""
        self.record_error: Exception | None = None
        """Why an exchange could not be committed."""
        self.closed = False

        self._record = record
        self._upstream = upstream
        address = urlsplit(model.url)
        self._redactor = redactor.also(self.secret, model.key or "")
        self._for_agent = self._redactor.also(model.url, address.netloc, address.hostname or "")
        self._under_way: dict[asyncio.Task[None], Call] = {}
        self._http = http_server(self)
        self._listeners: list[asyncio.Server] = []

    async def serve(self, sock: socket.socket) -> None:
        """Answer what connects to this listening socket. The session owns the socket from now on."""
        loop = asyncio.get_running_loop()
        self._listeners.append(await loop.create_server(self._http, sock=sock, backlog=BACKLOG))

    async def listen(self) -> str:
        """Listen on a free port of the host's loopback interface, and return the address without /v1."""
        sock = socket.create_server(("127.0.0.1", 0))
        await self.serve(sock)
        return f"http://127.0.0.1:{sock.getsockname()[1]}"

    def start_call(self, request: Request) -> Call:
        """Begin a call. It goes on when the agent hangs up, and ends at the latest when the session is closed."""
        assert not self.closed
        call = Call(
            session=self.id,
            index=self.calls,
            request=request,
            model=self.model,
            upstream=self._upstream,
            for_agent=self._for_agent,
            commit=self._commit,
        )
        self.calls += 1
        self._under_way[call.task] = call
        call.task.add_done_callback(self._call_ended)
        return call

    async def close(self) -> None:
        """Stop listening and cut the calls under way. When this returns, each has its record and no more follow."""
        self.closed = True
        for listener in self._listeners:
            listener.close()
        # A task that is cancelled before its first step would leave no record.
        await asyncio.sleep(0)
        for call in self._under_way.values():
            call.seal()
        if self._under_way:
            await asyncio.wait(self._under_way)
        for connection in self._http.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._http.shutdown(SHUTDOWN_SEC)
        await asyncio.gather(*(listener.wait_closed() for listener in self._listeners))

    async def _commit(self, exchange: Exchange) -> None:
        self._count(exchange)
        try:
            await self._record(self._redacted(exchange))
        except Exception as error:
            self.record_error = error
            raise NotRecordedError from error

    def _count(self, exchange: Exchange) -> None:
        self.answered += exchange.error is None
        self.last_error, self.last_status = exchange.error, exchange.status
        self.auth_failed = self.auth_failed or exchange.error is CallError.AUTH
        if exchange.usage is not None:
            self.usage += exchange.usage
        elif exchange.error not in WITHOUT_TOKENS:
            self.calls_without_usage += 1

    def _redacted(self, exchange: Exchange) -> Exchange:
        return replace(
            exchange,
            path=self._redactor.text(exchange.path),
            request_headers=self._redacted_headers(exchange.request_headers),
            request=self._redactor.bytes(exchange.request),
            upstream=self._redactor.text(exchange.upstream),
            response_headers=self._redacted_headers(exchange.response_headers),
            response=self._redactor.bytes(exchange.response),
        )

    def _redacted_headers(self, headers: Headers) -> Headers:
        return tuple(
            (name, self._redactor.text(value)) for name, value in headers if name.lower() not in SECRET_HEADERS
        )

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a model call of session %s failed", self.id, exc_info=error)
