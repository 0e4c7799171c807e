"""Finds rollouts and groups for their callers, and shows them as they are: stored, and under way."""

from collections.abc import AsyncGenerator, Callable
from functools import partial

from whet.client.models import Event, GroupView, RolloutView, Status
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
from whet.serve.views import ViewReader

MOST_LISTED = 1000
"""Rollouts of one page."""
READ_AGAIN = 3
"""How often rollouts are read again that were done meanwhile."""


class Lookup:
    """What callers may see. Without the scope admin that is their own; to others an id is not found."""

    def __init__(self, read: StoreReader, runner: Runner, policies: Policies) -> None:
        self._read, self._runner, self._policies = read, runner, policies

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
        """A rollout that is known to be there."""

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


def require_reading(caller: Caller) -> None:
    """Refused unless the caller may read its rollouts. Whoever may start them may."""
    if not caller.may(Scope.RUN):
        require_scope(caller, Scope.READ)


def _may_see(caller: Caller, owner: str) -> bool:
    return caller.may(Scope.ADMIN) or caller.name == owner
