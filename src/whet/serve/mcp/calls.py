"""What the tools do: each calls the service and describes what it answers. Imported with the first call."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from whet.client.models import ComparisonRequest, GroupView, RolloutView, Status
from whet.runs.stored_run import StoredRollout
from whet.serve.access import Caller
from whet.serve.mcp import arguments as given
from whet.serve.mcp.describing import (
    MOST_CHARACTERS,
    describe_comparison,
    describe_group,
    describe_rollout,
    describe_tasks,
    line_of,
)
from whet.serve.mcp.results import Answer, ComparisonAnswer, RolloutAnswer, RolloutList, Started, TaskList
from whet.serve.mcp.served import Served
from whet.serve.mcp.tools import LATEST
from whet.serve.problems import Code, Refused
from whet.serve.service import Service
from whet.text.secrets import mask_secrets
from whet.trace.steps.steps import steps
from whet.trace.steps.text import LONGEST, page

PROGRESS_SEC = 1.0
"""Clients give up on a tool that is silent; some wait longer as long as it reports progress."""
TRACE_CHARACTERS = MOST_CHARACTERS - 500
AGAIN = "wait_rollout with this id waits for the result"


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool is called with, next to its arguments."""

    served: Served
    caller: Caller
    report: Callable[[float, str], Awaitable[None]]
    """Takes the seconds since the call began, and what is under way."""

    @property
    def service(self) -> Service:
        return self.served.service


async def run_rollout(call: Call, how: given.How) -> RolloutAnswer:
    """Start a rollout and wait until it is done. A caller that stops waiting does not stop the rollout."""
    group = await _submit(call, how)
    return await _wait(call, group if len(group.rollouts) > 1 else group.rollouts[0], None)


async def start_rollout(call: Call, how: given.How) -> Started:
    group = await _submit(call, how)
    if len(group.rollouts) == 1:
        return Started(id=group.rollouts[0].id)
    return Started(id=group.id, rollouts=tuple(view.id for view in group.rollouts))


async def wait_rollout(call: Call, which: given.WaitRollout) -> RolloutAnswer:
    return await _wait(call, await _find(call, which.id), which.max_seconds)


async def get_rollout(call: Call, which: given.OneRollout) -> RolloutAnswer:
    return _describe(call, await _find(call, which.id))


async def list_rollouts(call: Call, which: given.ListRollouts) -> RolloutList:
    latest = await call.service.list_rollouts(call.caller, limit=LATEST, before=which.before)
    return RolloutList(rollouts=tuple(line_of(view, named=True) for view in latest))


async def cancel_rollout(call: Call, which: given.OneRollout) -> RolloutAnswer:
    if isinstance(await _find(call, which.id), GroupView):
        return _describe(call, await call.service.cancel_group(which.id, call.caller))
    return _describe(call, await call.service.cancel(which.id, call.caller))


async def list_tasks(call: Call, which: given.ListTasks) -> TaskList:
    chosen = [
        task
        for task in await call.service.tasks(call.caller)
        if (which.task is None or which.task == task.id or fnmatchcase(task.id, which.task))
        and which.split in (None, task.split)
    ]
    return describe_tasks(chosen, which.first)


async def read_trace(call: Call, which: given.ReadTrace) -> str:
    stored = await call.service.stored(which.id, call.caller)
    return await asyncio.to_thread(_read_steps, stored, which)


async def compare(call: Call, which: given.Compare) -> ComparisonAnswer:
    request = ComparisonRequest(run=which.run, other=which.other, by=which.by)
    return describe_comparison(await call.served.runs.compare(request, call.caller))


Run = Callable[[Call, Any], Awaitable[Answer | str]]
RUN: Mapping[str, Run] = {
    "list_tasks": list_tasks,
    "run_task": run_rollout,
    "run_rollout": run_rollout,
    "start_rollout": start_rollout,
    "wait_rollout": wait_rollout,
    "get_rollout": get_rollout,
    "list_rollouts": list_rollouts,
    "cancel_rollout": cancel_rollout,
    "read_trace": read_trace,
    "compare": compare,
}
"""By the names of the tools."""


def _read_steps(stored: StoredRollout, which: given.ReadTrace) -> str:
    """A page of the steps of a rollout. Blocks."""
    found = steps(stored.trace())
    if not found:
        return f"rollout {stored.id} made no model call"
    last = min(which.last or len(found), len(found))
    if which.first > last:
        wanted = f"{which.first} to {which.last or len(found)}"
        raise Refused(
            Code.INVALID, f"steps {wanted}: rollout {stored.id} has {len(found)} steps; expected some of them"
        )
    longest = LONGEST if which.first < last else TRACE_CHARACTERS
    text, count = page(found[which.first - 1 : last], TRACE_CHARACTERS, longest)
    following = which.first + count
    head = f"rollout {stored.id}: steps {which.first} to {following - 1} of {len(found)}"
    more = [f"next page: read_trace with from={following}"] if following <= len(found) else []
    return "\n".join([head, mask_secrets(text), *more])


async def _submit(call: Call, how: given.How) -> GroupView:
    return await call.service.submit(given.make_request(how), call.caller)


async def _find(call: Call, name: str) -> RolloutView | GroupView:
    """The rollout with this id, or else the group."""
    try:
        return await call.service.rollout(name, call.caller)
    except Refused as refused:
        if refused.code is not Code.NOT_FOUND:
            raise
    return await call.service.group(name, call.caller)


async def _wait(call: Call, found: RolloutView | GroupView, seconds: float | None) -> RolloutAnswer:
    """Wait until it is done, or for `seconds`, and report progress meanwhile."""
    begun = time.monotonic()
    while found.status is not Status.DONE:
        waited = time.monotonic() - begun
        if call.served.stopping.is_set() or (seconds is not None and waited >= seconds):
            break
        await call.report(waited, _describe_progress(found))
        pause = PROGRESS_SEC if seconds is None else min(PROGRESS_SEC, seconds - waited)
        wait = call.service.wait_group if isinstance(found, GroupView) else call.service.wait
        found = await wait(found.id, call.caller, pause)
    return _describe(call, found)


def _describe_progress(found: RolloutView | GroupView) -> str:
    """One line about a rollout or group that is not done."""
    if isinstance(found, GroupView):
        done, running = (sum(view.status is one for view in found.rollouts) for one in (Status.DONE, Status.RUNNING))
        return f"group {found.id}: {done} of {len(found.rollouts)} rollouts done, {running} running"
    if found.status is Status.QUEUED:
        return f"rollout {found.id}: queued" + (f", {found.place} before it" if found.place else "")
    calls = found.usage.calls
    return f"rollout {found.id}: {found.phase or 'running'}, {calls} model call{'' if calls == 1 else 's'}"


def _describe(call: Call, found: RolloutView | GroupView) -> RolloutAnswer:
    again = [] if found.status is Status.DONE else [AGAIN]
    if isinstance(found, GroupView):
        return describe_group(found, "; ".join([*again, "get_rollout with the id of a rollout shows all of it"]))
    done = ["read_trace with this id shows what the agent did", call.served.describe_rest(found.id)]
    return describe_rollout(found, "; ".join(again or done))
