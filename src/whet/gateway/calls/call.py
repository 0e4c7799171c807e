"""One model call: the request goes out, the reply is passed on live, the exchange is committed, the end is released."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass

from whet.exchange import CallError, Exchange, Headers, Speaker, Usage
from whet.gateway.buffers.memory import EVENT_LIMIT, LARGE, MOST_EVENTS, Memory, TooLargeError, check_decoded_size
from whet.gateway.buffers.reply_buffer import Head, ReplyBuffer
from whet.gateway.call_bounds import bound_of
from whet.gateway.dialects import DIALECTS, Dialect
from whet.gateway.guards.screened import ScreenedRequests
from whet.gateway.limits import Allowance, LimitError
from whet.gateway.model import Model
from whet.gateway.prices import price_for
from whet.gateway.replay.cache import CacheLookup, Replay, Replayed
from whet.gateway.replay.recording import RecordedReply
from whet.gateway.sse import EventFramer
from whet.gateway.token_capture import check_tokens
from whet.gateway.translate import choose_translation
from whet.gateway.upstream.client import (
    Incoming,
    Received,
    Upstream,
    UpstreamError,
)
from whet.gateway.upstream.headers import headers_for_model, secrets_for_model
from whet.ids import digest
from whet.redact import Redactor

logger = logging.getLogger(__name__)

DRAIN_SEC = 60.0
"""How long a reply is still received after the agent hung up, so that its record is whole."""
RESPONSE_HEADERS = frozenset({"content-type", "retry-after", "x-request-id"})
"""The headers of the model that go to the agent."""
GRACE_SEC = 15.0
"""How long an agent that wants a stream waits for its beginning before it is told that the call is alive."""
KEEP_ALIVE_SEC = 5.0
_PLAIN_HEADER = re.compile(r"[\t -~]{0,4096}")
JSON = {"Content-Type": "application/json"}

TOLD_TO_AGENT = {
    CallError.REFUSED: (502, "The model could not be reached."),
    CallError.TIMEOUT: (504, "The model did not answer in time."),
    CallError.CUT: (502, "The model's reply broke off."),
    CallError.MALFORMED: (502, "The model's reply could not be read."),
    CallError.TOO_LARGE: (502, "The model's reply is too large."),
    CallError.AUTH: (403, "The model refused the credentials."),
    # As with every refusal of ours, a status that no agent's program takes for a passing failure.
    CallError.NOT_CACHED: (400, "There is no recorded reply to this request, and no model may be asked."),
    CallError.DIVERGED: (400, "The conversation is not the one that was recorded; there will be no further replies."),
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
    """One call under way: `task` does it, `delivery` is what the agent gets. ValueError for a request of no sense."""

    def __init__(
        self,
        *,
        session: str,
        index: int,
        request: Request,
        model: Model,
        upstream: Upstream,
        for_agent: Redactor,
        commit: Callable[[Exchange, str, Allowance], Awaitable[None]],
        redactor: Callable[..., Redactor],
        replay: Replay | None,
        seen: ScreenedRequests,
        memory: Memory,
        allowance: Allowance,
        room: AbstractAsyncContextManager[None],
    ) -> None:
        self.delivery = ReplyBuffer(memory.spool())
        self._memory = memory
        self._session = session
        self._index = index
        self._request = request
        self._path = request.path
        self._body: bytes | str = request.body
        """What a retry is known by. Of a call that has ended, it may be a digest of the body."""
        self._front = request.dialect
        self._back = DIALECTS[model.dialect]
        self._asked = seen.look(request.body, (request.dialect.NAME, model.dialect))
        self._crossing = choose_translation(request.dialect, request.path, self._asked, model)
        self._question: CacheLookup | None = replay.ask(self._crossing.path, self._crossing.body) if replay else None
        self._model = model
        self._upstream = upstream
        self._allowance = allowance
        self._over_limit: LimitError | None = None
        """Why the call was not sent."""
        self._room = room
        """The call's place among those that may be under way at once."""
        self._for_agent = for_agent
        self._commit = commit
        self._redactor = redactor
        """What takes the secrets out of the record, after it is told of those in its arguments."""

        self._started = time.time()
        self._received = Received(memory.spool())
        self._withheld = memory.spool()
        self._whole: bytes | None = None
        """A reply in one piece, as the agent gets it."""
        self._finished = False
        self._failed = False
        self._receiving = True
        """Only while this holds may the task be cancelled: nothing interrupts a commit."""
        self._sealed = False
        self._hung_up = False
        self._followers = 0
        self._drain: asyncio.TimerHandle | None = None
        self.speaker: Speaker | None = None
        """Who makes the call, as the session finds out."""
        self.delivered = False
        """The agent has been given the reply to its end."""
        self._alive: asyncio.TimerHandle | None = None
        if self._crossing.streams:
            self._alive = asyncio.get_running_loop().call_later(GRACE_SEC, self._keep_alive)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            failure = await self._receive()
            large = max(self._received.body.size, len(self._request.body)) > LARGE
            async with self._memory.large if large else nullcontext():
                await self._record(failure)
        except NotRecordedError:
            self._refuse(500, "The reply could not be recorded.")
        finally:
            self._allowance.close()
            # An agent must not wait for ever for a call that a defect ended.
            if not self.delivery.ended:
                self._refuse(500, "The call failed.")
            self._let_go()

    async def _record(self, failure: CallError | None) -> None:
        """Read the reply, commit the exchange, and release the end."""
        response = self._received.body.read()
        wrong = failure or self._verdict(response)
        error = wrong or (CallError.HUNG_UP if self._hung_up else None)
        self._failed = error not in {None, CallError.HUNG_UP}
        secrets = secrets_for_model(self._request.headers, self._model)
        exchange = self._exchange(response, error, self._redactor(self._received.token, *secrets))
        if exchange.usage is not None:
            self._asked.count(exchange.usage.input)
        self._allowance.unanswered = self._received.unanswered
        await self._commit(exchange, self._back.NAME, self._allowance)
        self._release(response, error)
        if self._question is not None:
            await self._question.settle(exchange, good=wrong is None)

    def _let_go(self) -> None:
        """Of a call that has ended, keep what a retry is known by and what it gets."""
        self._received.body.close()
        self._withheld.close()
        self._whole = None
        if len(self._request.body) > LARGE or not self._followers:
            self._body = digest(self._request.body)
        del self._request, self._asked, self._crossing, self._question

    def answer_with(self, recorded: RecordedReply) -> None:
        """Answer with a reply that is on record, and not with the model's. To be said before the call begins."""
        self._model = recorded.standing_for(self._model)
        self._back = DIALECTS[self._model.dialect]
        self._crossing = choose_translation(self._front, self._request.path, self._asked, self._model)
        self._question = recorded

    @property
    def readable_body(self) -> bytes:
        """The agent's request as strict JSON."""
        return self._asked.body

    def seal(self) -> None:
        """The session is closing: stop receiving."""
        self._sealed = True
        self._stop()

    def is_retried_by(self, request: Request) -> bool:
        """Whether a request is this call again: word for word, from an agent that did not get the reply to its end."""
        body = request.body if isinstance(self._body, bytes) else digest(request.body)
        same = body == self._body and request.path == self._path
        # Two calls side by side may well be equal; a retry comes when the agent has given the first one up.
        return same and not self.delivered and not self._failed and not self._followers

    @contextmanager
    def followed(self) -> Iterator[ReplyBuffer]:
        """What the agent is given. When nobody follows any more, the rest is received for the record, not for ever."""
        self._followers += 1
        self._hung_up = False
        if self._drain is not None:
            self._drain.cancel()
        try:
            yield self.delivery
            self.delivered = True
        finally:
            self._followers -= 1
            if self._receiving and not self._followers:
                self._hung_up = True
                self._drain = asyncio.get_running_loop().call_later(DRAIN_SEC, self._stop)
            if not self._receiving and not self._followers and isinstance(self._body, bytes) and not self.delivered:
                self._body = digest(self._body)

    def _stop(self) -> None:
        if self._receiving:
            self.task.cancel()

    async def _receive(self) -> CallError | None:
        """Receive the reply, passing on all but its end. Says what prevented it from being complete."""
        try:
            async with self._reply() as incoming:
                if self._received.streamed:
                    await self._pass_on(incoming)
                else:
                    while await incoming.read():
                        pass
        except UpstreamError as failure:
            # A finished reply lacks nothing, and an error status says enough without the rest of its body.
            return None if self._finished or self._received.failed else failure.error
        except LimitError as refusal:
            self._over_limit = refusal
            self._received.forget()
            return CallError.REJECTED
        except asyncio.CancelledError:
            self.task.uncancel()
            return CallError.HUNG_UP if self._hung_up and not self._sealed else CallError.SEALED
        finally:
            self._receiving = False
            for timer in (self._alive, self._drain):
                if timer is not None:
                    timer.cancel()
        return None

    @asynccontextmanager
    async def _reply(self) -> AsyncIterator[Incoming | Replayed]:
        """The reply on its way in: one that is replayed, or the model's. LimitError when none may be asked for."""
        if self._allowance.reserves:
            price = price_for(self._model)
            body = self._crossing.body
            most_input = self._asked.most_tokens + max(0, len(body) - len(self._request.body))
            await self._allowance.reserve(bound_of(body, most_input, self._model, price))
        replayed = await self._question.replayed(self._received) if self._question else None
        if replayed is not None:
            yield replayed
            return
        async with (
            self._room,
            self._upstream.send(
                self._model,
                self._crossing.path,
                headers_for_model(self._request.headers, self._model, translated=self._crossing.translated),
                self._crossing.body,
                self._received,
                affinity=self._session,
                check=self._allowance.check,
            ) as incoming,
        ):
            yield incoming

    def _keep_alive(self) -> None:
        """The model is silent: open the stream, so that no agent gives up on a call that is under way."""
        if not self.delivery.begun:
            self.delivery.begin(Head(200, self._crossing.stream_headers))
        self.delivery.put(self._crossing.keep_alive)
        self._alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_SEC, self._keep_alive)

    async def _pass_on(self, incoming: Incoming | Replayed) -> None:
        if not self.delivery.begun:
            self.delivery.begin(Head(200, {**self._headers_for_agent(), **self._crossing.stream_headers}))
        framer, events = EventFramer(self._memory.spool()), 0
        while chunk := await incoming.read():
            if self._alive is not None:
                self._alive.cancel()
            for event in framer.feed(chunk):
                with _reading():
                    check_decoded_size(event)
                    passed = self._crossing.feed(event)
                self._take(*passed)
                events += 1
                if self._back.is_last(event):
                    incoming.expect_end()
            if framer.pending > EVENT_LIMIT or events > MOST_EVENTS:
                raise UpstreamError(CallError.TOO_LARGE)
        try:
            self._take(*self._crossing.finish(framer.rest()))
        except (ValueError, RecursionError) as error:
            raise UpstreamError(CallError.CUT) from error

    def _take(self, data: bytes, ends: bool) -> None:
        """Pass on what the agent may have now; withhold it from the end on."""
        self._finished = self._finished or ends
        if self._finished:
            self._withheld.write(data)
        else:
            self.delivery.put(data)

    def _verdict(self, response: bytes) -> CallError | None:
        """What is wrong with a reply that was received to its end."""
        if self._received.status in {401, 403}:
            return CallError.AUTH
        if self._received.failed:
            return CallError.STATUS
        try:
            with _reading():
                if not self._received.streamed:
                    check_decoded_size(response)
                if not self._back.is_reply(response, self._received.streamed):
                    return CallError.MALFORMED
                if self._received.streamed:
                    return None if self._finished else CallError.CUT
                self._whole = self._crossing.whole(response)
        except UpstreamError as failure:
            return failure.error
        return None

    def _exchange(self, response: bytes, error: CallError | None, redactor: Redactor) -> Exchange:
        received = self._received
        if self._over_limit is not None:
            response = self._front.error_body(400, str(self._over_limit))
        body = received.repair.body if received.repair else self._crossing.body
        sent = None if body == self._request.body else body
        delivered = self._delivered() if self._crossing.translated else None
        return Exchange(
            session=self._session,
            index=self._index,
            dialect=self._front.NAME,
            path=redactor.text(self._request.path),
            request_headers=redactor.headers(self._request.headers),
            request=self._asked.redacted(redactor),
            upstream=redactor.text(received.upstream or self._model.address(self._crossing.path)),
            status=400 if self._over_limit else received.status,
            response_headers=redactor.headers(received.headers),
            response=redactor.bytes(response),
            attempts=received.attempts,
            error=error,
            started=self._started,
            first_byte=received.first_byte,
            ended=time.time(),
            usage=self._usage(response),
            sent=None if sent is None else redactor.bytes(sent),
            delivered=None if delivered is None else redactor.bytes(delivered),
            warnings=(*self._crossing.warnings, *(received.repair.warnings if received.repair else ())),
            speaker=self.speaker,
            arrivals=tuple(received.arrivals),
            tokens=check_tokens(response, received.streamed) if self._model.capture != "none" else None,
        )

    def _usage(self, response: bytes) -> Usage | None:
        if not self._received.succeeded:
            return None
        try:
            with _reading():
                return self._back.usage(response, self._received.streamed)
        except UpstreamError:
            return None

    def _delivered(self) -> bytes:
        """The body that the agent has been given or will be, once the exchange is committed."""
        return self._whole if self._whole is not None else self.delivery.body.read() + self._withheld.read()

    def _release(self, response: bytes, error: CallError | None) -> None:
        """Give the agent what was withheld, now that it is in the record."""
        status = self._received.status
        if self._over_limit is not None:
            # 400, because every agent's program stops at it.
            self._refuse(400, str(self._over_limit))
        elif error in TOLD_TO_AGENT and not self._received.failed:
            self._refuse(*TOLD_TO_AGENT[error])
        elif status is not None and self._received.failed:
            if self.delivery.begun:
                self._refuse(status, f"The model answered with status {status}.")
            else:
                # The provider's own words, without secrets and addresses.
                body = self._for_agent.bytes(self._crossing.error(status, response))
                self.delivery.begin(Head(status, self._headers_for_agent() | JSON, body))
        elif self.delivery.begun:
            self.delivery.put((self._whole or b"") + self._withheld.read())
            self.delivery.end()
        elif self._whole is not None:
            of_stream = self._crossing.stream_headers if self._crossing.streams else {}
            headers = {**self._headers_for_agent(), **of_stream}
            if len(self._whole) <= LARGE:
                self.delivery.begin(Head(200, headers, self._whole))
            else:
                self.delivery.begin(Head(200, headers))
                self.delivery.put(self._whole)
                self.delivery.end()

    def _refuse(self, status: int, message: str) -> None:
        if self.delivery.begun:
            self.delivery.put(self._crossing.error_event(message))
            self.delivery.end(broken=True)
        else:
            self.delivery.begin(Head(status, JSON, self._front.error_body(status, message)))

    def _headers_for_agent(self) -> dict[str, str]:
        """Those headers of the model that go to the agent. One that an agent's program may choke on does not."""
        return {
            name.title(): value
            for name, value in self._received.headers
            if name.lower() in RESPONSE_HEADERS and _PLAIN_HEADER.fullmatch(value)
        }


@contextmanager
def _reading() -> Iterator[None]:
    """Whatever happens while a reply is read is the reply's doing, and never ends a call without a record."""
    try:
        yield
    except ValueError as error:
        raise UpstreamError(CallError.MALFORMED) from error
    except UpstreamError:
        raise
    except TooLargeError as error:
        raise UpstreamError(CallError.TOO_LARGE) from error
    except Exception as error:
        logger.exception("a reply could not be read")
        raise UpstreamError(CallError.MALFORMED) from error
