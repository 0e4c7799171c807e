"""Takes requests in: checks them, commits them with their rollouts in one transaction, and hands them to the runner."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import SecretStr

from whet.client.models import RolloutRequest
from whet.gateway.prices import price_for
from whet.ids import digest, new_name
from whet.runs.plan import skill_row, task_rows
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.served import RequestRow, ServedRow, WaitingRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.serve.access import Caller
from whet.serve.budgets import Budgets
from whet.serve.policies import Policies
from whet.serve.problems import Code, Refused
from whet.serve.reading import StoreReader
from whet.serve.requests import Offer, PreparedRequest, encode_request, is_small, open_endpoint
from whet.serve.runner import Runner
from whet.serve.worker import CheckModel

T = TypeVar("T")

BUSY_SEC = 5.0
"""After how many seconds a client whose queue is full may try again."""
MOST_KEY = 200
"""Characters of an idempotency key."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request that is stored."""

    row: RequestRow
    prepared: PreparedRequest | None = None
    """None if it was stored before."""
    plan: Sequence[RolloutRow] = ()
    """Its rollouts by their places, if it is new."""


@dataclass(frozen=True, slots=True)
class _NewRequest:
    """A request that was checked, ready to be stored."""

    row: RequestRow
    body: bytes
    prepared: PreparedRequest
    task: TaskRow
    rollouts: list[WaitingRow]

    def add_to(self, store: Store) -> "Submitted":
        """Store it, unless its key was used before; what has the key then."""
        if self.row.key is not None and (same := store.served.find_request(self.row.owner, self.row.key)) is not None:
            return Submitted(same)
        skill, prepared = self.prepared.skill, self.prepared
        store.add_tasks([self.task])
        store.add_skills([skill_row(skill)] if skill else [])
        cell = (self.task.id, prepared.agent, prepared.model, skill.digest if skill else None)
        first = store.served.next_sample(*cell)
        plan = [RolloutRow(one.rollout, one.ordinal, *cell, first + place) for place, one in enumerate(self.rollouts)]
        store.add_rollouts(plan)
        served = (ServedRow(one.rollout, self.row.id, place) for place, one in enumerate(self.rollouts))
        store.served.add_request(self.row, self.body, served)
        return Submitted(self.row, prepared, plan)


class Submitter:
    """Takes requests in."""

    def __init__(
        self,
        offer: Offer,
        policies: Policies,
        budgets: Budgets,
        runner: Runner,
        writer: StoreWriter,
        read: StoreReader,
        check_model: CheckModel,
        most_waiting: int,
        next_ordinal: int,
    ) -> None:
        self._offer, self._policies, self._budgets = offer, policies, budgets
        self._runner, self._writer, self._read, self._check_model = runner, writer, read, check_model
        self._most_waiting, self._next_ordinal = most_waiting, next_ordinal
        self._coming: Counter[str] = Counter()
        """Rollouts that are being stored, by owner."""
        self._storing: set[asyncio.Task[Submitted]] = set()

    async def submit(self, request: RolloutRequest, caller: Caller, key: str | None) -> Submitted:
        """Queue the rollouts of a request."""
        if key is not None and not (0 < len(key) <= MOST_KEY and key.isprintable()):
            raise Refused(Code.INVALID, f"the idempotency key is not 1 to {MOST_KEY} printable characters")
        body = await self._work(encode_request, request)
        content = digest(body)
        if key is not None:
            same = await self._read(lambda store: store.served.find_request(caller.name, key))
            if same is not None:
                return _join(Submitted(same), content)
        await self._budgets.add(caller)
        self._refuse_stopped(caller)
        prepared, task = await self._work(self._prepare, request)
        await self._check(request, prepared, caller)
        self._refuse_full(request.samples, caller)
        row = RequestRow(
            _new_id(), caller.name, key, content, time.time(), request.priority, prepared.terms.model_dump_json()
        )
        rollouts = [
            WaitingRow(_new_id(), row.id, caller.name, prepared.model, row.priority, self._next_ordinal + place)
            for place in range(request.samples)
        ]
        self._next_ordinal += len(rollouts)
        secret = request.endpoint.api_key if request.endpoint else None
        # A client that hangs up now must not leave rollouts in the store that nobody starts.
        storing = asyncio.create_task(self._store(_NewRequest(row, body, prepared, task, rollouts), secret))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        return _join(await asyncio.shield(storing), content)

    async def close(self) -> None:
        """Wait for what is being stored."""
        while self._storing:
            await asyncio.wait(self._storing)

    async def _work(self, work: Callable[[RolloutRequest], T], request: RolloutRequest) -> T:
        """What a function makes of a request: in a thread, unless that would take longer than the function."""
        return work(request) if is_small(request) else await self._read.run(work, request)

    async def _store(self, new: _NewRequest, secret: SecretStr | None) -> Submitted:
        owner, count = new.row.owner, len(new.rollouts)
        self._coming[owner] += count
        try:
            stored = await self._writer.do(new.add_to)
        finally:
            self._coming[owner] -= count
        if stored.prepared is not None:
            self._runner.add(new.rollouts, stored.plan, stored.prepared, secret, new.row.created)
        return stored

    def _prepare(self, request: RolloutRequest) -> tuple[PreparedRequest, TaskRow]:
        """What the request needs."""
        prepared = self._offer.prepare(request)
        (row,) = task_rows([prepared.task])
        return prepared, row

    def _refuse_stopped(self, caller: Caller) -> None:
        if self._runner.draining:
            raise Refused(Code.DRAINING, "the server is about to stop; try again later", BUSY_SEC)
        if self._runner.failing:
            raise Refused(Code.BUSY, f"the store of this server cannot be written: {self._runner.failing}", BUSY_SEC)
        if (reached := self._budgets.exhausted(caller.name)) is not None:
            raise Refused(Code.SPENT, f"the limit of '{caller.name}' is used up: {reached}")

    def _refuse_full(self, count: int, caller: Caller) -> None:
        """Refuse more rollouts than may wait, beyond those that can start at once."""
        waiting, free = self._runner.queue, self._runner.free(caller.name)
        own = waiting.count(caller.name) + self._coming[caller.name]
        if caller.queue is not None and own + count - free > caller.queue:
            raise Refused(Code.BUSY, f"the queue of '{caller.name}' is full: {own} of {caller.queue} wait", BUSY_SEC)
        every = len(waiting) + self._coming.total()
        if every + count - free > self._most_waiting:
            raise Refused(Code.BUSY, f"the queue is full: {every} of {self._most_waiting} wait", BUSY_SEC)

    async def _check(self, request: RolloutRequest, prepared: PreparedRequest, caller: Caller) -> None:
        """Refuse a model whose address is not allowed, or whose cost cannot be limited."""
        if request.endpoint is not None:
            model = await self._check_model(open_endpoint(request.endpoint, request.endpoint.api_key))
        elif prepared.model in self._policies:
            model = self._policies.model(prepared.model)
        else:
            return
        if caller.limits.cost is not None and price_for(model) is None:
            raise Refused(
                Code.INVALID, f"the price of model '{model.name}' is not known, so the limit on cost cannot hold"
            )


def _join(stored: Submitted, content: str) -> Submitted:
    """A stored request with this content. Refused when it has another content."""
    if stored.row.digest != content:
        raise Refused(Code.CONFLICT, f"the idempotency key was used for another request, group {stored.row.id}")
    return stored


def _new_id() -> str:
    return new_name() + new_name()
