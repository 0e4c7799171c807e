"""One served rollout from the queue to its outcome: finds what it needs, tries it, and stores what became of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from pydantic import SecretStr

from whet.client.models import OnStraddle, Outcome, Phase, Status
from whet.gateway import Model
from whet.rollout.result import Rollout
from whet.runs.config import NO_MODEL
from whet.runs.results import ResultReader
from whet.runs.store.schema import AttemptRow, RolloutRow
from whet.runs.store.served import PolicyRow, ServedRow, WaitingRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.runs.verdicts import AT_ONCE, settle_task
from whet.scoring import Cause
from whet.serve.attempts import AttemptWatch, RolloutRun, with_seed
from whet.serve.budgets import Budgets
from whet.serve.events import EventLog, read_events
from whet.serve.policies import Policies, read_weights
from whet.serve.problems import Refused
from whet.serve.reading import StoreReader
from whet.serve.requests import Offer, PreparedRequest, Terms, decode_request, open_endpoint

SPENT = "spent"
"""The cause of a rollout without a score because the limit of its caller is used up."""
NOT_OFFERED = "not-offered"
"""The cause of a rollout that waited for something that the server, started again, does not offer any more."""
LOST_KEY = "lost-key"
"""The cause of a rollout whose key for its model was lost when the server was started again."""
PREPARED = 256
"""Requests that are kept resolved in memory. Others are read again when a rollout of theirs starts."""
STORE_FAILURES = 3
"""After so many times a rollout is not tried again that could not be stored: each time it is paid for."""
REASON = 1000
"""Characters of a reason that are kept with a rollout."""

CheckModel = Callable[[Model], Awaitable[Model]]
"""Checks the address of a model that a client brings along, and pins it. Refused when it is not allowed."""


class Ending(Enum):
    """What a rollout that runs is ended for."""

    CANCEL = "cancel"
    """It is done then."""
    REQUEUE = "requeue"
    """It waits again."""


@dataclass(frozen=True, slots=True)
class RolloutEnd:
    """What became of a rollout."""

    outcome: Outcome
    cause: str | None = None
    reason: str = ""
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class KnownRollout:
    """What a rollout needs to start."""

    row: RolloutRow
    place: int
    """In its group."""
    attempts: Sequence[AttemptRow] = ()
    """Those that there were before."""
    events: int = 0
    """How many are stored, if they are not in memory."""
    request: tuple[bytes, str] | None = None
    """Body and terms of its request, if they are not in memory."""


@dataclass(eq=False, slots=True)
class OpenRollout:
    """A rollout that is not done."""

    row: WaitingRow
    log: EventLog | None
    """None for a rollout of an earlier process until its events are needed."""
    known: KnownRollout | None = None
    """Until it is tried: what there is to know of it. None when the store must be asked."""
    watch: AttemptWatch | None = None
    """While it runs."""
    running: "asyncio.Task[RolloutEnd] | None" = None
    supervisor: "asyncio.Task[None] | None" = None
    """Ends after `running`, when what became of it is stored."""
    ending: Ending | None = None
    store_failures: int = 0
    """How often what it did could not be stored."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> Status:
        return Status.QUEUED if self.running is None else Status.RUNNING

    @property
    def phase(self) -> Phase | None:
        return self.watch.phase if self.watch else None

    def open_log(self, recorded: int) -> EventLog:
        """Its events, of which so many are stored if it is of an earlier process."""
        if self.log is None:
            self.log = EventLog(self.row.rollout, recorded)
        return self.log

    @property
    def is_cancelled(self) -> bool:
        return self.ending is Ending.CANCEL


class CannotRunError(Exception):
    """A rollout ends before its attempt begins."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.end = RolloutEnd(Outcome.FAILED, cause, reason[:REASON])


class Worker:
    """Does rollouts, one per call."""

    def __init__(
        self,
        writer: StoreWriter,
        read: StoreReader,
        offer: Offer,
        policies: Policies,
        budgets: Budgets,
        check_model: CheckModel,
        check_update: CheckModel,
    ) -> None:
        """`check_model` is for models that clients bring along, `check_update` for offered ones that were moved."""
        self._writer, self._read = writer, read
        self._offer, self._policies, self._budgets = offer, policies, budgets
        self._check_model, self._check_update = check_model, check_update
        self._keys: dict[str, SecretStr] = {}
        """Of models that clients brought along, by request."""
        self._prepared: dict[str, PreparedRequest] = {}
        self.unsettled: set[str] = set()
        """Tasks with a rollout whose judge came to no verdict."""

    def remember(self, request: str, prepared: PreparedRequest, key: SecretStr | None) -> None:
        """Keep what the rollouts of a request need."""
        if key is not None:
            self._keys[request] = key
        self._prepared[request] = prepared
        if len(self._prepared) > PREPARED:
            del self._prepared[next(iter(self._prepared))]

    def forget(self, request: str) -> None:
        """All rollouts of a request are done."""
        self._keys.pop(request, None)
        self._prepared.pop(request, None)

    async def run(self, one: OpenRollout) -> RolloutEnd:
        """Run a rollout to its end. Cancelled, it leaves its attempt to `interrupt`."""
        stored = await self._take_known(one)
        if any(attempt.ended is None for attempt in stored.attempts):  # left when the store could not be written
            await self._writer.do(lambda store: store.interrupt_open_attempts(one.row.rollout))
        one.watch = AttemptWatch(one.open_log(stored.events), len(stored.attempts))
        try:
            prepared = self._prepare(one.row.request, stored.request)
            if not any(attempt.final for attempt in stored.attempts):
                await self._attempt(one, stored, prepared)
        except CannotRunError as nothing:
            return await self.end(one, nothing.end)
        return await self._conclude(one, prepared)

    async def _take_known(self, one: OpenRollout) -> KnownRollout:
        """What is known of a rollout that is about to be tried. Next time the store knows more."""
        known, one.known = one.known, None
        is_prepared = one.row.request in self._prepared
        if known is not None and is_prepared:
            return known
        return await self._read(partial(_read_stored, one=one, with_body=not is_prepared))

    async def interrupt(self, one: OpenRollout, end: RolloutEnd | None) -> RolloutEnd | None:
        """Store that the attempt of a rollout was interrupted, and what became of the rollout if it is done then."""
        name, watch = one.row.rollout, one.watch

        def store_interruption(store: Store) -> tuple[bool, ServedRow | None]:
            had_attempt = watch is not None and watch.store_interruption(store)
            if end is None:
                return had_attempt, None
            return had_attempt, store.served.end(name, end.outcome, time.time(), end.cause, end.reason)

        had_attempt, row = await self._writer.do(store_interruption)
        if had_attempt and watch is not None:
            watch.interrupt(again=end is None)
        return _stands(row, end) if row is not None and end is not None else None

    async def end(self, one: OpenRollout, end: RolloutEnd) -> RolloutEnd:
        """Store what became of a rollout whose attempts do not say it."""
        name = one.row.rollout
        row = await self._writer.do(
            lambda store: store.served.end(name, end.outcome, time.time(), end.cause, end.reason)
        )
        return _stands(row, end)

    def _prepare(self, request: str, stored: tuple[bytes, str] | None) -> PreparedRequest:
        if (known := self._prepared.get(request)) is not None:
            return known
        assert stored is not None
        body, terms = stored
        try:
            prepared = self._offer.prepare(decode_request(body))
        except Refused as refused:
            raise CannotRunError(NOT_OFFERED, str(refused)) from refused
        # The stored body does not have the key that the terms speak of.
        prepared = replace(prepared, terms=Terms.model_validate_json(terms))
        self.remember(request, prepared, None)
        return prepared

    async def _attempt(self, one: OpenRollout, stored: KnownRollout, prepared: PreparedRequest) -> None:
        owner = one.row.owner
        if one.store_failures >= STORE_FAILURES:
            raise CannotRunError(Cause.INTERNAL, f"{STORE_FAILURES} times what it did could not be stored")
        if (reached := self._budgets.exhausted(owner)) is not None:
            raise CannotRunError(SPENT, f"the limit of '{owner}' is used up: {reached}")
        # From here on the rollout keeps its model, whatever is updated.
        model = with_seed(await self._model(one.row.request, prepared), prepared.seed, stored.place)
        agent = self._offer.resources.agents[prepared.agent]
        rollout = Rollout(stored.row.id, prepared.task, agent, model, prepared.skill, stored.row.sample)
        shared = replace(self._budgets.resources(owner), endpoints=self._policies.endpoints(prepared.model))
        assert one.watch is not None
        run = RolloutRun(stored.row, rollout, shared, self._writer, prepared.terms, one.watch, stored.attempts)
        await run.until_over()

    async def _model(self, request: str, prepared: PreparedRequest) -> Model:
        if prepared.endpoint is None:
            return await self._offered_model(prepared.model) if prepared.model in self._policies else NO_MODEL
        key = self._keys.get(request)
        if prepared.terms.needs_key and key is None:
            lost = "the server was started again, and the key of the model was in its memory only; request it again"
            raise CannotRunError(LOST_KEY, lost)
        return await _check(self._check_model, open_endpoint(prepared.endpoint, key))

    async def _offered_model(self, name: str) -> Model:
        """An offered model. An address that came with an update is checked again: its name may point elsewhere now."""
        model = self._policies.model(name)
        return await _check(self._check_update, model) if self._policies.is_moved(name) else model

    async def _conclude(self, one: OpenRollout, prepared: PreparedRequest) -> RolloutEnd:
        """Store what the attempts of a rollout came to."""
        name, task = one.row.rollout, prepared.task
        is_spent = self._budgets.exhausted(one.row.owner) is not None
        updates = tuple(self._policies.log(prepared.model))
        may_settle = task.id in self.unsettled

        def store_end(store: Store) -> tuple[ServedRow, RolloutEnd]:
            end = _judge_end(store, name, prepared.terms, updates, is_spent=is_spent)
            row = store.served.end(name, end.outcome, time.time(), end.cause, end.reason)
            if may_settle:
                settled = [one.row.id for one in settle_task(store, task, AT_ONCE)]
                store.served.settle(settled, Outcome.FAILED, Outcome.SCORED)
            return row, end

        row, end = await self._writer.do(store_end)
        if end.cause in AT_ONCE:
            self.unsettled.add(task.id)
        return _stands(row, end)


def _stands(row: ServedRow, end: RolloutEnd) -> RolloutEnd:
    """What is stored of a rollout, which may have been done before."""
    return end if row.outcome == end.outcome else RolloutEnd(Outcome(row.outcome or end.outcome), row.cause, row.reason)


def _read_stored(store: Store, one: OpenRollout, *, with_body: bool) -> KnownRollout:
    name = one.row.rollout
    served = store.served.rollout(name)
    assert served is not None
    events = len(read_events(store, name)) if one.log is None else 0
    request = store.served.request(one.row.request) if with_body else None
    body = store.served.body(one.row.request) if with_body else None
    both = (body, request.terms) if body is not None and request is not None else None
    return KnownRollout(store.rollout(name), served.place, store.attempts_of(name), events, both)


async def _check(check: CheckModel, model: Model) -> Model:
    try:
        return await check(model)
    except Refused as refused:
        raise CannotRunError(NOT_OFFERED, str(refused)) from refused


def _judge_end(
    store: Store, rollout: str, terms: Terms, updates: tuple[PolicyRow, ...], *, is_spent: bool
) -> RolloutEnd:
    """What became of a rollout, by its last attempt with a result and the weights that sampled it."""
    tried = [attempt for attempt in ResultReader(store).attempts_of(rollout) if attempt.result is not None]
    if not tried:
        return RolloutEnd(Outcome.FAILED, Cause.INTERNAL, "no attempt has ended")
    last = tried[-1]
    assert last.result is not None
    score = last.result.score
    reason = score.reason[:REASON]
    if score.value is None and score.cause is not Cause.UNJUDGED:
        cause = SPENT if is_spent and score.cause is Cause.INTERRUPTED else score.cause
        return RolloutEnd(Outcome.FAILED, cause, reason)
    weights = read_weights(store, last.id, updates, reported=terms.reports_weights)
    if weights.straddled and terms.on_straddle is OnStraddle.REFUSE:
        names = " and ".join(weights.versions) or "several versions"
        return RolloutEnd(Outcome.STALE, None, f"the weights changed while it ran: {names}")
    behind = updates[-1].number - weights.oldest if updates and weights.oldest is not None else 0
    if terms.max_staleness is not None and behind > terms.max_staleness:
        return RolloutEnd(
            Outcome.STALE, None, f"its weights are {behind} updates behind; expected at most {terms.max_staleness}"
        )
    outcome = Outcome.SCORED if score.value is not None else Outcome.UNSCORED
    return RolloutEnd(outcome, None, "", score.value)
