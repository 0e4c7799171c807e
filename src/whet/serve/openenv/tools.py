"""The tools that OpenEnv clients can call."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
from pydantic import ValidationError

from whet.client.models import GroupView, Status, TaskView
from whet.client.openenv_models import RolloutResult
from whet.serve.access import Caller
from whet.serve.openenv.arguments import (
    LIST_TASKS,
    RUN_ROLLOUT,
    RUN_TASK,
    ArgumentError,
    InvalidArgumentsError,
    ListTasksArguments,
    RunRolloutArguments,
    RunTaskArguments,
    input_schema,
    make_request,
)
from whet.serve.openenv.results import ResultShape, join_group, read_result
from whet.serve.openenv.sessions import Session
from whet.serve.openenv.sizes import HTTP_BYTES, encode_result, quote
from whet.serve.problems import Refused
from whet.serve.service import Service
from whet.tasks.task import OPENENV_WORKDIR

WAIT_SEC = 600.0
_log = logging.getLogger(__name__)
SPLITS: Mapping[str, str] = {"train": "train", "validation": "val", "test": "test"}
"""OpenEnv's names of the splits, and those of tasks."""
UNSPLIT = "all"
"""The split with all tasks."""


class ToolErrorType(StrEnum):
    """Why a call failed, in the words that clients know."""

    EXECUTION_ERROR = "execution_error"
    INVALID_ARGS = "invalid_args"
    TRANSPORT_ERROR = "transport_error"
    TOOL_NOT_FOUND = "tool_not_found"
    TIMEOUT = "timeout"


class ToolError(Exception):
    """A tool could not do what was asked of it."""

    def __init__(self, kind: ToolErrorType, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it is listed."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool returned."""

    quoted: bytes
    """Its text, as a JSON string."""
    reward: float | None = None
    ran: bool = False
    """It was a rollout, which is over."""

    def as_result(self) -> dict[str, Any]:
        """The text in the two places where clients look for it."""
        text = msgspec.Raw(self.quoted)
        return {"content": [{"type": "text", "text": text}], "data": text, "is_error": False}


_ARGUMENTS: Mapping[str, type[RunRolloutArguments | RunTaskArguments | ListTasksArguments]] = {
    RUN_ROLLOUT: RunRolloutArguments,
    RUN_TASK: RunTaskArguments,
    LIST_TASKS: ListTasksArguments,
}
_DESCRIPTIONS = {
    RUN_ROLLOUT: (
        "Run a coding agent on a task in a sealed sandbox: set-up commands, the agent, verify commands. Returns a "
        "RolloutResult as JSON: reward, every model call with its tokens, files, output of the commands."
    ),
    RUN_TASK: "Run a coding agent on a task of the served set. Returns a RolloutResult as JSON.",
    LIST_TASKS: "List the tasks of the served set: id, instruction, split. Returns JSON.",
}


class Toolbox:
    """The tools, on a service."""

    def __init__(self, service: Service, env: Mapping[str, str]) -> None:
        """`env` holds the variables of the endpoint catalog."""
        self._service, self._env = service, env

    async def list_tools(self, caller: Caller) -> list[Tool]:
        """The tools that can be called. Those for tasks are there if a task set is served."""
        return [_describe_tool(name) for name in await self._list_names(caller)]

    async def _list_names(self, caller: Caller) -> list[str]:
        return list(_ARGUMENTS) if await self._service.tasks(caller) else [RUN_ROLLOUT]

    async def call(
        self, name: str, arguments: Mapping[str, Any], caller: Caller, session: Session, most_bytes: int
    ) -> ToolAnswer:
        """Call a tool to its end. ToolError when it cannot be done; a rollout that fails is an answer."""
        if name not in await self._list_names(caller):
            raise ToolError(ToolErrorType.TOOL_NOT_FOUND, f"Unknown tool: {name[:200]!r}")
        try:
            given = _ARGUMENTS[name].model_validate(arguments)
            if isinstance(given, ListTasksArguments):
                return ToolAnswer(await self._list_tasks(given, caller))
            bound = min(given.max_result_bytes or most_bytes, HTTP_BYTES)
            result = await self._run(given, caller, session, bound)
            return ToolAnswer(await asyncio.to_thread(encode_result, result, bound), result.reward, ran=True)
        except (ValidationError, InvalidArgumentsError) as error:
            raise ToolError(ToolErrorType.INVALID_ARGS, str(error)) from None
        except (ArgumentError, Refused) as error:
            raise ToolError(ToolErrorType.EXECUTION_ERROR, f"Error calling tool {name!r}: {error}") from None
        except Exception as error:
            _log.exception("tool '%s' failed", name)
            reason = f"Error calling tool {name!r}: the server failed; its log says why"
            raise ToolError(ToolErrorType.EXECUTION_ERROR, reason) from error

    async def _run(
        self, given: RunRolloutArguments | RunTaskArguments, caller: Caller, session: Session, most_bytes: int
    ) -> RolloutResult:
        """Run the rollouts of a call, and count them in the session."""
        offered = [model.name for model in await self._service.models(caller)]
        request = make_request(given, offered, self._env, session.seed)
        group = await self._service.submit(request, caller)
        with session.running([rollout.id for rollout in group.rollouts]):
            group = await self._wait(group)
        workdir = OPENENV_WORKDIR if request.task is None else ""
        shape = ResultShape(given.mode, workdir, most_bytes // request.samples, _find_notes(given))
        results = [await read_result(self._service, caller, view, shape) for view in group.rollouts]
        result = results[0] if request.samples == 1 else join_group(group.id, results)
        session.count_rollouts(result)
        return result

    async def _wait(self, group: GroupView) -> GroupView:
        while group.status is not Status.DONE:
            group = await self._service.wait_shown(group, WAIT_SEC)
        return group

    async def _list_tasks(self, given: ListTasksArguments, caller: Caller) -> bytes:
        tasks = await self.tasks_of(given.split or UNSPLIT, caller)
        if tasks is None:
            raise ArgumentError(f"unknown split: {given.split!r}; expected one of {(*SPLITS, UNSPLIT)}")
        shown = [describe_task(task) for task in tasks[given.offset : given.offset + given.limit]]
        return quote({"tasks": shown, "total": len(tasks)})

    async def tasks_of(self, split: str, caller: Caller) -> list[TaskView] | None:
        """The tasks of a split; None when there is no such split."""
        tasks = await self._service.tasks(caller)
        if split == UNSPLIT:
            return tasks
        return [task for task in tasks if task.split == SPLITS[split]] if split in SPLITS else None


@cache
def _describe_tool(name: str) -> Tool:
    return Tool(name, _DESCRIPTIONS[name], input_schema(_ARGUMENTS[name]))


def describe_task(task: TaskView) -> dict[str, Any]:
    """A task as clients see it."""
    return task.model_dump(mode="json", exclude_none=True)


def _find_notes(given: RunRolloutArguments | RunTaskArguments) -> tuple[str, ...]:
    template = given.template if isinstance(given, RunRolloutArguments) else ""
    return (f"template '{template[:100]}' was not used: this server's sandboxes have no images",) if template else ()
