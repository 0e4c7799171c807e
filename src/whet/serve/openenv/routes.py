"""The addresses of OpenEnv."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Request, WebSocket
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response, StreamingResponse

from whet.client.models import TaskView
from whet.client.openenv_models import State
from whet.serve.access import Caller
from whet.serve.openenv.environment import OpenEnv
from whet.serve.openenv.frames import ResetData, list_errors
from whet.serve.openenv.rpc import RpcError, RpcRequest, failure, read_request
from whet.serve.openenv.schemas import OBSERVATION_SCHEMA, RESET_SCHEMA, action_schema, state_schema
from whet.serve.openenv.sessions import Session
from whet.serve.openenv.sizes import HTTP_BYTES
from whet.serve.openenv.sockets import Json, answer_rpc, encode, serve_frames, serve_rpc
from whet.serve.openenv.tools import SPLITS, UNSPLIT, describe_task
from whet.serve.options import Mode
from whet.serve.rest.errors import JsonRoute
from whet.version import __version__

ENV_NAME = "whet"
DESCRIPTION = "Rollouts of real coding agents in sealed sandboxes, with every model call recorded token by token."
KEEP_ALIVE_SEC = 1.0
"""How often a space is sent while a tool runs. Clients count their time limit from one byte to the next."""
JSON = "application/json"

CallerOf = Callable[[HTTPConnection], Caller]


class Metadata(BaseModel):
    """What the environment is."""

    name: str = ENV_NAME
    description: str = DESCRIPTION
    readme_content: str | None = None
    version: str | None = __version__
    author: str | None = None
    documentation_url: str | None = None


class Schemas(BaseModel):
    """JSON schemas of what goes in and comes out."""

    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]
    reset_observation: dict[str, Any]


class Envelope(BaseModel):
    """What reset and step return."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


class StepRequest(BaseModel):
    """One action. What a client adds is ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    action: dict[str, Any]
    timeout_s: float | None = Field(default=None, gt=0)
    request_id: str | None = Field(default=None, max_length=255)


class SplitRequest(BaseModel):
    """A split of the tasks."""

    model_config = ConfigDict(extra="forbid")

    split: str


class TaskRequest(SplitRequest):
    """A task by its place in a split."""

    index: int


class RangeRequest(SplitRequest):
    """Tasks of a split, from `start` to before `stop`."""

    start: int | None = None
    stop: int | None = None


def make_router(openenv: OpenEnv, mode: Mode, caller_of: CallerOf) -> APIRouter:
    """All routes but `/health` and `POST /mcp`, of which the latter is shared with MCP: see `answer_post`."""
    router = APIRouter(route_class=JsonRoute)
    _add_information(router)
    if mode is Mode.SIMULATION:
        _add_simulation(router, openenv, caller_of)
    _add_tasks(router, openenv, caller_of)

    @router.websocket("/ws")
    async def frames(websocket: WebSocket) -> None:
        await serve_frames(websocket, openenv, caller_of(websocket))

    @router.websocket("/mcp")
    async def rpc(websocket: WebSocket) -> None:
        await serve_rpc(websocket, openenv, caller_of(websocket))

    return router


async def answer_post(request: Request, openenv: OpenEnv, caller: Caller) -> Response:
    """Answer `POST /mcp`, for clients that do not accept an event stream. The status is always 200."""
    try:
        asked = read_request(await request.body())
    except RpcError as error:
        return Response(encode(failure(None, error)), media_type=JSON)
    if asked.is_notification:
        return Response(status_code=202)

    def given() -> RpcRequest:
        return asked

    answering = answer_rpc(openenv, caller, given, None, HTTP_BYTES)
    if asked.method != "tools/call":
        return Response(encode(await answering or {}), media_type=JSON)
    return StreamingResponse(_keep_alive(asyncio.create_task(answering)), media_type=JSON)


async def _keep_alive(answering: "asyncio.Task[Json | None]") -> AsyncIterator[bytes]:
    """Spaces, which JSON may begin with, until there is a reply; then the reply."""
    try:
        yield b" "
        while not (await asyncio.wait([answering], timeout=KEEP_ALIVE_SEC))[0]:
            yield b" "
        yield encode(answering.result() or {})
    finally:
        answering.cancel()  # only the waiting: the rollout continues


def _add_information(router: APIRouter) -> None:
    @router.get("/metadata", tags=["openenv"])
    async def metadata() -> Metadata:
        """What the environment is."""
        return Metadata()

    @router.get("/schema", tags=["openenv"])
    async def schema() -> Schemas:
        """JSON schemas of actions, observations and state."""
        return Schemas(
            action=action_schema(),
            observation=OBSERVATION_SCHEMA,
            state=state_schema(),
            reset_observation=RESET_SCHEMA,
        )


def _add_simulation(router: APIRouter, openenv: OpenEnv, caller_of: CallerOf) -> None:
    """The routes without a session: each request has an environment of its own."""

    @router.post("/reset", tags=["openenv"], response_model=Envelope)
    async def reset(request: Request, data: Annotated[ResetData, Body(default_factory=ResetData)]) -> Response:
        """Start an episode, which ends with the reply."""
        return Response(encode(openenv.reset(Session(caller_of(request).name), data)), media_type=JSON)

    @router.post("/step", tags=["openenv"], response_model=Envelope)
    async def step(request: Request, given: StepRequest) -> Response:
        """Do one action, in an episode of its own."""
        caller = caller_of(request)
        try:
            done = await openenv.step(Session(caller.name), caller, given.action, HTTP_BYTES, given.timeout_s)
        except ValidationError as error:
            return JSONResponse({"detail": list_errors(error)}, 422)
        return Response(encode(done), media_type=JSON)

    @router.get("/state", tags=["openenv"])
    async def state(request: Request) -> State:
        """The state of a new episode."""
        return Session(caller_of(request).name).state


def _add_tasks(router: APIRouter, openenv: OpenEnv, caller_of: CallerOf) -> None:
    """The Task API."""

    async def find(request: Request, env: str, split: str | None) -> list[TaskView]:
        if env.lower() != ENV_NAME:
            raise HTTPException(404, f"unknown environment {env[:200]!r}")
        caller = caller_of(request)
        if not await openenv.tools.tasks_of(UNSPLIT, caller):
            raise HTTPException(501, "list_tasks is not supported for this environment: it serves no tasks")
        tasks = await openenv.tools.tasks_of(split or UNSPLIT, caller)
        if tasks is None:
            raise HTTPException(400, f"unknown split {split!r}; expected one of {(*SPLITS, UNSPLIT)}")
        return tasks

    @router.get("/list_environments", tags=["openenv tasks"])
    async def list_environments() -> list[str]:
        """The one environment."""
        return [ENV_NAME]

    @router.get("/{env_name}/splits", tags=["openenv tasks"])
    async def list_splits(request: Request, env_name: str) -> list[dict[str, str]]:
        """The splits that have tasks, and one with all of them."""
        given = {task.split for task in await find(request, env_name, None)}
        named = [{"name": name, "type": name} for name, own in SPLITS.items() if own in given]
        return [*named, {"name": UNSPLIT, "type": "validation"}]

    @router.post("/{env_name}/tasks", tags=["openenv tasks"])
    async def list_tasks(request: Request, env_name: str, given: SplitRequest) -> dict[str, Any]:
        """All tasks of a split."""
        tasks = await find(request, env_name, given.split)
        return {"tasks": [describe_task(task) for task in tasks], "env_name": ENV_NAME}

    @router.post("/{env_name}/num_tasks", tags=["openenv tasks"])
    async def count_tasks(request: Request, env_name: str, given: SplitRequest) -> dict[str, int]:
        """How many tasks a split has."""
        return {"num_tasks": len(await find(request, env_name, given.split))}

    @router.post("/{env_name}/task", tags=["openenv tasks"])
    async def get_task(request: Request, env_name: str, given: TaskRequest) -> dict[str, Any]:
        """One task of a split."""
        tasks = await find(request, env_name, given.split)
        if not 0 <= given.index < len(tasks):
            raise HTTPException(400, "Invalid task index")
        return {"task": describe_task(tasks[given.index])}

    @router.post("/{env_name}/task_range", tags=["openenv tasks"])
    async def get_tasks(request: Request, env_name: str, given: RangeRequest) -> dict[str, Any]:
        """Some tasks of a split."""
        tasks = await find(request, env_name, given.split)
        return {"tasks": [describe_task(task) for task in tasks[given.start : given.stop]]}
