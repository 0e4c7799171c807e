"""Finds rollouts and groups for their callers, and shows them as they are: stored, and under way."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TypeVar

from whet.client.models import Event, GroupView, Outcome, RolloutView, Status
from whet.runs.store.served import RequestRow, ServedRow
from whet.runs.store.store import Store
from whet.serve.access import Caller, Scope, require_scope
from whet.serve.events import EventLog, read_events
from whet.serve.groups import make_group
from whet.serve.policies import Policies
from whet.serve.problems import Code, Refused
from whet.serve.reading import StoreReader
from whet.serve.requests import Terms
from whet.serve.runner import Runner
from whet.serve.submitting import Submitted
from whet.serve.views import ViewReader, show_new

T = TypeVar("T")
MOST_LISTED = 1000
"""Rollouts of one page."""
READ_AGAIN = 3
"""How often rollouts are read again that were done meanwhile."""
KEPT = 256
"""Views of rollouts that are done, and groups, that are kept in memory."""


class Lookup:
    """What callers may see. Without the scope admin that is their own; to others an id is not found."""

    def __init__(self, read: StoreReader, runner: Runner, policies: Policies) -> None:
        self._read, self._runner, self._policies = read, runner, policies
        self._done: dict[str, asyncio.Future[RolloutView]] = {}
        """Views of rollouts that ended lately, or are being read. A failed one is not kept: a verdict on another
        rollout may still settle it. Nothing else changes while the server runs."""
        self._requested: dict[str, tuple[RequestRow, Terms, tuple[str, ...]]] = {}
        """Groups that were requested lately: request, terms, and the ids of the rollouts."""

    async def find(self, name: str, caller: Caller) -> ServedRow:
        """A rollout that the caller may see."""
        require_reading(caller)

        def read(store: Store) -> tuple[ServedRow, str] | None:
            row = store.served.rollout(name)
            if row is None or (request := store.served.request(row.request)) is None:
                return None
            return row, request.owner

        found = await self._read(read)
        if found is None or not _may_see(caller, found[1]):
            raise Refused(Code.NOT_FOUND, f"there is no rollout '{name[:200]}'")
        return found[0]

    async def members(self, name: str, caller: Caller) -> list[str]:
        """The rollouts of a group that the caller may see, by their places."""
        require_reading(caller)
        request, rows = await self._read(lambda store: (store.served.request(name), store.served.rollouts_of(name)))
        if request is None or not _may_see(caller, request.owner):
            raise Refused(Code.NOT_FOUND, f"there is no group '{name[:200]}'")
        return [row.rollout for row in rows]

    async def view(self, name: str) -> RolloutView:
        """A rollout that is known to be there. One that is done is read once for all who want it at the same time."""
        if name in self._runner.open:
            return await self._read_view(name)
        if name not in self._done:
            reading = asyncio.ensure_future(self._read_view(name))
            reading.add_done_callback(partial(self._forget_unread, name))
            _keep(self._done, name, reading)
        return await asyncio.shield(self._done[name])

    def _forget_unread(self, name: str, reading: "asyncio.Future[RolloutView]") -> None:
        is_read = not reading.cancelled() and reading.exception() is None
        if not is_read or reading.result().outcome in {None, Outcome.FAILED}:
            self._done.pop(name, None)

    async def _read_view(self, name: str) -> RolloutView:
        def read(store: Store) -> list[RolloutView]:
            row = store.served.rollout(name)
            return [ViewReader(store, self._policies.log).view(row)] if row else []

        (view,) = await self._show(read)
        return view

    async def group(self, name: str) -> GroupView:
        """A group that is known to be there."""
        request: list[tuple[RequestRow, Terms]] = []

        def read(store: Store) -> list[RolloutView]:
            views = ViewReader(store, self._policies.log)
            request[:] = [views.request(name)]
            return [views.view(row) for row in store.served.rollouts_of(name)]

        rollouts = await self._show(read)
        return make_group(*request[0], rollouts)

    async def new_group(self, stored: Submitted) -> GroupView:
        """The group of a request that was stored just now."""
        row, prepared = stored.row, stored.prepared
        if prepared is None or any(one.id not in self._runner.open for one in stored.plan):
            return await self.group(row.id)
        _keep(self._requested, row.id, (row, prepared.terms, tuple(one.id for one in stored.plan)))
        skill = prepared.skill.name if prepared.skill else None
        views = show_new(stored.plan, row, prepared.terms, skill)
        return make_group(row, prepared.terms, [self._add_progress(view) for view in views])

    async def ended_group(self, name: str) -> GroupView:
        """A group that somebody waited for. If all its rollouts are done, most of it is in memory."""
        row, terms, rollouts = self._requested.get(name, (None, None, ()))
        if row is None or terms is None or any(one in self._runner.open for one in rollouts):
            return await self.group(name)
        return make_group(row, terms, [await self.view(one) for one in rollouts])

    async def page(self, caller: Caller, status: str | None, limit: int, before: str | None) -> list[RolloutView]:
        """The rollouts that the caller may see, the newest first."""
        require_reading(caller)
        if before is not None:
            await self.find(before, caller)
        if status is not None and status not in {*Status}:
            raise Refused(Code.INVALID, f"status is '{status}'; expected one of: {', '.join(Status)}")
        owner, most = None if caller.may(Scope.ADMIN) else caller.name, min(limit, MOST_LISTED)
        running = self._runner.running_ids
        done = None if status is None else status == Status.DONE

        def read(store: Store) -> list[RolloutView]:
            rows = store.served.page(
                owner,
                most,
                before,
                done=done,
                among=running if status == Status.RUNNING else None,
                besides=running if status == Status.QUEUED else (),
            )
            views = ViewReader(store, self._policies.log)
            return [views.view(row) for row in rows]

        return await self._show(read)

    async def events(self, name: str, after: int) -> AsyncGenerator[Event, None]:
        """The events of a rollout that is known to be there, from number `after` + 1 on; ends after `done`."""
        log = await self._log(name)
        while True:
            found = log.after(after) if log is not None else None
            if found is None:
                found = [event for event in await self._read(partial(read_events, rollout=name)) if event.id > after]
            for event in found:
                yield event
                after = event.id
                if event.type == "done":
                    return
            if log is None:
                return
            after = log.skip_stored(after)
            if log.after(after) == []:
                await log.wait()

    async def _log(self, name: str) -> EventLog | None:
        """The events of a rollout that is not done."""
        one = self._runner.open.get(name)
        if one is not None and one.log is None:
            recorded = len(await self._read(partial(read_events, rollout=name)))
            return None if one.done.is_set() else one.open_log(recorded)
        return one.log if one is not None else None

    async def _show(self, read: Callable[[Store], list[RolloutView]]) -> list[RolloutView]:
        """Stored rollouts, with the progress of those that are not done."""
        views: list[RolloutView] = []
        for _ in range(READ_AGAIN):
            views = await self._read(read)
            if all(view.status is Status.DONE or view.id in self._runner.open for view in views):
                break
        return [self._add_progress(view) for view in views]

    def _add_progress(self, view: RolloutView) -> RolloutView:
        one = self._runner.open.get(view.id)
        if view.status is Status.DONE or one is None:
            return view
        place = self._runner.queue.place(view.id)
        return view.model_copy(update={"status": one.status, "phase": one.phase, "place": place})


def _keep(kept: dict[str, T], name: str, value: T) -> None:
    """Keep something, and drop what was kept longest ago."""
    kept[name] = value
    if len(kept) > KEPT:
        del kept[next(iter(kept))]


def require_reading(caller: Caller) -> None:
    """Refused unless the caller may read its rollouts. Whoever may start them may."""
    if not caller.may(Scope.RUN):
        require_scope(caller, Scope.READ)


def _may_see(caller: Caller, owner: str) -> bool:
    return caller.may(Scope.ADMIN) or caller.name == owner
