"""One model call: the reply is passed on live, the exchange is committed, and only then the end is released."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext

from whet.exchange import CallError
from whet.gateway.buffers.memory import LARGE
from whet.gateway.buffers.reply_buffer import ReplyBuffer, ReplyConnection
from whet.gateway.calls.requests import AgentRequest, CallContext, PlannedCall
from whet.gateway.calls.transfer import Transfer
from whet.gateway.limits import Allowance
from whet.ids import digest

DRAIN_SEC = 60.0
"""How long a reply is still received after the agent hung up, so that its record is whole."""


class NotRecordedError(Exception):
    """The exchange could not be committed, so the agent must not see the end of the reply."""


class Call:
    """One call under way. It is made in the task of the agent's first request, and continues when the agent hangs up.

    When it has ended, it keeps only what a retry is recognised by and what a retry gets.
    """

    def __init__(
        self,
        context: CallContext,
        plan: PlannedCall,
        allowance: Allowance,
        on_end: "Callable[[Call, BaseException | None], None]",
    ) -> None:
        self.reply = ReplyBuffer(context.memory.spool())
        self.delivered = False
        """The agent has been given the reply to its end."""
        self.ended = False
        self.sealed = False
        """The session is closing."""
        self.hung_up = False
        """The agent hung up while the reply was received, and has not come back."""
        self.connection: ReplyConnection | None = None
        """The agent that waits for the reply."""
        self._transfer: Transfer | None = Transfer(context, plan, allowance, self.reply)
        self._on_end = on_end
        self._path = plan.request.path
        self._body: bytes | str = plan.request.body
        """What a retry is recognised by. Of a call that has ended, it may be a digest of the body."""
        self._failed = False
        self._receiving = False
        """Only while this holds may the task be cancelled: nothing interrupts a commit."""
        self._task: asyncio.Task[object] | None = None
        self._drain: asyncio.TimerHandle | None = None

    async def answer(self, connection: ReplyConnection) -> None:
        """Give the agent the reply on this connection; the first time, by making the call."""
        self.connection = connection
        self.hung_up = False
        if self._drain is not None:
            self._drain.cancel()
        self.reply.attach(connection)
        if self._task is None:
            self._task = asyncio.current_task()
            await self._run()
        await self.reply.wait_until_sent(connection)
        complete = await connection.flush()
        if self.connection is connection:
            self.delivered = self.delivered or complete
            self._detach()

    def hang_up(self, connection: ReplyConnection) -> None:
        """The agent closed this connection. When nobody waits any more, the rest is still received for a while."""
        if self.connection is connection:
            self.reply.attach(None)
            self._detach()
            if self._receiving:
                self.hung_up = True
                self._drain = asyncio.get_running_loop().call_later(DRAIN_SEC, self._stop)

    def seal(self) -> None:
        """The session is closing: stop receiving."""
        self.sealed = True
        self._stop()

    def is_retried_by(self, request: AgentRequest) -> bool:
        """Whether a request is this call again: word for word, from an agent that did not get the reply to its end."""
        body = request.body if isinstance(self._body, bytes) else digest(request.body)
        same = body == self._body and request.path == self._path
        # Two calls side by side may well be equal; a retry comes when the agent has given the first one up.
        return same and not self.delivered and not self._failed and self.connection is None

    def _detach(self) -> None:
        self.connection = None
        if self.ended and isinstance(self._body, bytes) and not self.delivered:
            self._body = digest(self._body)

    def _stop(self) -> None:
        if self._receiving and self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        transfer, failure = self._transfer, None
        assert transfer is not None
        try:
            await self._transfer_reply(transfer)
        except NotRecordedError:
            transfer.refuse(500, "The reply could not be recorded.")
        except Exception as error:  # noqa: BLE001 - the session gets it
            failure = error
        finally:
            transfer.allowance.close()
            # An agent must not wait for ever for a call that a defect ended.
            if not self.reply.ended:
                transfer.refuse(500, "The call failed.")
            transfer.close()
            if isinstance(self._body, bytes) and (len(self._body) > LARGE or self.connection is None):
                self._body = digest(self._body)
            self._transfer = None
            self.ended = True
            self._on_end(self, failure)

    async def _transfer_reply(self, transfer: Transfer) -> None:
        """Receive the reply, commit the exchange, and release the end."""
        failure = await self._receive(transfer)
        context = transfer.context
        async with context.memory.large if transfer.is_large else nullcontext():
            wrong = failure or transfer.check_reply()
            error = wrong or (CallError.HUNG_UP if self.hung_up else None)
            self._failed = error not in {None, CallError.HUNG_UP}
            exchange = transfer.build_exchange(error)
            plan = transfer.plan
            await context.commit(exchange, plan.dialect.NAME, transfer.allowance)
            transfer.release(error)
            if plan.stored is not None:
                await plan.stored.settle(exchange, good=wrong is None)

    async def _receive(self, transfer: Transfer) -> CallError | None:
        if self.sealed:
            return CallError.SEALED
        self._receiving = True
        try:
            return await transfer.receive()
        except asyncio.CancelledError:
            assert self._task is not None
            self._task.uncancel()
            return CallError.HUNG_UP if self.hung_up and not self.sealed else CallError.SEALED
        finally:
            self._receiving = False
            if self._drain is not None:
                self._drain.cancel()
