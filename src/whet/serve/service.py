"""The service: takes requests, queues and runs their rollouts, keeps them, and answers what became of them.

Every door (REST, OpenEnv, MCP) calls these methods and has no logic of its own.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from whet.client.models import (
    AgentView,
    Event,
    GroupView,
    ModelUpdate,
    ModelView,
    PauseRequest,
    RolloutRequest,
    RolloutView,
    RowsView,
    ServiceView,
    SkillView,
    TaskView,
)
from whet.runs.options import RecordOptions
from whet.runs.stored_run import StoredRollout
from whet.serve.access import Caller


class Service:
    """Open for as long as the server runs. Methods raise `Refused` with a line for the caller.

    A caller sees its own rollouts and groups only; with the scope admin, all of them. To others an id is not found.
    """

    async def submit(self, request: RolloutRequest, caller: Caller, key: str | None = None) -> GroupView:
        """Queue the rollouts of a request; committed when this returns. A repeated key gives the group that it made
        before: the same request joins it, another one is refused."""
        raise NotImplementedError

    async def rollout(self, name: str, caller: Caller) -> RolloutView:
        """A rollout as it is now."""
        raise NotImplementedError

    async def wait(self, name: str, caller: Caller, seconds: float) -> RolloutView:
        """The rollout when it is done, or as it is after so many seconds."""
        raise NotImplementedError

    async def cancel(self, name: str, caller: Caller) -> RolloutView:
        """End a rollout, queued or running; returns when its box is gone. One that is done stays as it is."""
        raise NotImplementedError

    async def group(self, name: str, caller: Caller) -> GroupView:
        raise NotImplementedError

    async def wait_group(self, name: str, caller: Caller, seconds: float) -> GroupView:
        raise NotImplementedError

    async def cancel_group(self, name: str, caller: Caller) -> GroupView:
        raise NotImplementedError

    async def list_rollouts(
        self, caller: Caller, *, status: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[RolloutView]:
        """The newest first. `before` is the id of the last one of the page before."""
        raise NotImplementedError

    def events(self, name: str, caller: Caller, after: int = 0) -> AsyncIterator[Event]:
        """The events of a rollout from number `after` + 1 on, the past ones at once; ends after `done`."""
        raise NotImplementedError

    async def stored(self, name: str, caller: Caller) -> StoredRollout:
        """A rollout that is done, as `whet.load` gives it: result, exchanges, trace, logs."""
        raise NotImplementedError

    async def rows(self, rollouts: list[str], caller: Caller, options: RecordOptions) -> RowsView:
        """Training rows of rollouts that are done. Advantages are computed within their groups."""
        raise NotImplementedError

    async def group_rows(self, name: str, caller: Caller, options: RecordOptions) -> RowsView:
        """Training rows of a group that is done, after its `on_failure`, `min_group` and staleness."""
        raise NotImplementedError

    async def files(self, name: str, caller: Caller) -> Mapping[str, bytes]:
        """The small files that the agent left in the working directory, by their paths there."""
        raise NotImplementedError

    async def tasks(self, caller: Caller) -> list[TaskView]:
        """The served set, in its order."""
        raise NotImplementedError

    async def agents(self, caller: Caller) -> list[AgentView]:
        """The agents that requests may name, the default first."""
        raise NotImplementedError

    async def skills(self, caller: Caller) -> list[SkillView]:
        """The skills that requests may name."""
        raise NotImplementedError

    async def models(self, caller: Caller) -> list[ModelView]:
        raise NotImplementedError

    async def update_model(self, name: str, update: ModelUpdate, caller: Caller) -> ModelView:
        """Change a model's endpoint and the version of its weights. Rollouts that run keep the endpoint that they
        began with; those that start from now on get the new one."""
        raise NotImplementedError

    async def pause(self, request: PauseRequest, caller: Caller) -> ServiceView:
        raise NotImplementedError

    async def resume(self, caller: Caller, model: str | None = None) -> ServiceView:
        raise NotImplementedError

    def view(self, caller: Caller) -> ServiceView:
        raise NotImplementedError

    async def drain(self, seconds: float) -> None:
        """Start nothing more, and wait so long for what runs. What is left is interrupted, and runs again when the
        server comes back."""
        raise NotImplementedError

    def counts(self) -> Mapping[str, Any]:
        """Numbers for /metrics."""
        raise NotImplementedError
