"""The transfer of one reply: received from its source, checked, and passed on to the agent, all but its end.

The end is withheld until the exchange is committed. What an agent gets in place of a reply is decided here too.
"""

import asyncio
import logging
import re
import time
from types import TracebackType

from whet.exchange import CallError, Exchange, Usage
from whet.gateway.buffers.memory import EVENT_LIMIT, LARGE, MOST_EVENTS, TooLargeError, check_decoded_size
from whet.gateway.buffers.reply_buffer import ReplyBuffer, ReplyHead
from whet.gateway.call_bounds import estimate_bound
from whet.gateway.calls.exchanges import FinishedCall, build_exchange
from whet.gateway.calls.requests import CallContext, PlannedCall
from whet.gateway.limits import Allowance, LimitError
from whet.gateway.replay.cache import StoredReply
from whet.gateway.sse import EventFramer
from whet.gateway.token_capture import check_tokens
from whet.gateway.upstream.client import OutgoingCall
from whet.gateway.upstream.headers import headers_for_model, secrets_for_model
from whet.gateway.upstream.reply import IncomingReply, ReceivedReply, UpstreamError

logger = logging.getLogger(__name__)

RESPONSE_HEADERS = frozenset({"content-type", "retry-after", "x-request-id"})
"""The headers of the model that go to the agent."""
GRACE_SEC = 15.0
"""How long an agent that wants a stream waits for its beginning before it gets a sign of life."""
KEEP_ALIVE_SEC = 5.0
_PLAIN_HEADER = re.compile(r"[\t -~]{0,4096}")
JSON = {"Content-Type": "application/json"}

AGENT_ERRORS = {
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
"""What an agent gets when there is no reply of the model that it could be given."""


class Transfer:
    """Receives the reply to one call and passes it on."""

    def __init__(self, context: CallContext, plan: PlannedCall, allowance: Allowance, reply: ReplyBuffer) -> None:
        self.context = context
        self.plan = plan
        self.allowance = allowance
        self._reply = reply
        self._started = time.time()
        self._received = ReceivedReply(context.memory.spool())
        self._withheld = context.memory.spool()
        self._whole: bytes | None = None
        """A reply in one piece, as the agent gets it."""
        self._finished = False
        """The end of the reply was received."""
        self._over_limit: LimitError | None = None
        """Why the call was not sent."""
        self._alive: asyncio.TimerHandle | None = None

    @property
    def is_large(self) -> bool:
        """Whether the request or the reply is so large that only one such is read or recorded at a time."""
        return max(self._received.body.size, len(self.plan.request.body)) > LARGE

    async def receive(self) -> CallError | None:
        """Receive the reply, passing on all but its end. Returns what kept it from being complete."""
        if self.plan.translation.streams:
            self._alive = asyncio.get_running_loop().call_later(GRACE_SEC, self._send_keep_alive)
        try:
            await self._reserve()
            stored = self.plan.stored
            found = await stored.find(self._received) if stored is not None else None
            if found is not None:
                await self._read(found)
            else:
                async with self.allowance.room():
                    with await self._send() as incoming:
                        await self._read(incoming)
        except UpstreamError as failure:
            # A finished reply lacks nothing, and an error status says enough without the rest of its body.
            return None if self._finished or self._received.failed else failure.error
        except LimitError as refusal:
            self._over_limit = refusal
            self._received.forget()
            return CallError.REJECTED
        finally:
            if self._alive is not None:
                self._alive.cancel()
        return None

    async def _reserve(self) -> None:
        """Wait until the limits allow the call. LimitError when they do not."""
        if self.allowance.reserves:
            plan, body = self.plan, self.plan.translation.body
            most_input = plan.screened.most_tokens + max(0, len(body) - len(plan.request.body))
            await self.allowance.reserve(estimate_bound(body, most_input, plan.model, self.context.price))

    async def _send(self) -> IncomingReply:
        plan, translation = self.plan, self.plan.translation
        headers = headers_for_model(plan.request.headers, plan.model, translated=translation.translated)
        in_one_piece = not translation.streams or plan.model.capture != "none"
        call = OutgoingCall(
            plan.model, translation.path, headers, translation.body, self.context.affinity, in_one_piece
        )
        return await self.context.upstream.send(call, self._received, self.allowance.check)

    async def _read(self, incoming: IncomingReply | StoredReply) -> None:
        if self._received.streamed:
            await self._pass_on(incoming)
        else:
            while await incoming.read():
                pass

    def _send_keep_alive(self) -> None:
        """The model is silent: open the stream, so that no agent gives up on a call that is under way."""
        translation = self.plan.translation
        if not self._reply.begun:
            self._reply.begin(ReplyHead(200, translation.stream_headers))
        self._reply.put(translation.keep_alive)
        self._alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_SEC, self._send_keep_alive)

    async def _pass_on(self, incoming: IncomingReply | StoredReply) -> None:
        translation, is_last = self.plan.translation, self.plan.dialect.is_last
        if not self._reply.begun:
            self._reply.begin(ReplyHead(200, {**self._headers_for_agent(), **translation.stream_headers}))
        framer, events = EventFramer(self.context.memory.spool()), 0
        while chunk := await incoming.read():
            if self._alive is not None:
                self._alive.cancel()
                self._alive = None
            for event in framer.feed(chunk):
                with _REPLY_ERRORS:
                    check_decoded_size(event)
                    data, ends = translation.feed(event)
                self._take(data, ends)
                events += 1
                if is_last(event):
                    incoming.expect_end()
            if framer.pending > EVENT_LIMIT or events > MOST_EVENTS:
                raise UpstreamError(CallError.TOO_LARGE)
        try:
            self._take(*translation.finish(framer.rest()))
        except (ValueError, RecursionError) as error:
            raise UpstreamError(CallError.CUT) from error

    def _take(self, data: bytes, ends: bool) -> None:
        """Pass on what the agent may have now; withhold it from the end on."""
        self._finished = self._finished or ends
        if self._finished:
            self._withheld.write(data)
        else:
            self._reply.put(data)

    def check_reply(self) -> CallError | None:
        """What is wrong with a reply that was received to its end."""
        received = self._received
        if received.status in {401, 403}:
            return CallError.AUTH
        if received.failed:
            return CallError.STATUS
        response = received.body.read()
        try:
            with _REPLY_ERRORS:
                if not received.streamed:
                    check_decoded_size(response)
                if not self.plan.dialect.is_reply(response, received.streamed):
                    return CallError.MALFORMED
                if received.streamed:
                    return None if self._finished else CallError.CUT
                self._whole = self.plan.translation.whole(response)
        except UpstreamError as failure:
            return failure.error
        return None

    def build_exchange(self, error: CallError | None) -> Exchange:
        """The exchange of this call, which ended so."""
        plan, received, translation = self.plan, self._received, self.plan.translation
        response = received.body.read()
        if self._over_limit is not None:
            response = plan.request.dialect.error_body(400, str(self._over_limit))
        redactor = self.context.secrets.learn(received.token, *secrets_for_model(plan.request.headers, plan.model))
        record = FinishedCall(
            self.context.session,
            plan.index,
            plan.request,
            self._started,
            400 if self._over_limit else received.status,
            response,
            error,
            address=plan.model.address(translation.path),
            sent=received.repair.body if received.repair else translation.body,
            delivered=self._read_delivered_body() if translation.translated else None,
            usage=self._usage(response),
            warnings=translation.warnings,
            speaker=plan.speaker,
            tokens=check_tokens(response, received.streamed) if plan.model.capture != "none" else None,
        )
        exchange = build_exchange(record, received, redactor, plan.screened.redact(redactor))
        if exchange.usage is not None:
            plan.screened.count(exchange.usage.input)
        self.allowance.unanswered = received.unanswered
        return exchange

    def _usage(self, response: bytes) -> Usage | None:
        if not self._received.succeeded:
            return None
        try:
            with _REPLY_ERRORS:
                return self.plan.dialect.usage(response, self._received.streamed)
        except UpstreamError:
            return None

    def _read_delivered_body(self) -> bytes:
        """The body that the agent has been given or will be, once the exchange is committed."""
        return self._whole if self._whole is not None else self._reply.body.read() + self._withheld.read()

    def release(self, error: CallError | None) -> None:
        """Give the agent what was withheld, now that it is recorded."""
        translation, received, reply = self.plan.translation, self._received, self._reply
        status = received.status
        if self._over_limit is not None:
            # 400, because every agent's program stops at it.
            self.refuse(400, str(self._over_limit))
        elif error in AGENT_ERRORS and not received.failed:
            self.refuse(*AGENT_ERRORS[error])
        elif status is not None and received.failed:
            if reply.begun:
                self.refuse(status, f"The model answered with status {status}.")
            else:
                # The provider's own words, without secrets and addresses.
                body = self.context.secrets.for_agent.bytes(translation.error(status, received.body.read()))
                reply.begin(ReplyHead(status, self._headers_for_agent() | JSON, body))
        elif reply.begun:
            reply.put((self._whole or b"") + self._withheld.read())
            reply.end()
        elif self._whole is not None:
            of_stream = translation.stream_headers if translation.streams else {}
            headers = {**self._headers_for_agent(), **of_stream}
            if len(self._whole) <= LARGE:
                reply.begin(ReplyHead(200, headers, self._whole))
            else:
                reply.begin(ReplyHead(200, headers))
                reply.put(self._whole)
                reply.end()

    def refuse(self, status: int, message: str) -> None:
        """Give the agent an error in place of the rest of the reply."""
        if self._reply.begun:
            self._reply.put(self.plan.translation.error_event(message))
            self._reply.end(broken=True)
        else:
            self._reply.begin(ReplyHead(status, JSON, self.plan.request.dialect.error_body(status, message)))

    def close(self) -> None:
        """Drop what was received and withheld."""
        self._received.body.close()
        self._withheld.close()

    def _headers_for_agent(self) -> dict[str, str]:
        """Those headers of the model that go to the agent. One that an agent's program may choke on does not."""
        return {
            name.title(): value
            for name, value in self._received.headers
            if name.lower() in RESPONSE_HEADERS and _PLAIN_HEADER.fullmatch(value)
        }


class _ReplyErrors:
    """Whatever is raised while a reply is read is the reply's fault, and never ends a call without a record.

    A class, because it is entered for each event of a stream: a generator takes three times as long.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, UpstreamError):
            return
        if isinstance(error, TooLargeError):
            raise UpstreamError(CallError.TOO_LARGE) from error
        if not isinstance(error, ValueError):
            logger.error("a reply could not be read", exc_info=error)
        raise UpstreamError(CallError.MALFORMED) from error


_REPLY_ERRORS = _ReplyErrors()
