"""Starts the rollouts that wait as far as there is room, and ends them when asked to. It knows nothing of protocols and
of who may see what."""

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pydantic import SecretStr

from whet.client.models import Outcome
from whet.runs.store.schema import RolloutRow
from whet.runs.store.served import WaitingRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.scoring import Cause
from whet.serve.budgets import Budgets
from whet.serve.events import EventLog
from whet.serve.policies import Policies
from whet.serve.queue import RolloutQueue
from whet.serve.requests import PreparedRequest
from whet.serve.worker import REASON, Ending, KnownRollout, OpenRollout, RolloutEnd, Worker

logger = logging.getLogger(__name__)

ALL = "*"
"""Stands for all models in a pause."""
CHECK_STORE_SEC = 2.0
"""How often a store that could not be written is tried again."""
CHECKED = "store checked"
ROOM = 1 << 20
"""Bytes that must fit into the store before it counts as writable again."""


class Runner:
    """The rollouts that are not done, and the room that they share."""

    def __init__(
        self, worker: Worker, writer: StoreWriter, policies: Policies, budgets: Budgets, concurrency: int
    ) -> None:
        self._worker, self._writer = worker, writer
        self._policies, self._budgets, self._concurrency = policies, budgets, concurrency
        self.queue = RolloutQueue()
        self.open: dict[str, OpenRollout] = {}
        self.paused: set[str] = set()
        self.draining = False
        self.failing = ""
        """Why the store cannot be written; empty if it can."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """Rollouts that are done, by owner and outcome."""
        self.on_end: Callable[[str], None] = lambda _: None
        """Called with the id of every rollout that is done."""
        self._running: dict[str, OpenRollout] = {}
        self._of_owner: Counter[str] = Counter()
        self._of_model: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        """Rollouts that are not done, by request."""
        self._checking: asyncio.Task[None] | None = None
        """Tries a store that could not be written."""

    def restore(self, rows: Iterable[WaitingRow]) -> None:
        """Let the rollouts of an earlier process wait."""
        for row in rows:
            self._add(row, None)

    def add(
        self,
        rows: Iterable[WaitingRow],
        plan: Sequence[RolloutRow],
        prepared: PreparedRequest,
        key: SecretStr | None,
        created: float,
    ) -> None:
        """Let the rollouts of a new request wait. `plan` has them by their places."""
        for place, (row, planned) in enumerate(zip(rows, plan, strict=True)):
            log = EventLog(row.rollout)
            log.add("queued", created)
            self._worker.remember(row.request, prepared, key)
            self._add(row, log, KnownRollout(planned, place))
        self.dispatch()

    def _add(self, row: WaitingRow, log: EventLog | None, known: KnownRollout | None = None) -> None:
        # Models that clients bring along have no room of their own, so they share a lane of the queue.
        row = row if row.model in self._policies else replace(row, model="")
        self.open[row.rollout] = OpenRollout(row, log, known)
        self._left[row.request] += 1
        self.queue.add(row)

    def running(self, owner: str | None = None) -> int:
        """How many rollouts run, of one caller or all."""
        return len(self._running) if owner is None else self._of_owner[owner]

    def running_on(self, model: str) -> int:
        """How many rollouts run on a model."""
        return self._of_model[model]

    def free(self, owner: str) -> int:
        """How many more rollouts of a caller can start at once, as far as that does not depend on their model."""
        if self.paused or self.draining:
            return 0
        caller = self._budgets.caller(owner)
        own = None if caller is None or caller.concurrency is None else caller.concurrency - self._of_owner[owner]
        free = self._concurrency - len(self._running)
        return max(0, free if own is None else min(free, own))

    @property
    def running_ids(self) -> list[str]:
        return list(self._running)

    def dispatch(self) -> None:
        """Start what may start."""
        while not (self.draining or self.failing) and len(self._running) < self._concurrency:
            row = self.queue.take(self._may_start)
            if row is None:
                return
            one = self.open[row.rollout]
            self._running[row.rollout] = one
            self._of_owner[row.owner] += 1
            self._of_model[row.model] += 1
            one.running = asyncio.create_task(self._worker.run(one))
            one.supervisor = asyncio.create_task(self._supervise(one, one.running))

    def _may_start(self, owner: str, model: str) -> bool:
        if ALL in self.paused or model in self.paused:
            return False
        if model in self._policies and self._of_model[model] >= self._policies.capacity(model):
            return False
        caller = self._budgets.caller(owner)
        return caller is None or caller.concurrency is None or self._of_owner[owner] < caller.concurrency

    async def cancel(self, name: str) -> None:
        """End a rollout for good; returns when its box is gone. One that is done stays as it is."""
        one = self.open.get(name)
        if one is None:
            return
        if self.queue.remove(name) is not None:
            await self._cancel_waiting(one)
            return
        self._interrupt(one, Ending.CANCEL)
        if one.supervisor is not None:
            await asyncio.wait([one.supervisor])
        if self.failing:
            raise StoreFailingError(self.failing)

    async def _cancel_waiting(self, one: OpenRollout) -> None:
        try:
            end = await self._worker.end(one, RolloutEnd(Outcome.CANCELLED))
        except BaseException as error:
            self.queue.add(one.row)
            if isinstance(error, sqlite3.OperationalError):
                raise self.note_failure(error) from error
            raise
        self._close(one, end)

    def abort(self, model: str | None) -> None:
        """End rollouts that run, on a model or all of them, and let them wait again."""
        for one in self._running_on(model):
            self._interrupt(one, Ending.REQUEUE)

    async def wait_idle(self, model: str | None, seconds: float) -> bool:
        """Wait until nothing runs, on a model or at all; whether that came about in time."""
        supervisors = [one.supervisor for one in self._running_on(model) if one.supervisor is not None]
        if supervisors and seconds:
            await asyncio.wait(supervisors, timeout=seconds)
        return not self._running_on(model)

    def _running_on(self, model: str | None) -> list[OpenRollout]:
        return [one for one in self._running.values() if model is None or one.row.model == model]

    async def drain(self, seconds: float) -> None:
        """Start nothing more; wait for what runs, and then interrupt it."""
        self.draining = True
        if not await self.wait_idle(None, seconds):
            self.abort(None)
        while self._running:
            await asyncio.wait([one.supervisor for one in self._running.values() if one.supervisor is not None])
        if self._checking is not None:
            self._checking.cancel()

    def note_failure(self, error: sqlite3.OperationalError) -> "StoreFailingError":
        """The store could not be written. Nothing starts until it can."""
        if not self.failing:
            logger.error("the store cannot be written: %s; nothing starts until it can", error)
            self._checking = asyncio.create_task(self._check_store())
        self.failing = str(error)
        return StoreFailingError(self.failing)

    async def _check_store(self) -> None:
        while self.failing:
            await asyncio.sleep(CHECK_STORE_SEC)
            try:
                await self._writer.do(_check_room)
            except sqlite3.OperationalError as error:
                self.failing = str(error)
            else:
                self.failing = ""
        logger.info("the store can be written again")
        self.dispatch()

    def _interrupt(self, one: OpenRollout, ending: Ending) -> None:
        if one.ending is None and one.running is not None:
            one.running.cancel()
        if one.ending is not Ending.CANCEL:
            one.ending = ending

    async def _supervise(self, one: OpenRollout, running: "asyncio.Task[RolloutEnd]") -> None:
        """Wait for a rollout to end; close it, or let it wait again. Not to be cancelled: it frees the room."""
        await asyncio.wait([running])
        try:
            end = await self._find_end(one, running)
        except sqlite3.OperationalError as error:
            self.note_failure(error)
            one.store_failures += 1
            end = None
        except Exception as error:
            logger.exception("the end of rollout %s could not be stored", one.row.rollout)
            end = RolloutEnd(Outcome.FAILED, Cause.INTERNAL, repr(error)[:REASON])
        del self._running[one.row.rollout]
        self._of_owner[one.row.owner] -= 1
        self._of_model[one.row.model] -= 1
        one.running = one.supervisor = one.ending = one.watch = None
        if end is None:
            self.queue.add(one.row)
        else:
            self._close(one, end)
        self.dispatch()

    async def _find_end(self, one: OpenRollout, running: "asyncio.Task[RolloutEnd]") -> RolloutEnd | None:
        """What became of a rollout; None when it waits again."""
        if running.cancelled():
            return await self._worker.interrupt(one, RolloutEnd(Outcome.CANCELLED) if one.is_cancelled else None)
        error = running.exception()
        if error is None:
            return running.result()
        if isinstance(error, sqlite3.OperationalError):
            raise error
        logger.error("rollout %s failed", one.row.rollout, exc_info=error)
        return await self._worker.interrupt(one, RolloutEnd(Outcome.FAILED, Cause.INTERNAL, repr(error)[:REASON]))

    def _close(self, one: OpenRollout, end: RolloutEnd) -> None:
        """A rollout is done."""
        del self.open[one.row.rollout]
        self.ended[one.row.owner, end.outcome] += 1
        if one.log is not None:
            one.log.add("done", outcome=end.outcome, reward=end.reward)
        self._left[one.row.request] -= 1
        if not self._left[one.row.request]:
            del self._left[one.row.request]
            self._worker.forget(one.row.request)
        one.done.set()
        self.on_end(one.row.rollout)


def _check_room(store: Store) -> None:
    """Write as much as a rollout may, and take it back."""
    store.set(CHECKED, "-" * ROOM)
    store.set(CHECKED, time.time())


class StoreFailingError(Exception):
    """The store cannot be written."""
