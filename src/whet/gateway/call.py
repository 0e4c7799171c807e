"""One model call: the request goes out, the reply is passed on live, the exchange is committed, the end is released."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from whet.exchange import CallError, Exchange, Headers
from whet.gateway.delivery import Delivery, Head
from whet.gateway.dialects import Dialect
from whet.gateway.sse import EventFramer
from whet.gateway.upstream import Incoming, Model, Received, Upstream, UpstreamError
from whet.redact import Redactor

DRAIN_SEC = 60.0
"""How long a reply is still received after the agent hung up, so that its record is whole."""
REQUEST_HEADERS = frozenset({"content-type", "accept", "user-agent"})
"""The headers of the agent that go to the model."""
RESPONSE_HEADERS = frozenset({"content-type", "retry-after", "x-request-id"})
"""The headers of the model that go to the agent."""
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
JSON = {"Content-Type": "application/json"}

TOLD_TO_AGENT = {
    CallError.REFUSED: (502, "The model could not be reached."),
    CallError.TIMEOUT: (504, "The model did not answer in time."),
    CallError.CUT: (502, "The model's reply broke off."),
    CallError.MALFORMED: (502, "The model's reply could not be read."),
    CallError.SEALED: (403, "This key is no longer valid."),
}
"""What an agent is told when there is no reply of the model that it could be given."""


class NotRecordedError(Exception):
    """The exchange could not be committed, so the agent must not see the end of the reply."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call as the agent made it."""

    dialect: Dialect
    path: str
    headers: Headers
    body: bytes


class Call:
    """One call under way: `task` does it, `delivery` is what the agent gets."""

    def __init__(
        self,
        *,
        session: str,
        index: int,
        request: Request,
        model: Model,
        upstream: Upstream,
        for_agent: Redactor,
        commit: Callable[[Exchange], Awaitable[None]],
    ) -> None:
        self.delivery = Delivery()
        self._session = session
        self._index = index
        self._request = request
        self._dialect = request.dialect
        self._model = model
        self._upstream = upstream
        self._for_agent = for_agent
        self._commit = commit

        self._started = time.time()
        self._received = Received()
        self._withheld: list[bytes] = []
        self._finished = False
        self._receiving = True
        """Only while this holds may the task be cancelled: nothing interrupts a commit."""
        self._sealed = False
        self._hung_up = False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            failure = await self._receive()
            response = b"".join(self._received.chunks)
            error = failure or self._verdict(response) or (CallError.HUNG_UP if self._hung_up else None)
            await self._commit(self._exchange(response, error))
            self._release(response, error)
        except NotRecordedError:
            self._refuse(500, "The reply could not be recorded.")
        finally:
            # An agent must not wait for ever for a call that a defect ended.
            if not self.delivery.ended:
                self._refuse(500, "The call failed.")

    def seal(self) -> None:
        """The session is closing: stop receiving."""
        self._sealed = True
        self._stop()

    def hang_up(self) -> None:
        """The agent has gone: receive the rest for the record, but not for ever."""
        if self._receiving and not self._hung_up:
            self._hung_up = True
            asyncio.get_running_loop().call_later(DRAIN_SEC, self._stop)

    def _stop(self) -> None:
        if self._receiving:
            self.task.cancel()

    async def _receive(self) -> CallError | None:
        """Receive the reply, passing on all but its end. Says what prevented it from being complete."""
        try:
            async with self._upstream.send(
                self._model, self._dialect.UPSTREAM_PATH, self._headers_for_model(), self._request.body, self._received
            ) as incoming:
                if self._received.streamed:
                    await self._pass_on(incoming)
                else:
                    while await incoming.read():
                        pass
        except UpstreamError as failure:
            # A finished reply lacks nothing, and an error status says enough without the rest of its body.
            return None if self._finished or self._received.failed else failure.error
        except asyncio.CancelledError:
            self.task.uncancel()
            return CallError.HUNG_UP if self._hung_up and not self._sealed else CallError.SEALED
        finally:
            self._receiving = False
        return None

    async def _pass_on(self, incoming: Incoming) -> None:
        self.delivery.begin(Head(200, self._headers_for_agent() | STREAM_HEADERS))
        framer = EventFramer()
        while chunk := await incoming.read():
            for event in framer.feed(chunk):
                self._finished = self._finished or self._dialect.finishes(event)
                if not self._finished:
                    self.delivery.put(event)
                    continue
                self._withheld.append(event)
                if self._dialect.is_last(event):
                    incoming.expect_end()
        rest = framer.rest()
        self._finished = self._finished or self._dialect.finishes(rest)
        self._withheld.append(rest)

    def _verdict(self, response: bytes) -> CallError | None:
        """What is wrong with a reply that was received to its end."""
        if self._received.status in {401, 403}:
            return CallError.AUTH
        if self._received.failed:
            return CallError.STATUS
        if not self._dialect.is_reply(response, self._received.streamed):
            return CallError.MALFORMED
        if self._received.streamed and not self._finished:
            return CallError.CUT
        return None

    def _exchange(self, response: bytes, error: CallError | None) -> Exchange:
        received = self._received
        return Exchange(
            session=self._session,
            index=self._index,
            dialect=self._dialect.NAME,
            path=self._request.path,
            request_headers=self._request.headers,
            request=self._request.body,
            upstream=self._model.address(self._dialect.UPSTREAM_PATH),
            status=received.status,
            response_headers=received.headers,
            response=response,
            attempts=received.attempts,
            error=error,
            started=self._started,
            first_byte=received.first_byte,
            ended=time.time(),
            usage=self._dialect.usage(response, received.streamed) if received.succeeded else None,
        )

    def _release(self, response: bytes, error: CallError | None) -> None:
        """Give the agent what was withheld, now that it is in the record."""
        if error in TOLD_TO_AGENT:
            self._refuse(*TOLD_TO_AGENT[error])
        elif self.delivery.begun:
            self.delivery.put(b"".join(self._withheld))
            self.delivery.end()
        elif self._received.succeeded:
            self.delivery.begin(Head(200, self._headers_for_agent(), response))
        elif self._received.status is not None:
            body = self._error_for_agent(self._received.status, response)
            self.delivery.begin(Head(self._received.status, self._headers_for_agent() | JSON, body))

    def _refuse(self, status: int, message: str) -> None:
        if self.delivery.begun:
            self.delivery.put(self._dialect.error_event(message))
            self.delivery.end(broken=True)
        else:
            self.delivery.begin(Head(status, JSON, self._dialect.error_body(status, message)))

    def _error_for_agent(self, status: int, response: bytes) -> bytes:
        """The provider's own words without secrets and addresses; a web page of some server in between is not his."""
        try:
            msgspec.json.decode(response, type=dict[str, msgspec.Raw])
        except ValueError:
            return self._dialect.error_body(status, f"The model answered with status {status}.")
        return self._for_agent.bytes(response)

    def _headers_for_model(self) -> dict[str, str]:
        passed = {name: value for name, value in self._request.headers if name.lower() in REQUEST_HEADERS}
        return passed | (self._dialect.credentials(self._model.key) if self._model.key else {})

    def _headers_for_agent(self) -> dict[str, str]:
        return {name.title(): value for name, value in self._received.headers if name.lower() in RESPONSE_HEADERS}
