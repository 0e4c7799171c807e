"""Whole runs on the server: `whet run` for a client, on tasks of the served set, in a run folder of its own.

A run that was under way when the server ended is resumed when it comes back.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from whet.client.models import ComparisonRequest, Event, RunRequest, RunView, Status
from whet.errors import UserError, did_you_mean
from whet.gateway import Gateway, Limits
from whet.gateway.limits import Spent
from whet.ids import new_name
from whet.rollout.endpoint import Endpoints
from whet.rollout.resources import RunResources
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.resources import limits_of
from whet.runs.run import Event as RunEvent
from whet.runs.run import Started, run_opened
from whet.runs.scheduler import Ended, Stopped
from whet.runs.stats.compare import Key, RunPart
from whet.runs.stats.compared import compare_and_rank
from whet.runs.store.store import DATABASE
from whet.serve.access import Caller, Scope, require_scope
from whet.serve.budgets import has_limits
from whet.serve.options import ServeOptions
from whet.serve.problems import Code, Refused
from whet.serve.run_budgets import find_limits, reserve, subtract
from whet.serve.run_records import RunFiles, RunOutcome, RunRecord
from whet.serve.run_views import has_begun, read_spent, read_view
from whet.skill import Skill
from whet.tasks import Task, select_tasks

logger = logging.getLogger(__name__)

AT_ONCE = 2
"""Runs that are under way at the same time. Each has a concurrency of its own."""
MOST_OPEN = 100
"""Runs of one caller that are not done."""
MOST_PLANNED = 100_000
"""Rollouts of one run."""
SERVED = "served"
"""In a comparison, the name of the rollouts that are not part of a run."""


class Host(Protocol):
    """What runs use of the service."""

    @property
    def served_tasks(self) -> Mapping[str, Task]: ...
    @property
    def offered_skills(self) -> Mapping[str, Skill]: ...
    @property
    def default_skill(self) -> str | None: ...
    def resources(self) -> RunResources:
        """What rollouts need, with the agents and models that are offered, the default first, as they are now."""
        ...

    def gateway_of(self, caller: Caller) -> Gateway:
        """It counts what the caller has used."""
        ...

    async def part_of(self, caller: Caller) -> RunPart:
        """The served rollouts that the caller may see."""
        ...


@dataclass(slots=True, eq=False)
class _OpenRun:
    """A run that is not done."""

    record: RunRecord
    caller: Caller
    reserved: Spent
    task: "asyncio.Task[None] | None" = None
    started: bool = False
    cancelled: bool = False
    stopped_by: str = ""


class Runs:
    """The runs of a server. Open for as long as the server runs."""

    def __init__(self, host: Host, options: RunOptions, folder: Path, callers: Iterable[Caller]) -> None:
        """`options` are those that all runs share, such as the sandbox; their limits are those of the server."""
        self._host = host
        self._options = options
        self._files = RunFiles(folder)
        self._callers = {caller.name: caller for caller in callers}
        self._records: dict[str, RunRecord] = {}
        self._open: dict[str, _OpenRun] = {}
        self._events: dict[str, int] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._starting = asyncio.Lock()
        self._draining = False

    async def __aenter__(self) -> Self:
        for record in await asyncio.to_thread(self._files.read_all):
            self._records[record.id] = record
            caller = self._callers.get(record.owner, Caller(record.owner, frozenset()))
            spent = await asyncio.to_thread(read_spent, self._files.run(record.id))
            if record.outcome is None:
                self._start(record, caller)
            else:
                self._host.gateway_of(caller).add_spent(spent)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain(0)

    async def start(self, request: RunRequest, caller: Caller, key: str | None = None) -> RunView:
        """Begin a run, or queue it when others are under way. A repeated key gives the run that it began."""
        require_scope(caller, Scope.RUN)
        async with self._starting:
            record = self._find_repeated(request, caller, key) or await self._begin(request, caller, key)
        return await self.get(record.id, caller)

    def _find_repeated(self, request: RunRequest, caller: Caller, key: str | None) -> RunRecord | None:
        if key is None:
            return None
        same = next((one for one in self._records.values() if (one.owner, one.key) == (caller.name, key)), None)
        if same is not None and same.request != request:
            raise Refused(Code.CONFLICT, f"the idempotency key was used for another request, run {same.id}")
        return same

    async def _begin(self, request: RunRequest, caller: Caller, key: str | None) -> RunRecord:
        if self._draining:
            raise Refused(Code.DRAINING, "the server is about to stop; try again later")
        if sum(one.caller.name == caller.name for one in self._open.values()) >= MOST_OPEN:
            raise Refused(Code.BUSY, f"{MOST_OPEN} runs are not done yet; wait for one of them")
        self._plan(request)
        limits = find_limits(self._shared_limits(caller), self._host.gateway_of(caller).spent(), request)
        record = RunRecord(
            id=new_name(), owner=caller.name, created=time.time(), request=request, limits=limits, key=key
        )
        await asyncio.to_thread(self._files.write, record)
        self._records[record.id] = record
        self._start(record, caller)
        return record

    async def get(self, name: str, caller: Caller) -> RunView:
        """A run as it is now."""
        record = self._find(name, caller)
        is_open = self._open.get(name)
        status = Status.DONE if is_open is None else Status.RUNNING if is_open.started else Status.QUEUED
        planned = self._count_planned(record.request)
        return await asyncio.to_thread(read_view, self._files.run(name), record, status, planned)

    async def list_runs(self, caller: Caller, limit: int = 100) -> list[RunView]:
        """The runs that the caller may see, the newest first."""
        require_scope(caller, Scope.READ)
        names = [name for name, record in self._records.items() if _may_see(caller, record)]
        return [await self.get(name, caller) for name in reversed(names[-limit:])]

    async def wait(self, name: str, caller: Caller, seconds: float) -> RunView:
        """The run when it is done, or as it is after so many seconds."""
        self._find(name, caller)
        is_open = self._open.get(name)
        if is_open is not None and is_open.task is not None:
            await asyncio.wait([is_open.task], timeout=seconds)
        return await self.get(name, caller)

    async def cancel(self, name: str, caller: Caller) -> RunView:
        """End a run. One that is done stays as it is."""
        require_scope(caller, Scope.RUN)
        self._find(name, caller)
        is_open = self._open.get(name)
        if is_open is not None and is_open.task is not None:
            is_open.cancelled = True
            is_open.task.cancel()
            await asyncio.wait([is_open.task])
        return await self.get(name, caller)

    async def events(self, name: str, caller: Caller, after: int = 0) -> AsyncIterator[Event]:
        """The events of a run from number `after` + 1 on; ends after `done`."""
        self._find(name, caller)
        offset = 0
        while True:
            changed = self._changed.setdefault(name, asyncio.Event())
            is_open = name in self._open
            found, offset = await asyncio.to_thread(self._files.read_events, name, offset)
            for event in found:
                if event.id > after:
                    yield event
            if not is_open:
                self._changed.pop(name, None)
                return
            await changed.wait()

    async def compare(self, request: ComparisonRequest, caller: Caller) -> dict[str, Any]:
        """What `whet compare --format json` prints."""
        require_scope(caller, Scope.READ)
        run = await self._part(request.run, caller)
        other = await self._part(request.other, caller) if request.other else None
        by = Key(request.by) if request.by else None
        compared = await asyncio.to_thread(compare_and_rank, run, other, by)
        return compared.document()

    async def drain(self, seconds: float) -> None:
        """Begin no more runs. Those that are left after so many seconds are resumed when the server comes back."""
        self._draining = True
        tasks = [one.task for one in self._open.values() if one.task is not None]
        if tasks and seconds:
            await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _part(self, name: str, caller: Caller) -> RunPart:
        if name == SERVED:
            return await self._host.part_of(caller)
        self._find(name, caller)
        folder = self._files.run(name)
        if not has_begun(folder / DATABASE):
            raise Refused(Code.CONFLICT, f"run {name} has not begun yet")
        return RunPart(folder, name)

    def _find(self, name: str, caller: Caller) -> RunRecord:
        require_scope(caller, Scope.READ)
        record = self._records.get(name)
        if record is None or not _may_see(caller, record):
            raise Refused(Code.NOT_FOUND, f"there is no run '{name[:200]}'")
        return record

    def _shared_limits(self, caller: Caller) -> Limits:
        """The limits that the gateway of a caller holds: its own, or those of the server."""
        return caller.limits if has_limits(caller.limits) else self._options.limits

    def _start(self, record: RunRecord, caller: Caller) -> None:
        reserved = reserve(self._shared_limits(caller), record.limits)
        self._host.gateway_of(caller).add_spent(reserved)
        self._open[record.id] = one = _OpenRun(record, caller, reserved)
        one.task = asyncio.create_task(self._perform(one))

    async def _perform(self, one: _OpenRun) -> None:
        """Run to the end, and keep what came of it."""
        record = one.record
        self._events[record.id] = await asyncio.to_thread(self._files.mend_events, record.id)
        if not self._events[record.id]:
            self._add_event(record.id, "queued", record.id, record.created, {})
        outcome: RunOutcome | None = None
        reason = ""
        try:
            async with self._room:
                one.started = True
                await self._run(one)
            outcome, reason = "finished", one.stopped_by
        except UserError as error:
            outcome, reason = "failed", str(error)
        except asyncio.CancelledError:
            outcome = "cancelled" if one.cancelled else None
        except Exception:
            logger.exception("run %s failed", record.id)
            outcome, reason = "failed", "the server failed; its log says why"
        finally:
            await self._end(one, outcome, reason)

    async def _run(self, one: _OpenRun) -> None:
        request, folder = one.record.request, self._files.run(one.record.id)
        tasks, agents, models, skills = self._plan(request)
        resources = self._host.resources()
        async with Gateway(resources.redactor, one.record.limits) as gateway:
            chosen = replace(
                resources,
                gateway=gateway,
                agents={name: resources.agents[name] for name in agents},
                models={name: resources.models[name] for name in models},
                endpoints=Endpoints(),
            )
            await run_opened(self._run_options(one, folder), tasks, skills, chosen, lambda event: self._on(one, event))

    def _run_options(self, one: _OpenRun, folder: Path) -> RunOptions:
        most = (one.record.request.concurrency, one.caller.concurrency, self._options.concurrency)
        return self._options.model_copy(
            update={
                "out": folder,
                "resume": (folder / DATABASE).exists(),
                "samples": one.record.request.samples,
                "concurrency": min(limit for limit in most if limit is not None),
            }
        )

    def _on(self, one: _OpenRun, event: RunEvent) -> None:
        name = one.record.id
        match event:
            case Started():
                data: dict[str, Any] = {"planned": event.planned, "pending": event.pending}
                self._add_event(name, "started", name, time.time(), data)
            case Ended():
                row, score = event.row, event.result.score
                data = {
                    "task": row.task,
                    "agent": row.agent,
                    "model": row.model,
                    "sample": row.sample,
                    "attempt": event.attempt,
                    "again": event.again,
                    "score": score.value,
                    "cause": score.cause,
                    "reason": score.reason,
                }
                self._add_event(name, "attempt", row.id, time.time(), data)
            case Stopped():
                one.stopped_by = f"stopped by a limit: {event.limit}"

    async def _end(self, one: _OpenRun, outcome: RunOutcome | None, reason: str) -> None:
        """Keep the outcome, and count what was used in place of what was reserved. Without an outcome, the run is
        resumed later."""
        name = one.record.id
        spent = await asyncio.to_thread(read_spent, self._files.run(name))
        self._host.gateway_of(one.caller).add_spent(subtract(spent, one.reserved))
        if outcome is not None:
            record = one.record.model_copy(update={"outcome": outcome, "reason": reason})
            await asyncio.to_thread(self._files.write, record)
            self._records[name] = record
            self._add_event(name, "done", name, time.time(), {"outcome": outcome, "reason": reason})
        del self._open[name]
        self._tell_change(name)

    def _add_event(self, name: str, kind: str, rollout: str, at: float, data: Mapping[str, Any]) -> None:
        self._events[name] += 1
        event = {"id": self._events[name], "type": kind, "rollout": rollout, "time": at, "data": data}
        self._files.add_event(name, Event.model_validate(event))
        self._tell_change(name)

    def _tell_change(self, name: str) -> None:
        if (changed := self._changed.pop(name, None)) is not None:
            changed.set()

    def _plan(self, request: RunRequest) -> tuple[list[Task], list[str], list[str], list[Skill | None]]:
        """What a request names. Refused when the server does not offer it."""
        if not self._host.served_tasks:
            raise Refused(Code.INVALID, "this server has no tasks; a run needs a served set")
        tasks = select_tasks(list(self._host.served_tasks.values()), request.task, request.split, request.limit)
        resources, skills = self._host.resources(), self._host.offered_skills
        agents = _choose("agents", request.agents, list(resources.agents))
        models = _choose("models", request.models, list(resources.models))
        default = self._host.default_skill or "none"
        names = _choose("skills", request.skills, [default, *(name for name in (*skills, "none") if name != default)])
        planned = len(tasks) * len(agents) * len(models) * len(names) * request.samples
        if planned > MOST_PLANNED:
            raise Refused(Code.INVALID, f"the run has {planned} rollouts; expected at most {MOST_PLANNED}")
        return tasks, agents, models, [skills.get(name) for name in names]

    def _count_planned(self, request: RunRequest) -> int:
        """How many rollouts a run has; 0 when what it names is not offered any more."""
        with suppress(UserError, Refused):
            tasks, agents, models, skills = self._plan(request)
            return len(tasks) * len(agents) * len(models) * len(skills) * request.samples
        return 0


def open_runs(host: Host, options: ServeOptions, config: Config, callers: Iterable[Caller]) -> Runs:
    """The runs of a server, to be used as a context manager."""
    run = options.run_options()
    return Runs(host, run.model_copy(update={"limits": limits_of(run, config)}), options.runs, callers)


def _may_see(caller: Caller, record: RunRecord) -> bool:
    return record.owner == caller.name or caller.may(Scope.ADMIN)


def _choose(key: str, named: Sequence[str], offered: Sequence[str]) -> list[str]:
    """The names of a request, or the default."""
    for name in named:
        if name not in offered:
            raise Refused(
                Code.INVALID, f"key '{key}' has '{name}', which is not offered; {did_you_mean(name, offered)}"
            )
    if not offered:
        raise Refused(Code.INVALID, f"this server offers no {key}")
    return list(dict.fromkeys(named)) or [offered[0]]
