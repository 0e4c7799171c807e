"""Runs the rollouts of a plan with bounded concurrency, in total and per model, and stores each result as it ends."""

import asyncio
import random
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from whet.errors import UserError
from whet.exchange import Exchange
from whet.rollout.attempt import attempt
from whet.rollout.failures import ENDPOINT_CAUSES, PERMANENT, Blame
from whet.rollout.observer import RolloutObserver
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout, encode_result
from whet.runs.options import Retry
from whet.runs.plan import Plan, find_changes, task_rows
from whet.runs.progress import OPENED
from whet.runs.results import encode_judge_call
from whet.runs.stats.means import is_pass
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.runs.verdicts import (
    AT_ONCE,
    Settled,
    find_deciding_judges,
    note_verdicts,
    prove_if_needed,
    settle,
    settle_all,
    settle_task,
)
from whet.scoring import Cause, judges_of
from whet.tasks import Task
from whet.text.plain import plain_text

MAX_ATTEMPTS = 3
"""How often a rollout is attempted when the machinery fails."""
BACKOFF_SEC = 1.0
"""The longest first pause before a retry. Each further pause is twice as long."""
HOPELESS = 3
"""When this many rollouts of an agent on a model failed and none had worked, the others are not run."""
FILE_LOG = "file "
"""The logs with the files that the agent made have names that begin so."""
STOPPED = "stopped"
"""The key under which a run stores the limit that stopped it."""
STOPPED_ARMS = "stopped arms"
"""The key under which a run stores which agents and models were stopped, and why."""


@dataclass(frozen=True, slots=True)
class Began:
    """A rollout has begun. Each of its attempts ends with `Ended`."""

    row: RolloutRow


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt has ended and is stored."""

    row: RolloutRow
    attempt: int
    result: Result
    again: bool
    """It failed and is retried."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A limit of the run was reached. The remaining rollouts were not started."""

    limit: str
    """Its name, and how much of it was used."""


@dataclass(frozen=True, slots=True)
class ArmStopped:
    """An agent on a model, or all agents on a model, cannot work. Their remaining rollouts were not started."""

    agent: str | None
    """None for all agents."""
    model: str
    reason: str


class HopelessError(UserError):
    """An agent or a model cannot work at all."""

    def __init__(self, agent: str | None, model: str, reason: str) -> None:
        self.arm = ArmStopped(agent, model, reason)
        super().__init__(f"{reason}; nothing more was run")


AttemptWatch = Callable[[Ended | Stopped], None]
RunWatch = Callable[[Began | Ended | Stopped | Settled | ArmStopped], None]


def open_run(
    folder: Path, plan: Plan, *, resume: bool, about: Mapping[str, object], retry: Retry = Retry.MISSING
) -> list[RolloutRow]:
    """Create or reopen the store of a run, and write the plan into it. Returns the rollouts that are not done and those
    to retry."""
    refuse_existing(folder, resume=resume)
    with open_store(folder, plan.tasks.values(), resume=resume, about=about) as store:
        store.add_skills(plan.skill_rows())
        store.add_rollouts(plan.rows())
        settle_all(store, plan.tasks)
        planned = {row.id for row in plan.rows()}
        store.reopen(_find_retried(store, planned, retry))
        return [row for row in store.pending() if row.id in planned]


def _find_retried(store: Store, planned: Collection[str], retry: Retry) -> list[str]:
    """The rollouts that are done and are run again all the same."""
    if retry is Retry.MISSING:
        return []
    done = {one.rollout.id: one.attempt.value for one in store.results() if one.rollout.id in planned}
    return [name for name, value in done.items() if retry is Retry.ALL or (value is not None and not is_pass(value))]


def refuse_existing(folder: Path, *, resume: bool) -> None:
    """UserError when the folder of a new run is not empty."""
    if folder.is_dir() and not resume and any(folder.iterdir()):
        raise UserError(f"{folder}: exists already; continue it with `resume`, or name another folder with `out`")


@contextmanager
def open_store(folder: Path, tasks: Collection[Task], *, resume: bool, about: Mapping[str, object]) -> Iterator[Store]:
    """Create or reopen the store of a run, with its tasks. Everything written within is committed together."""
    with (
        explain_disk_errors(folder),
        Store.open_write(folder) if resume else Store.create(folder) as store,
        store.atomic(),
    ):
        _refuse_changed_tasks(folder, store, tasks)
        store.add_tasks(task_rows(tasks))
        store.interrupt_open_attempts()
        store.set(OPENED, time.time())
        store.set(STOPPED, None)
        store.set(STOPPED_ARMS, None)
        for key, value in about.items():
            store.set(key, value)
        yield store


async def run_plan(
    folder: Path, plan: Plan, pending: Sequence[RolloutRow], resources: RunResources, concurrency: int, watch: RunWatch
) -> None:
    """Run the pending rollouts. Cancelling it stops cleanly: boxes are closed, and what has ended is stored.

    An agent or model that cannot work is stopped alone. HopelessError when no other is left, or none has a score.
    """
    queue = Queue(pending, {name: model.concurrency * len(model.urls) for name, model in plan.models.items()})
    failures = FailureWatch()
    with explain_disk_errors(folder):
        async with StoreWriter(folder) as writer:
            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(concurrency, len(pending))):
                        workers.create_task(_work(queue, failures, plan, resources, writer, watch))
            except* (UserError, sqlite3.Error) as stopped:
                raise stopped.exceptions[0] from None
            for settled in await writer.do(partial(settle_all, tasks=plan.tasks)):
                watch(settled)
            await _report_limit(resources, writer, queue, watch)
            await _report_stopped_arms(plan, writer, queue, watch)


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full or failing disk into a UserError."""
    try:
        yield
    except sqlite3.Error as error:
        raise UserError(f"{folder}: cannot be written: {error}; what was stored is kept") from error


async def _report_limit(resources: RunResources, writer: StoreWriter, queue: "Queue", watch: AttemptWatch) -> None:
    limit = resources.gateway.exhausted()
    if limit is not None and queue.stopped:
        text = str(limit)
        await writer.do(lambda store: store.set(STOPPED, text))
        watch(Stopped(text))


async def _report_stopped_arms(plan: Plan, writer: StoreWriter, queue: "Queue", watch: RunWatch) -> None:
    """Store and report the stopped arms. HopelessError when no other arm has a score, or none is left."""
    if not queue.hopeless:
        return
    arms = [asdict(one.arm) for one in queue.hopeless]
    await writer.do(lambda store: store.set(STOPPED_ARMS, arms))
    scored = await writer.do(lambda store: store.results())
    for one in queue.hopeless:
        watch(one.arm)
    stopped = {pair for one in queue.hopeless for pair in _arms(one, plan)}
    left = {(row.agent, row.model) for row in plan.rows()} - stopped
    if not scored or not left:
        raise queue.hopeless[0]


def _arms(one: HopelessError, plan: Plan) -> list[tuple[str, str]]:
    return [(agent, one.arm.model) for agent in plan.agents if one.arm.agent in {None, agent}]


async def _work(
    queue: "Queue",
    failures: "FailureWatch",
    plan: Plan,
    resources: RunResources,
    writer: StoreWriter,
    watch: RunWatch,
) -> None:
    while (row := await queue.take()) is not None:
        try:
            if resources.gateway.exhausted() is not None:
                # It was not started, so it stays pending.
                queue.stop()
                return
            watch(Began(row))
            result = await run_until_scored(row, plan.rollout(row), resources, writer, watch)
            if result.score.cause is Cause.INTERRUPTED:
                queue.stop()
            task = plan.tasks[row.task]
            for settled in await writer.do(partial(settle_task, task=task, causes=AT_ONCE)):
                watch(settled)
            failures.learn(row, result)
        except HopelessError as hopeless:
            queue.drop(hopeless)
        finally:
            await queue.give_back(row)


async def run_until_scored(
    row: RolloutRow,
    rollout: Rollout,
    resources: RunResources,
    writer: StoreWriter,
    watch: AttemptWatch,
    failed: int = 0,
    tries: int = MAX_ATTEMPTS,
    observer: RolloutObserver | None = None,
) -> Result:
    """Retry a rollout until it is scored or not retryable, at most `tries` times. `failed` is the number of earlier
    failures. HopelessError when its model cannot be called."""
    backoff = random.Random(row.id)  # noqa: S311 - spreads retries; nothing secret
    blame = Blame(resources.gateway, rollout.model, resources.endpoints, rollout.id)
    number = failed
    while True:
        number += 1
        blame.is_last = number >= tries
        result, again = await _attempt_once(rollout, resources, writer, blame, observer)
        watch(Ended(row, number, result, again))
        why = resources.endpoints.why_useless(row.model)
        if why and result.score.cause in ENDPOINT_CAUSES:
            raise HopelessError(None, row.model, f"model '{row.model}': {why}")
        if not again:
            return result
        await asyncio.sleep(backoff.uniform(0.5, 1) * BACKOFF_SEC * 2 ** (number - 1))


async def _attempt_once(
    rollout: Rollout,
    resources: RunResources,
    writer: StoreWriter,
    blame: Blame,
    observer: RolloutObserver | None,
) -> tuple[Result, bool]:
    """Attempt a rollout once and store the result. Returns the result, and whether to retry."""
    started = time.time()
    number = await writer.do(lambda store: store.start_attempt(rollout.id, started))

    async def record(exchange: Exchange) -> None:
        await writer.do(lambda store: store.add_exchange(number, exchange))

    async def record_judge(exchange: Exchange) -> None:
        await writer.do(lambda store: store.add_log(number, *encode_judge_call(exchange)))

    result = await attempt(rollout, resources, record, record_judge, blame, observer)
    again = not blame.is_last and _is_worth_retrying(result, rollout, resources)
    if not again:
        result = await prove_if_needed(rollout, result, resources, writer, record_judge)
    ended = time.time()

    def store_settled(store: Store) -> Result:
        note_verdicts(store, rollout.task.id, result)
        deciding = () if again else find_deciding_judges(store, rollout.task.id)
        settled = settle(result, judges_of(rollout.task), deciding)
        store_result(store, number, settled, ended)
        return settled

    return await writer.do(store_settled), again


def _is_worth_retrying(result: Result, rollout: Rollout, resources: RunResources) -> bool:
    cause = result.score.cause
    if cause is None or resources.gateway.exhausted() is not None:
        return False
    if cause in ENDPOINT_CAUSES:
        # A key that worked before may be refused because of what the agent sent, or temporarily.
        return not resources.endpoints.why_useless(rollout.model.name)
    return cause.worth_retrying


def store_result(store: Store, attempt: int, result: Result, ended: float) -> None:
    """Store the result of an attempt, and its logs."""
    score, report = result.score, result.report
    if report is not None:
        # Logs are large and rarely read; results are small and read all at once.
        store.add_log(attempt, "agent stdout", plain_text(report.stdout).encode())
        store.add_log(attempt, "agent stderr", plain_text(report.stderr).encode())
        for name, data in report.transcript.items():
            store.add_log(attempt, plain_text(f"transcript {name}"), data)
    for name, data in result.files.items():
        store.add_log(attempt, plain_text(f"{FILE_LOG}{name}"), data)
    body = encode_result(result)
    # A rollout whose score is missing is retried when the run is resumed. One that nothing judges never has a score.
    final = score.value is not None or score.cause is Cause.UNJUDGED
    store.finish_attempt(attempt, body, value=score.value, cause=score.cause, final=final, ended=ended)


class FailureWatch:
    """Detects an agent or a model that cannot work at all, before it has used up the plan."""

    def __init__(self) -> None:
        self._failures: Counter[tuple[str, str]] = Counter()
        self._worked: set[tuple[str, str]] = set()

    def learn(self, row: RolloutRow, result: Result) -> None:
        """Count a result. HopelessError when the agent cannot work on the model."""
        arm, score, failure = (row.agent, row.model), result.score, result.failure
        refused = failure is not None and PERMANENT in failure.details
        if (score.value is not None or score.cause is Cause.UNJUDGED) and not refused:
            self._worked.add(arm)
        elif arm not in self._worked and (refused or score.cause in {Cause.AGENT, Cause.MODEL}):
            self._failures[arm] += 1
            if self._failures[arm] >= HOPELESS:
                outcome = "the model answered no call" if refused else "none was scored"
                reason = failure.reason if failure is not None else score.reason
                raise HopelessError(
                    row.agent,
                    row.model,
                    f"agent '{row.agent}' on model '{row.model}': {HOPELESS} rollouts failed and {outcome}; "
                    f"the last: {reason}",
                )


class Queue:
    """The pending rollouts, handed out in plan order as far as each model has capacity."""

    def __init__(self, rows: Sequence[RolloutRow], room: dict[str, int]) -> None:
        self._waiting: dict[str, deque[RolloutRow]] = {}
        for row in rows:
            self._waiting.setdefault(row.model, deque()).append(row)
        self._room = room
        self._running: Counter[str] = Counter()
        self._changed = asyncio.Condition()
        self.stopped = False
        """No more rollouts are handed out."""
        self.hopeless: list[HopelessError] = []
        """Why arms were dropped."""

    def stop(self) -> None:
        """Hand out no more rollouts."""
        self.stopped = True

    def drop(self, hopeless: HopelessError) -> None:
        """Drop the waiting rollouts of an arm that cannot work."""
        arm = hopeless.arm
        rows = self._waiting.get(arm.model, deque())
        kept = [row for row in rows if arm.agent not in {None, row.agent}]
        rows.clear()
        rows.extend(kept)
        if all((one.arm.agent, one.arm.model) != (arm.agent, arm.model) for one in self.hopeless):
            self.hopeless.append(hopeless)

    async def take(self) -> RolloutRow | None:
        """Wait for the next rollout; None when none is left."""
        async with self._changed:
            while not self.stopped and any(self._waiting.values()):
                ready = [
                    rows for name, rows in self._waiting.items() if rows and self._running[name] < self._room[name]
                ]
                if ready:
                    row = min(ready, key=lambda rows: rows[0].ordinal).popleft()
                    self._running[row.model] += 1
                    return row
                await self._changed.wait()
            return None

    async def give_back(self, row: RolloutRow) -> None:
        """Return the capacity of a rollout that has ended."""
        async with self._changed:
            self._running[row.model] -= 1
            self._changed.notify_all()


def _refuse_changed_tasks(folder: Path, store: Store, tasks: Iterable[Task]) -> None:
    before = {row.id: row for row in store.tasks()}
    for task in tasks:
        row = before.get(task.id)
        if row is None or row.digest == task.digest:
            continue
        if find_changes(row, task):
            raise UserError(
                f"{task.origin}: task '{task.id}' has changed since the run in {folder} began; "
                "a changed task is another measurement: start a new run with another `out`"
            )
        raise UserError(
            f"{task.origin}: task '{task.id}' is judged otherwise since the run in {folder} began; run whet rejudge "
            f"{folder} first: it judges again what is on record, and then this command runs only what is left"
        )
