"""The service: takes requests, queues and runs their rollouts, keeps them, and answers what became of them.

Every door (REST, OpenEnv, MCP) calls these methods and has no logic of its own. `submitting.py` takes requests in,
`runner.py` starts and ends rollouts, `worker.py` does one of them, `opening.py` opens all of it.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from whet.client.models import (
    AgentView,
    Event,
    GroupView,
    ModelUpdate,
    ModelView,
    PauseMode,
    PauseRequest,
    RolloutRequest,
    RolloutView,
    RowsView,
    ServiceView,
    SkillView,
    Status,
    TaskView,
)
from whet.errors import UserError, did_you_mean
from whet.gateway import Gateway
from whet.rollout.resources import RunResources
from whet.runs.export import collect_records
from whet.runs.options import RecordOptions
from whet.runs.scheduler import FILE_LOG
from whet.runs.stats.compare import RunPart
from whet.runs.store.served import ServedRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.runs.stored_run import StoredRollout, load_rollout
from whet.serve.access import Caller, Scope, require_scope
from whet.serve.budgets import Budgets
from whet.serve.groups import counted_rollouts
from whet.serve.lookup import Lookup, require_reading
from whet.serve.policies import Policies
from whet.serve.problems import Code, Refused
from whet.serve.reading import StoreReader
from whet.serve.requests import Offer
from whet.serve.runner import ALL, Runner, StoreFailingError
from whet.serve.submitting import Submitter
from whet.serve.worker import CheckModel
from whet.skill import Skill
from whet.tasks import Task
from whet.trace.export import FORMATS
from whet.version import __version__

PAUSED = "paused"
"""Under this key the store has the models whose rollouts are not started."""
STORE_RETRY_SEC = 10.0
"""After how many seconds a client may try again when the store cannot be written."""


class Service:
    """Open for as long as the server runs. Methods raise `Refused` with a line for the caller.

    A caller sees its own rollouts and groups only; with the scope admin, all of them. To others an id is not found.
    """

    def __init__(
        self,
        offer: Offer,
        policies: Policies,
        budgets: Budgets,
        runner: Runner,
        submitter: Submitter,
        writer: StoreWriter,
        read: StoreReader,
        check_update: CheckModel,
    ) -> None:
        self._offer, self._policies, self._budgets = offer, policies, budgets
        self._runner, self._submitter = runner, submitter
        self._writer, self._read, self._check_update = writer, read, check_update
        self._lookup = Lookup(read, runner, policies)
        self._updating = asyncio.Lock()

    # Rollouts and groups

    async def submit(self, request: RolloutRequest, caller: Caller, key: str | None = None) -> GroupView:
        """Queue the rollouts of a request; committed when this returns. A repeated key gives the group that it made
        before: the same request joins it, another one is refused."""
        require_scope(caller, Scope.RUN)
        try:
            stored = await self._submitter.submit(request, caller, key)
        except sqlite3.OperationalError as error:
            raise _unwritable(self._runner.note_failure(error)) from error
        return await self._lookup.new_group(stored)

    async def rollout(self, name: str, caller: Caller) -> RolloutView:
        """A rollout as it is now."""
        await self._lookup.find(name, caller)
        return await self._lookup.view(name)

    async def wait(self, name: str, caller: Caller, seconds: float) -> RolloutView:
        """The rollout when it is done, or as it is after so many seconds."""
        await self._lookup.find(name, caller)
        await self._wait([name], seconds)
        return await self._lookup.view(name)

    async def cancel(self, name: str, caller: Caller) -> RolloutView:
        """End a rollout, queued or running; returns when its box is gone. One that is done stays as it is."""
        require_scope(caller, Scope.RUN)
        await self._lookup.find(name, caller)
        await self._cancel([name])
        return await self._lookup.view(name)

    async def group(self, name: str, caller: Caller) -> GroupView:
        """A group as it is now."""
        await self._lookup.members(name, caller)
        return await self._lookup.group(name)

    async def wait_group(self, name: str, caller: Caller, seconds: float) -> GroupView:
        """The group when all its rollouts are done, or as it is after so many seconds."""
        await self._wait(await self._lookup.members(name, caller), seconds)
        return await self._lookup.group(name)

    async def wait_shown(self, group: GroupView, seconds: float) -> GroupView:
        """As `wait_group`, for a caller that was shown the group: it may see it."""
        await self._wait([one.id for one in group.rollouts], seconds)
        return await self._lookup.ended_group(group.id)

    async def cancel_group(self, name: str, caller: Caller) -> GroupView:
        """End the rollouts of a group that are not done."""
        require_scope(caller, Scope.RUN)
        await self._cancel(await self._lookup.members(name, caller))
        return await self._lookup.group(name)

    async def members(self, name: str, caller: Caller) -> list[str]:
        """The ids of all rollouts of a group, by their places in it. Also of those that its `on_failure` drops."""
        return await self._lookup.members(name, caller)

    async def list_rollouts(
        self, caller: Caller, *, status: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[RolloutView]:
        """The newest first. `before` is the id of the last one of the page before."""
        return await self._lookup.page(caller, status, limit, before)

    async def events(self, name: str, caller: Caller, after: int = 0) -> AsyncIterator[Event]:
        """The events of a rollout from number `after` + 1 on, the past ones at once; ends after `done`."""
        await self._lookup.find(name, caller)
        async with aclosing(self._lookup.events(name, after)) as found:
            async for event in found:
                yield event

    # What is kept of a rollout

    async def stored(self, name: str, caller: Caller) -> StoredRollout:
        """A rollout that is done, as `whet.load` gives it: result, exchanges, trace, logs."""
        _require_done([await self._lookup.find(name, caller)])
        return await asyncio.to_thread(load_rollout, self._read.folder, name)

    async def files(self, name: str, caller: Caller) -> Mapping[str, bytes]:
        """The small files that the agent left in the working directory, by their paths there."""
        _require_done([await self._lookup.find(name, caller)])
        return await self._read(partial(_read_files, rollout=name))

    async def rows(self, rollouts: list[str], caller: Caller, options: RecordOptions) -> RowsView:
        """Training rows of rollouts that are done. Advantages are computed within their groups."""
        found = [await self._lookup.find(name, caller) for name in rollouts]
        _require_done(found)
        groups = [await self._lookup.group(name) for name in dict.fromkeys(row.request for row in found)]
        counted = {one.id: one for group in groups for one in counted_rollouts(group)}
        return await self._collect([name for name in rollouts if name in counted], counted.values(), options)

    async def group_rows(self, name: str, caller: Caller, options: RecordOptions) -> RowsView:
        """Training rows of a group that is done, after its `on_failure`, `min_group` and staleness."""
        await self._lookup.members(name, caller)
        group = await self._lookup.group(name)
        if group.status is not Status.DONE:
            raise Refused(Code.CONFLICT, f"group {name} is not done", 1)
        counted = counted_rollouts(group) if group.complete else []
        found = await self._collect([one.id for one in counted], counted, options)
        return found.model_copy(update={"manifest": {**found.manifest, "dropped": group.dropped}})

    async def _collect(
        self, names: Collection[str], baseline: Collection[RolloutView], options: RecordOptions
    ) -> RowsView:
        if not names:
            _require_format(options.format)
            return RowsView(format=options.format, rows=[])
        try:
            found = await asyncio.to_thread(
                collect_records,
                self._read.folder,
                names,
                options,
                baseline=[one.id for one in baseline],
                substituted=[one.id for one in baseline if one.substituted],
            )
        except UserError as error:
            raise Refused(Code.INVALID, str(error)) from error
        manifest = found.manifest.as_json()
        return RowsView(format=options.format, rows=list(found), apart=found.apart, manifest=manifest)

    # What the server offers

    async def tasks(self, caller: Caller) -> list[TaskView]:
        """The served set, in its order."""
        require_reading(caller)
        return [
            TaskView(id=task.id, instruction=task.instruction, split=task.split, tags=task.tags, metadata=task.metadata)
            for task in self._offer.tasks.values()
        ]

    async def agents(self, caller: Caller) -> list[AgentView]:
        """The agents that requests may name, the default first."""
        require_reading(caller)
        return [AgentView(name=name, default=not place) for place, name in enumerate(self._offer.agents)]

    async def skills(self, caller: Caller) -> list[SkillView]:
        """The skills that requests may name."""
        require_reading(caller)
        default = self._offer.default_skill
        return [
            SkillView(name=name, digest=skill.digest, default=skill == default)
            for name, skill in self._offer.skills.items()
        ]

    async def models(self, caller: Caller) -> list[ModelView]:
        """The models that requests may name, the default first."""
        require_reading(caller)
        return [self._model_view(name, caller) for name in self._policies.names]

    async def update_model(self, name: str, update: ModelUpdate, caller: Caller) -> ModelView:
        """Change a model's endpoint and the version of its weights. Rollouts that run keep the endpoint that they
        began with; those that start from now on get the new one."""
        require_scope(caller, Scope.ADMIN)
        self._require_model(name)
        update = await self._check_addresses(name, update)
        async with self._updating:
            if not self._policies.is_current(name, update):
                row = self._policies.plan(name, update, time.time())
                await self._write(lambda store: store.served.add_policy(row))
                self._policies.add(row)
        self._runner.dispatch()
        return self._model_view(name, caller)

    async def _check_addresses(self, name: str, update: ModelUpdate) -> ModelUpdate:
        """The update with its addresses in their normal form. Refused when one of them is not allowed."""
        urls = (update.url,) if update.url is not None else update.urls
        if urls is None:
            return update
        model = replace(self._policies.model(name), url=urls[0], replicas=tuple(urls[1:]))
        return update.model_copy(update={"url": None, "urls": (await self._check_update(model)).urls})

    def _model_view(self, name: str, caller: Caller) -> ModelView:
        model, last = self._policies.model(name), self._policies.last(name)
        return ModelView(
            name=name,
            upstream_name=model.upstream_name,
            urls=model.urls if caller.may(Scope.ADMIN) else (),
            capture=model.capture,
            weight_version=last.version if last else None,
            updates=last.number if last else 0,
            running=self._runner.running_on(name),
            queued=self._runner.queue.count_on(name),
        )

    def _require_model(self, name: str) -> None:
        if name not in self._policies:
            raise Refused(Code.NOT_FOUND, f"unknown model '{name}'; {did_you_mean(name, self._policies.names)}")

    # What the operator does

    async def pause(self, request: PauseRequest, caller: Caller) -> ServiceView:
        """Start no more rollouts, on a model or at all, until the service is resumed, also by another start."""
        require_scope(caller, Scope.ADMIN)
        if request.model is not None:
            self._require_model(request.model)
        await self._set_paused({*self._runner.paused, request.model or ALL})
        if request.mode is PauseMode.ABORT:
            self._runner.abort(request.model)
        await self._runner.wait_idle(request.model, request.wait_sec)
        return self.view(caller)

    async def resume(self, caller: Caller, model: str | None = None) -> ServiceView:
        """Start rollouts again: those on a model, or all."""
        require_scope(caller, Scope.ADMIN)
        if model is not None:
            self._require_model(model)
        await self._set_paused(self._runner.paused - {model} if model is not None else set())
        self._runner.dispatch()
        return self.view(caller)

    async def _set_paused(self, paused: set[str]) -> None:
        self._runner.paused = paused
        await self._write(lambda store: store.set(PAUSED, sorted(paused)))

    def view(self, caller: Caller) -> ServiceView:
        """The state of the service, as far as the caller may see it."""
        runner, owner = self._runner, None if caller.may(Scope.ADMIN) else caller.name
        return ServiceView(
            version=__version__,
            paused=tuple(sorted(runner.paused)),
            draining=runner.draining,
            running=runner.running(owner),
            queued=len(runner.queue) if owner is None else runner.queue.count(owner),
            done=sum(count for (who, _), count in runner.ended.items() if owner in {None, who}),
        )

    async def drain(self, seconds: float) -> None:
        """Start nothing more, and wait so long for what runs. What is left is interrupted, and runs again when the
        server comes back."""
        await self._runner.drain(seconds)
        await self._submitter.close()

    async def ended(self, name: str) -> RolloutView:
        """A rollout that `watch_ends` has named."""
        return await self._lookup.view(name)

    def watch_ends(self, watch: Callable[[str], None]) -> None:
        """Let a function be called with the id of every rollout that is done from now on."""
        self._runner.on_end = watch

    def counts(self) -> Mapping[str, Any]:
        """Numbers for /metrics."""
        runner = self._runner
        ended: dict[str, int] = {}
        for (_, outcome), count in runner.ended.items():
            ended[outcome] = ended.get(outcome, 0) + count
        return {
            "queued": len(runner.queue),
            "running": runner.running(),
            "ended": ended,
            "paused": len(runner.paused),
            "draining": runner.draining,
            "store_failing": bool(runner.failing),
            "models": {name: runner.running_on(name) for name in self._policies.names},
        }

    # What whole runs use

    @property
    def served_tasks(self) -> Mapping[str, Task]:
        return self._offer.tasks

    @property
    def offered_skills(self) -> Mapping[str, Skill]:
        return self._offer.skills

    @property
    def default_skill(self) -> str | None:
        default = self._offer.default_skill
        return default.name if default else None

    def resources(self) -> RunResources:
        """What rollouts need, with the agents and models that are offered, the default first, as they are now."""
        models = {name: self._policies.model(name) for name in self._policies.names}
        return replace(self._offer.resources, models=models or self._offer.resources.models)

    def gateway_of(self, caller: Caller) -> Gateway:
        """It counts what the caller has used."""
        return self._budgets.resources(caller.name).gateway

    async def part_of(self, caller: Caller) -> RunPart:
        """The served rollouts that the caller may see."""
        rollouts = None
        if not caller.may(Scope.ADMIN):
            rollouts = {name for name, _ in await self._read(lambda store: store.served.rollouts_by(caller.name))}
        return RunPart(self._read.folder, "served", rollouts)

    async def _wait(self, names: Iterable[str], seconds: float) -> None:
        """Wait until these rollouts are done, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                for name in names:
                    if (one := self._runner.open.get(name)) is not None:
                        await one.done.wait()
        except TimeoutError:
            pass

    async def _cancel(self, names: Iterable[str]) -> None:
        try:
            async with asyncio.TaskGroup() as cancelling:
                for name in names:
                    cancelling.create_task(self._runner.cancel(name))
        except* StoreFailingError as failing:
            raise _unwritable(failing.exceptions[0]) from None

    async def _write(self, work: Callable[[Store], None]) -> None:
        try:
            await self._writer.do(work)
        except sqlite3.OperationalError as error:
            raise _unwritable(self._runner.note_failure(error)) from error


def _unwritable(error: Exception) -> Refused:
    return Refused(Code.BUSY, f"the store of this server cannot be written: {error}; try again later", STORE_RETRY_SEC)


def _require_format(name: str) -> None:
    if name not in FORMATS:
        raise Refused(Code.INVALID, f"unknown format '{name}'; {did_you_mean(name, FORMATS)}")


def _require_done(rows: Iterable[ServedRow]) -> None:
    for row in rows:
        if row.outcome is None:
            raise Refused(Code.CONFLICT, f"rollout {row.rollout} is not done", 1)


def _read_files(store: Store, rollout: str) -> dict[str, bytes]:
    tried = [attempt for attempt in store.attempts_of(rollout) if attempt.result is not None]
    if not tried:
        return {}
    names = store.log_names(tried[-1].id, FILE_LOG)
    return {name.removeprefix(FILE_LOG): store.log(tried[-1].id, name) for name in names}
