"""Session: one rollout's part of the gateway, with its own secret, its own ports, its counters and its calls."""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from aiohttp import web

from whet.errors import UserError
from whet.exchange import CallError, Exchange, Recorder, Usage
from whet.gateway.attribution.threads import ThreadAnswer, may_call_tools
from whet.gateway.buffers.memory import LARGE, GatewayMemory
from whet.gateway.call_bounds import BYTES_PER_TOKEN, estimate_usage
from whet.gateway.call_failures import describe_failure
from whet.gateway.calls.call import Call, NotRecordedError
from whet.gateway.calls.count_tokens import TOKEN_COUNT, ask_model_for_count
from whet.gateway.calls.exchanges import FinishedCall, build_exchange
from whet.gateway.calls.requests import AgentRequest, CallContext, CallPlanner, SessionSecrets
from whet.gateway.dialects import TokenCounter
from whet.gateway.limits import Allowance, SessionLimits
from whet.gateway.model import Model
from whet.gateway.prices import WITHOUT_TOKENS, cost, price_for
from whet.gateway.replay.cache import ReplyCache, SessionCache
from whet.gateway.replay.recording import Recording
from whet.gateway.upstream.client import Upstream
from whet.ids import new_secret
from whet.text.redact import Redactor

logger = logging.getLogger(__name__)

SHUTDOWN_SEC = 5.0
BACKLOG = 1024
UNCLAIMED = 16
"""Ended calls that are kept for an agent that hung up; each holds its request and its reply."""

UNKNOWN_SPEAKER = "unknown"
"""Whose tokens those of a call are that nobody is known to have made."""
ExchangeObserver = Callable[[Exchange], None]


@dataclass(slots=True)
class SessionTotals:
    """What the calls of a session came to."""

    calls: int = 0
    speakers: Counter[str] = field(default_factory=Counter)
    """How many of the calls the main thread made, each sub-agent, and each kind of helper."""
    speaker_usage: dict[str, Usage] = field(default_factory=dict)
    """Of the usage, what each of them used."""
    answered: int = 0
    """Calls that went well."""
    from_record: int = 0
    """Calls that were answered from the rollout that this one is a fork of. Their usage is not counted."""
    usage: Usage = field(default_factory=Usage)
    charged: Usage = field(default_factory=Usage)
    """Of the usage, what was not replayed."""
    cost: float = 0.0
    """Dollars for what was charged, where the price is known."""
    calls_without_usage: int = 0
    """Calls that may have used tokens that `usage` does not count."""
    last_error: CallError | None = None
    """How the call that ended last went wrong; None when it went well."""
    last_status: int | None = None
    last_failure: str = ""
    """The same in words, with the address and the provider's message."""
    auth_failure: str = ""
    """How the model's endpoint refused the provider's key, if it did."""
    cache_missed: bool = False
    """A call failed because its reply is not in the cache, and no model may be asked."""

    def admit(self, speaker: str) -> None:
        """Count a call that begins."""
        self.calls += 1
        self.speakers[speaker] += 1

    def withdraw(self, speaker: str | None) -> None:
        """Take back a call that a limit kept from being sent."""
        self.calls -= 1
        if speaker is not None:
            self.speakers[speaker] -= 1
            self.speakers += Counter()  # drops what is zero

    def count(self, exchange: Exchange) -> None:
        """Count a call that has ended."""
        self.answered += exchange.error is None
        self.last_error, self.last_status = exchange.error, exchange.status
        if exchange.usage is not None and not exchange.replayed:
            self.charged += exchange.usage
        self.last_failure = describe_failure(exchange) if exchange.error else ""
        if exchange.error is CallError.AUTH:
            self.auth_failure = self.last_failure
        self.cache_missed = self.cache_missed or exchange.error is CallError.NOT_CACHED
        if exchange.from_record:
            self.from_record += exchange.error is None
        elif exchange.usage is not None:
            self.usage += exchange.usage
            speaker = exchange.speaker.label if exchange.speaker else UNKNOWN_SPEAKER
            self.speaker_usage[speaker] = self.speaker_usage.get(speaker, Usage()) + exchange.usage
        elif exchange.error not in WITHOUT_TOKENS:
            self.calls_without_usage += 1


class OpenCalls:
    """The calls of a session that are under way, and those whose reply the agent may ask for again."""

    def __init__(self) -> None:
        self.under_way: set[Call] = set()
        self.undelivered: list[Call] = []
        self._all_ended: asyncio.Future[None] | None = None

    def add(self, call: Call) -> None:
        self.under_way.add(call)
        self.undelivered.append(call)

    def remove(self, call: Call) -> None:
        """The call has ended."""
        self.under_way.discard(call)
        if not self.under_way and self._all_ended is not None and not self._all_ended.done():
            self._all_ended.set_result(None)

    def find_retried(self, request: AgentRequest) -> Call | None:
        """The call that a request repeats, because the agent never got its reply."""
        if not self.undelivered:
            return None
        waiting = [call for call in self.undelivered if not call.delivered]
        if not waiting:
            self.undelivered = waiting
            return None
        forgotten = [call for call in waiting if call.ended][:-UNCLAIMED]
        self.undelivered = [call for call in waiting if call not in forgotten] if forgotten else waiting
        return next((call for call in self.undelivered if call.is_retried_by(request)), None)

    async def seal(self) -> None:
        """Stop the calls under way. When this returns, each of them is recorded."""
        for call in self.under_way:
            call.seal()
        while self.under_way:
            self._all_ended = asyncio.get_running_loop().create_future()
            await self._all_ended
        self.undelivered = []


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What a gateway's sessions share."""

    redactor: Redactor
    upstream: Upstream
    memory: GatewayMemory
    http_server: "Callable[[Session], web.Server]"


class Session:
    """Answers one rollout's model calls and records them until it is closed."""

    def __init__(
        self,
        session_id: str,
        model: Model,
        record: Recorder,
        shared: SharedParts,
        limits: SessionLimits,
        replay: tuple[ReplyCache, int] | None = None,
        recording: Recording | None = None,
        *,
        pinned: bool = True,
    ) -> None:
        """`replay` is the cache and the sample number that its replies belong to. If it is `pinned`, all calls go to
        one endpoint of the model."""
        self.id = session_id
        self.model = model
        self.secret = new_secret()
        self.totals = SessionTotals()
        self.record_error: Exception | None = None
        """Why an exchange could not be committed, or the cache not be used."""
        self.limits = limits
        self.closed = False
        self.share = shared.memory.share()
        """Of the memory for requests."""
        self.open_calls = OpenCalls()

        self._recorders = _Recorders(record)
        secrets = _session_secrets(shared.redactor.also(self.secret, model.key or ""), model)
        cached = SessionCache(replay[0], model, replay[1], secrets.for_record.bytes) if replay else None
        self._planner = CallPlanner(model, shared.memory, cached, recording, secrets)
        self._endpoints = shared.upstream.pool(model)
        """Held, because those of a model with fixed IP addresses are forgotten when no session holds them."""
        affinity = session_id if pinned else ""
        self._context = CallContext(
            session_id, affinity, shared.upstream, shared.memory, secrets, price_for(model), self._commit
        )
        self._http = shared.http_server(self)
        self._listeners: list[asyncio.Server] = []

    @property
    def memory(self) -> GatewayMemory:
        return self._context.memory

    @property
    def model_name(self) -> str:
        """The model's name as agents know it."""
        return self._planner.model_name

    @property
    def calls_in_flight(self) -> int:
        return len(self.open_calls.under_way)

    def on_exchange(self, observer: ExchangeObserver) -> None:
        """Call this with every exchange, before it is recorded."""
        self._recorders.observers.append(observer)

    async def serve(self, sock: socket.socket) -> None:
        """Answer what connects to this listening socket. The session owns the socket from now on."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._http, sock=sock, backlog=BACKLOG, start_serving=False)
        # Kept before it serves: whoever is cancelled while it begins leaves a session that can be closed.
        self._listeners.append(listener)
        await listener.start_serving()

    async def listen(self) -> str:
        """Listen on a free port of the host's loopback interface, and return the address without /v1."""
        sock = socket.create_server(("127.0.0.1", 0))
        await self.serve(sock)
        return f"http://127.0.0.1:{sock.getsockname()[1]}"

    def call(self, request: AgentRequest, release: Callable[[], None] = lambda: None) -> Call:
        """The call that a request makes: a new one, or one that it repeats because it never got the reply.

        A call continues when the agent hangs up, and ends at the latest when the session is closed. ValueError for a
        request that cannot be read or must not be sent, LimitError when no more may be spent. `release` is called when
        the request is no longer needed.
        """
        assert not self.closed
        if (retried := self.open_calls.find_retried(request)) is not None:
            release()
            return retried
        # Nothing is awaited between this check and the count, so calls side by side cannot pass a limit together.
        self.limits.check()
        plan = self._planner.plan(request, self._recorders.next_index())

        def end(call: Call, error: BaseException | None) -> None:
            self._end_call(call, error)
            release()

        call = Call(self._context, plan, self.limits.admit(), end)
        self.totals.admit(plan.speaker.label)
        self.open_calls.add(call)
        return call

    async def reject(self, request: AgentRequest, status: int, message: str) -> bytes:
        """Record a request that is not sent to the model. Returns the reply that says why."""
        body, index = request.dialect.error_body(status, message), self._recorders.next_index()
        record = FinishedCall(self.id, index, request, time.time(), status, body, CallError.REJECTED)
        await self._keep(build_exchange(record, None, self._context.secrets.for_record))
        return body

    async def count_tokens(self, request: AgentRequest, counter: TokenCounter) -> bytes:
        """How many tokens a request has: as the model counts them, if its dialect is the same, or estimated."""
        request = replace(request, dialect=counter)
        screened = self._planner.screen(request)
        estimate = counter.count_reply(screened.body)
        if self.model.dialect != counter.NAME or self._planner.never_counts:
            return estimate
        index = self._recorders.next_index()
        exchange = await ask_model_for_count(
            self._context, self.model, counter, request, screened, index, self._planner.replay
        )
        self.totals.speakers[TOKEN_COUNT] += 1
        self._planner.never_counts = exchange.status == 404
        answered = exchange if exchange.error is None else replace(exchange, delivered=estimate)
        await self._keep(answered)
        return answered.delivered or answered.response

    async def close(self) -> None:
        """Stop listening and cut the calls under way. When this returns, each has its record and no more follow."""
        self.closed = True
        for listener in self._listeners:
            listener.close()
        await self.open_calls.seal()
        for connection in self._http.connections:
            if connection.transport is not None:
                connection.transport.abort()
        self._planner.forget()
        await self._http.shutdown(SHUTDOWN_SEC)
        await asyncio.gather(*(listener.wait_closed() for listener in self._listeners))

    async def _commit(self, exchange: Exchange, dialect: str, allowance: Allowance) -> None:
        """Count and record a call whose response is in this dialect."""
        self._count_estimate(exchange, allowance)
        if exchange.error is CallError.REJECTED:
            # A call that a limit kept from being sent is none.
            self._planner.threads.end(exchange.index, None)
            allowance.withdraw()
            self.totals.withdraw(exchange.speaker.label if exchange.speaker else None)
        else:
            self._count(exchange, dialect, allowance)
        await self._keep(exchange)

    def _count_estimate(self, exchange: Exchange, allowance: Allowance) -> None:
        """Count against the limits what a call probably used, where no reply says it."""
        silent = exchange.usage is None and exchange.attempts > 0 and exchange.error not in WITHOUT_TOKENS
        if not silent and not allowance.unanswered:
            return
        body = exchange.request if exchange.sent is None else exchange.sent
        used = estimate_usage(body, exchange.response, exchange.streamed) if silent else Usage()
        timed_out = allowance.unanswered - (exchange.error is CallError.TIMEOUT)
        used += Usage(input=max(0, timed_out) * (len(body) // BYTES_PER_TOKEN))
        if used != Usage():
            price = self._context.price
            allowance.settle_estimate(used, cost(used, price) if price else None)

    def _count(self, exchange: Exchange, dialect: str, allowance: Allowance) -> None:
        calls_tools = exchange.status == 200 and len(exchange.response) <= LARGE and may_call_tools(exchange.response)
        answer = ThreadAnswer(dialect, exchange.response, exchange.streamed) if calls_tools else None
        self._planner.threads.end(exchange.index, answer)
        price = self._context.price
        charged = None if exchange.replayed else exchange.usage
        dollars = cost(charged, price) if charged and price else None
        allowance.settle(exchange.usage, None if exchange.from_record else exchange.usage, dollars)
        self.totals.cost += dollars or 0.0
        self.totals.count(exchange)

    async def _keep(self, exchange: Exchange) -> None:
        try:
            await self._recorders.record(exchange)
        except Exception as error:
            self.record_error = error
            raise NotRecordedError from error

    def _end_call(self, call: Call, error: BaseException | None) -> None:
        self.open_calls.remove(call)
        if isinstance(error, UserError):
            self.record_error = error
        elif error is not None:
            logger.error("a model call of session %s failed", self.id, exc_info=error)


class _Recorders:
    """Numbers the exchanges of a session, and gives them to its observers and its recorder."""

    def __init__(self, record: Recorder) -> None:
        self.observers: list[ExchangeObserver] = []
        self._record = record
        self._count = 0

    def next_index(self) -> int:
        self._count += 1
        return self._count - 1

    async def record(self, exchange: Exchange) -> None:
        for observe in self.observers:
            observe(exchange)
        await self._record(exchange)


def _session_secrets(redactor: Redactor, model: Model) -> SessionSecrets:
    """The secrets of a session. The model's addresses are hidden from agents too."""
    addresses = [(url, urlsplit(url)) for url in model.urls]
    hidden = [part for url, address in addresses for part in (url, address.netloc, address.hostname or "")]
    return SessionSecrets(redactor, redactor.also(*hidden))
