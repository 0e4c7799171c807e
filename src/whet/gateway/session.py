"""Session: one rollout's part of the gateway, with its own secret, its own ports, its counters and its calls."""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from aiohttp import web

from whet.errors import UserError
from whet.exchange import CallError, Exchange, Recorder, Usage
from whet.gateway.attribution.threads import Answer, Threads, may_call_tools
from whet.gateway.buffers.memory import LARGE, Memory
from whet.gateway.call_bounds import BYTES_PER_TOKEN, estimate_unsaid
from whet.gateway.calls.call import Call, NotRecordedError, Request
from whet.gateway.calls.count_tokens import TOKEN_COUNT, counted_by_model
from whet.gateway.dialects import TokenCounter
from whet.gateway.guards.screened import ScreenedRequests
from whet.gateway.limits import Allowance, LimitError, Meter, Reached, room_for_call
from whet.gateway.model import Model
from whet.gateway.prices import WITHOUT_TOKENS, cost, price_for
from whet.gateway.replay.cache import Replay, ReplyCache
from whet.gateway.replay.recording import Recording
from whet.gateway.upstream.client import Upstream
from whet.ids import new_secret
from whet.redact import Redactor

logger = logging.getLogger(__name__)

SHUTDOWN_SEC = 5.0
LAST_WORDS_SEC = 15.0
"""How long an agent may go on that is answered no more. Most end at once, some try again and again."""
BACKLOG = 1024
UNCLAIMED = 16
"""Ended calls that are kept for an agent that hung up; each holds its request and its reply."""


class Session:
    """Answers one rollout's model calls and records them until it is closed."""

    def __init__(
        self,
        session_id: str,
        model: Model,
        record: Recorder,
        redactor: Redactor,
        upstream: Upstream,
        memory: Memory,
        meters: tuple[Meter, ...],
        cache: ReplyCache | None,
        sample: int,
        recording: Recording | None,
        http_server: "Callable[[Session], web.Server]",
    ) -> None:
        self.id = session_id
        self.model = model
        self.model_name = recording.model_name if recording else model.upstream_name
        """What agents are told that the model is called."""
        self.secret = new_secret()
        self.calls = 0
        self.speakers: Counter[str] = Counter()
        """How many of the calls the main thread made, each sub-agent, and each kind of helper."""
        self.answered = 0
        """How many calls went well."""
        self.from_record = 0
        """How many calls were answered as the rollout was that this one is a fork of. Their usage is not counted."""
        self.usage = Usage()
        self.charged = Usage()
        """Of the usage, what was not replayed."""
        self.calls_without_usage = 0
        """How many calls may have used tokens that `usage` does not count."""
        self.last_error: CallError | None = None
        """How the call that ended last went wrong; None when it went well."""
        self.last_status: int | None = None
        self.auth_failed = False
        """The model's endpoint refused the provider's key."""
        self.cache_missed = False
        """A call failed because its reply is not in the cache, and no model may be asked."""
        self.record_error: Exception | None = None
        """Why an exchange could not be committed, or the cache not be used."""
        self.ended_by: Reached | None = None
        """The limit that refused a call, or ended the agent's time."""
        self.ended_with_run = False
        """That limit is the run's, not this session's own."""
        self.closed = False

        self._record = record
        self._upstream = upstream
        self.memory = memory
        self.share = memory.share()
        """Of the memory for requests."""
        self._meters = meters
        self._redactor = redactor.also(self.secret, model.key or "")
        self._replay = Replay(cache, model, sample, self._redactor.bytes) if cache else None
        self._recording = recording
        addresses = [(url, urlsplit(url)) for url in model.urls]
        self._for_agent = self._redactor.also(
            *(part for url, address in addresses for part in (url, address.netloc, address.hostname or ""))
        )
        self._price = price_for(model)
        self._under_way: dict[asyncio.Task[None], Call] = {}
        self._undelivered: list[Call] = []
        """Calls whose reply the agent has not seen to its end; it may ask for it again."""
        self._exchanges = 0
        self._threads = Threads(memory.remembered)
        self._seen = ScreenedRequests(memory.remembered)
        self._limit_reached = asyncio.Event()
        self._never_counts = False
        """The model's endpoint does not count tokens."""
        self._http = http_server(self)
        self._listeners: list[asyncio.Server] = []

    async def serve(self, sock: socket.socket) -> None:
        """Answer what connects to this listening socket. The session owns the socket from now on."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._http, sock=sock, backlog=BACKLOG, start_serving=False)
        # Known before it serves: whoever is cancelled while it begins leaves a session that can be closed.
        self._listeners.append(listener)
        await listener.start_serving()

    async def listen(self) -> str:
        """Listen on a free port of the host's loopback interface, and return the address without /v1."""
        sock = socket.create_server(("127.0.0.1", 0))
        await self.serve(sock)
        return f"http://127.0.0.1:{sock.getsockname()[1]}"

    def call(self, request: Request, ended: Callable[[], None] = lambda: None) -> Call:
        """The call that a request makes: a new one, or one that it repeats because it never got the reply.

        A call goes on when the agent hangs up, and ends at the latest when the session is closed. ValueError for a
        request that makes no sense, LimitError when no more may be spent. `ended` is called when the request is no
        longer needed.
        """
        assert not self.closed
        self._undelivered = _still_wanted(self._undelivered)
        for call in self._undelivered:
            if call.is_retried_by(request):
                ended()
                return call
        # Nothing is awaited between this look and the count, so calls side by side cannot pass a limit together.
        for meter in self._meters:
            if (reached := meter.refusal()) is not None:
                self._end_with(meter, reached)
        if self.ended_by is not None:
            raise LimitError(self.ended_by)
        index = self._next_index()
        call = Call(
            session=self.id,
            index=index,
            request=request,
            model=self.model,
            upstream=self._upstream,
            for_agent=self._for_agent,
            commit=self._commit,
            redactor=self._know_secrets,
            replay=self._replay,
            seen=self._seen,
            memory=self.memory,
            allowance=Allowance(self._meters, self._end_with),
            room=room_for_call(self._meters),
        )
        dialect, body = request.dialect.NAME, call.readable_body
        call.speaker = self._threads.place(index, dialect, request.path, request.headers, body)
        if self._recording is not None:
            # What was recorded has no secrets in it.
            masked = self._redactor.bytes(request.body)
            recorded = self._recording.answer(call.speaker, dialect, request.path, masked)
            if recorded is not None:
                call.answer_with(recorded)
        for meter in self._meters:
            meter.admit()
        self.calls += 1
        self.speakers[call.speaker.label] += 1
        self._undelivered.append(call)
        self._under_way[call.task] = call
        call.task.add_done_callback(self._call_ended)
        call.task.add_done_callback(lambda _: ended())
        return call

    @property
    def used_most(self) -> bool:
        """Whether this session alone used more than half of the limit that ended it."""
        if self.ended_by is None:
            return False
        spent = self._meters[0].spent()
        used = {
            "turns": float(spent.turns),
            "input_tokens": float(spent.usage.input),
            "output_tokens": float(spent.usage.output),
            "total_tokens": float(spent.usage.input + spent.usage.output),
            "cost": spent.cost,
        }
        return used.get(self.ended_by.limit, 0.0) > self.ended_by.allowed / 2

    @property
    def under_way(self) -> int:
        """How many calls are under way."""
        return len(self._under_way)

    async def over(self, works: Callable[[float], bool] = lambda _: False) -> None:
        """Return when the agent must be ended: its time is over, or it does not end although it is answered no more.

        An agent is not idle that `works`: that runs something which it started since its last call, these seconds ago.
        When that has ended, its idle time begins at the first look that finds nothing: the end itself is not seen.
        """
        worked = False
        while self.ended_by is None:
            left = [seconds for meter in self._meters if (seconds := meter.seconds_left()) is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, default=None)):
                    await self._limit_reached.wait()
                    await asyncio.sleep(LAST_WORDS_SEC)
            own = self._meters[0]
            worked_before, worked = worked, works(own.seconds_since_call())
            if worked or worked_before:
                own.not_idle()
            for meter in self._meters:
                if (reached := meter.out_of_time()) is not None:
                    self._end_with(meter, reached)

    def _end_with(self, meter: Meter, reached: Reached) -> None:
        if self.ended_by is None:
            self.ended_by, self.ended_with_run = reached, meter is not self._meters[0]
            self._limit_reached.set()

    async def reject(self, request: Request, status: int, message: str) -> bytes:
        """Put a request that goes nowhere on record. Returns the reply that says so."""
        now, body = time.time(), request.dialect.error_body(status, message)
        await self._keep(
            Exchange(
                session=self.id,
                index=self._next_index(),
                dialect=request.dialect.NAME,
                path=self._redactor.text(request.path),
                request_headers=self._redactor.headers(request.headers),
                request=self._redactor.bytes(request.body),
                upstream="",
                status=status,
                response_headers=(),
                response=self._redactor.bytes(body),
                attempts=0,
                error=CallError.REJECTED,
                started=now,
                first_byte=None,
                ended=now,
                usage=None,
            )
        )
        return body

    async def count_tokens(self, request: Request, counter: TokenCounter) -> bytes:
        """How many tokens a request has: as the model says, if it can be asked in the same words, or estimated."""
        asked = self._seen.look(request.body, (counter.NAME, self.model.dialect))
        estimate = counter.count_reply(asked.body)
        if self.model.dialect != counter.NAME or self._never_counts:
            return estimate
        exchange = await counted_by_model(
            request,
            asked,
            counter,
            self.model,
            session=self.id,
            index=self._next_index(),
            upstream=self._upstream,
            memory=self.memory,
            replay=self._replay,
            redactor=self._know_secrets,
        )
        self.speakers[TOKEN_COUNT] += 1
        self._never_counts = exchange.status == 404
        told = exchange if exchange.error is None else replace(exchange, delivered=estimate)
        await self._keep(told)
        return told.delivered or told.response

    def _next_index(self) -> int:
        self._exchanges += 1
        return self._exchanges - 1

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
        self._undelivered = []
        self._seen.forget()
        self._threads.forget()
        await self._http.shutdown(SHUTDOWN_SEC)
        await asyncio.gather(*(listener.wait_closed() for listener in self._listeners))

    def _know_secrets(self, *secrets: str) -> Redactor:
        """What takes the secrets out of all that is recorded: from now on, these too."""
        self._redactor = self._redactor.also(*secrets)
        return self._redactor

    async def _commit(self, exchange: Exchange, dialect: str, allowance: Allowance) -> None:
        """Record a call whose response is in this dialect."""
        self._count_unsaid(exchange, allowance)
        if exchange.error is CallError.REJECTED:
            self._withdraw(exchange, allowance)
        else:
            self._count(exchange, dialect, allowance)
        await self._keep(exchange)

    def _count_unsaid(self, exchange: Exchange, allowance: Allowance) -> None:
        """Count against the limits what a call probably used, where no reply says it."""
        silent = exchange.usage is None and exchange.attempts > 0 and exchange.error not in WITHOUT_TOKENS
        if not silent and not allowance.unanswered:
            return
        body = exchange.request if exchange.sent is None else exchange.sent
        unsaid = estimate_unsaid(body, exchange.response, exchange.streamed) if silent else Usage()
        unheard = allowance.unanswered - (exchange.error is CallError.TIMEOUT)
        unsaid += Usage(input=max(0, unheard) * (len(body) // BYTES_PER_TOKEN))
        if unsaid != Usage():
            allowance.settle_unsaid(unsaid, cost(unsaid, self._price) if self._price else None)

    def _withdraw(self, exchange: Exchange, allowance: Allowance) -> None:
        """A call that a limit kept from being sent is none."""
        self._threads.ended(exchange.index, None)
        allowance.withdraw()
        self.calls -= 1
        if exchange.speaker is not None:
            self.speakers[exchange.speaker.label] -= 1
            self.speakers += Counter()  # drops what is zero

    async def _keep(self, exchange: Exchange) -> None:
        """Record an exchange."""
        try:
            await self._record(exchange)
        except Exception as error:
            self.record_error = error
            raise NotRecordedError from error

    def _count(self, exchange: Exchange, dialect: str, allowance: Allowance) -> None:
        tells = exchange.status == 200 and len(exchange.response) <= LARGE and may_call_tools(exchange.response)
        answer = Answer(dialect, exchange.response, exchange.streamed) if tells else None
        self._threads.ended(exchange.index, answer)
        self.answered += exchange.error is None
        self.last_error, self.last_status = exchange.error, exchange.status
        charged = None if exchange.replayed else exchange.usage
        spent = cost(charged, self._price) if charged and self._price else None
        shared = None if exchange.from_record else exchange.usage
        allowance.settle([exchange.usage, *[shared] * (len(self._meters) - 1)], spent)
        if charged is not None:
            self.charged += charged
        self.auth_failed = self.auth_failed or exchange.error is CallError.AUTH
        self.cache_missed = self.cache_missed or exchange.error is CallError.NOT_CACHED
        if exchange.from_record:
            self.from_record += exchange.error is None
        elif exchange.usage is not None:
            self.usage += exchange.usage
        elif exchange.error not in WITHOUT_TOKENS:
            self.calls_without_usage += 1

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, UserError):
            self.record_error = error
        elif error is not None:
            logger.error("a model call of session %s failed", self.id, exc_info=error)


def _still_wanted(calls: list[Call]) -> list[Call]:
    """The calls that the agent may ask for again: those under way, and the last ones that ended without it."""
    waiting = [call for call in calls if not call.delivered]
    forgotten = [call for call in waiting if call.task.done()][:-UNCLAIMED]
    return [call for call in waiting if call not in forgotten]
