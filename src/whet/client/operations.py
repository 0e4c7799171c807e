"""The operations of `whet serve` over REST: how each is sent, and how its reply is read. Both clients have them all."""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from whet.client.models import (
    AgentView,
    ComparisonRequest,
    FileView,
    GroupView,
    ModelUpdate,
    ModelView,
    PauseMode,
    PauseRequest,
    RolloutRequest,
    RolloutView,
    RowsView,
    RunRequest,
    RunView,
    ServiceView,
    SkillView,
    Status,
    TaskView,
    TraceView,
)

T = TypeVar("T")
PULSE_SEC = 30.0
"""The longest silence of a server that says every few seconds that it still works."""
SILENCE_SEC = 600.0
"""The longest silence of a server that prepares a large reply."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request, and what its reply means. To send it twice does the same as to send it once."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    silence_sec: float = SILENCE_SEC


def submit(request: RolloutRequest, *, key: str | None = None, wait: float = 0) -> Operation[GroupView]:
    """Queue the rollouts of a request. They are stored when this returns.

    `key` is an idempotency key: the same request with the same key joins what was started with it. Without one, a new
    one is made, so that a request that must be sent again does not start twice.
    """
    return _send("POST", "/v1/rollouts", GroupView, _dump_request(request), _wait(wait), _key(key))


def rollout(name: str, *, wait: float = 0) -> Operation[RolloutView]:
    """A rollout as it is now, or when it is done, if that is within `wait` seconds."""
    return _send("GET", f"/v1/rollouts/{_quote(name)}", RolloutView, query=_wait(wait))


def rollouts(
    *, status: Status | None = None, limit: int = 100, before: str | None = None
) -> Operation[list[RolloutView]]:
    """The newest rollouts first. `before` is the last id of the page before."""
    query = _given(status=status, limit=limit, before=before)
    return _send("GET", "/v1/rollouts", list[RolloutView], query=query)


def cancel(name: str) -> Operation[RolloutView]:
    """End a rollout, queued or running. One that is done stays as it is."""
    return _send("DELETE", f"/v1/rollouts/{_quote(name)}", RolloutView)


def group(name: str, *, wait: float = 0) -> Operation[GroupView]:
    """The rollouts of one request as they are now, or when all are done, if that is within `wait` seconds."""
    return _send("GET", f"/v1/groups/{_quote(name)}", GroupView, query=_wait(wait))


def cancel_group(name: str) -> Operation[GroupView]:
    """End all rollouts of a group that are queued or running."""
    return _send("DELETE", f"/v1/groups/{_quote(name)}", GroupView)


def rows(name: str, *, format: str = "rows", **options: Any) -> Operation[RowsView]:  # noqa: A002 - as `whet export`
    """Training rows of a rollout that is done, or the records of another format. Options are those of `whet export`."""
    return _send("GET", f"/v1/rollouts/{_quote(name)}/rows", RowsView, query=_given(format=format, **options))


def group_rows(name: str, *, format: str = "rows", **options: Any) -> Operation[RowsView]:  # noqa: A002
    """Training rows of a group that is done, with advantages within the group."""
    return _send("GET", f"/v1/groups/{_quote(name)}/rows", RowsView, query=_given(format=format, **options))


def trace(name: str) -> Operation[TraceView]:
    """The conversations of a rollout that is done."""
    return _send("GET", f"/v1/rollouts/{_quote(name)}/trace", TraceView)


def files(name: str) -> Operation[list[FileView]]:
    """The files that the agent left in the working directory."""
    return _send("GET", f"/v1/rollouts/{_quote(name)}/files", list[FileView])


def file(name: str, path: str) -> Operation[bytes]:
    """One of these files, byte for byte."""
    return Operation("GET", f"/v1/rollouts/{_quote(name)}/files/{quote(path)}", bytes)


def tasks() -> Operation[list[TaskView]]:
    """The tasks of the served set."""
    return _send("GET", "/v1/tasks", list[TaskView])


def agents() -> Operation[list[AgentView]]:
    """The agents that a request may name."""
    return _send("GET", "/v1/agents", list[AgentView])


def skills() -> Operation[list[SkillView]]:
    """The skills that a request may name."""
    return _send("GET", "/v1/skills", list[SkillView])


def models() -> Operation[list[ModelView]]:
    """The models that a request may name."""
    return _send("GET", "/v1/models", list[ModelView])


def update_model(
    name: str,
    *,
    weight_version: str,
    url: str | None = None,
    urls: tuple[str, ...] | None = None,
    upstream_name: str | None = None,
) -> Operation[ModelView]:
    """Change the version of a model's weights, and its endpoint, for the rollouts that start from now on."""
    given = _given(weight_version=weight_version, url=url, urls=urls, name=upstream_name)
    return _send("PUT", f"/v1/models/{_quote(name)}", ModelView, _dump(ModelUpdate(**given)))


def pause(
    mode: PauseMode = PauseMode.DRAIN, *, model: str | None = None, wait_sec: float = 0
) -> Operation[ServiceView]:
    """Start no more rollouts, and wait at most so long for those that run, or end them."""
    request = PauseRequest(mode=mode, model=model, wait_sec=wait_sec)
    return _send("POST", "/v1/pause", ServiceView, _dump(request), silence_sec=PULSE_SEC)


def resume(model: str | None = None) -> Operation[ServiceView]:
    """Start rollouts again."""
    return _send("POST", "/v1/resume", ServiceView, query=_given(model=model))


def service() -> Operation[ServiceView]:
    """What is running and queued."""
    return _send("GET", "/v1/service", ServiceView)


def start_run(request: RunRequest, *, key: str | None = None) -> Operation[RunView]:
    """Begin a whole run on tasks of the served set. `key` is an idempotency key, as in `submit`."""
    return _send("POST", "/v1/runs", RunView, _dump(request), headers=_key(key))


def get_run(name: str, *, wait: float = 0) -> Operation[RunView]:
    """A run as it is now, or when it is done, if that is within `wait` seconds."""
    return _send("GET", f"/v1/runs/{_quote(name)}", RunView, query=_wait(wait))


def runs(*, limit: int = 20) -> Operation[list[RunView]]:
    """The newest runs first."""
    return _send("GET", "/v1/runs", list[RunView], query={"limit": limit})


def cancel_run(name: str) -> Operation[RunView]:
    """End a run. What is done is kept."""
    return _send("DELETE", f"/v1/runs/{_quote(name)}", RunView)


def compare(request: ComparisonRequest) -> Operation[dict[str, Any]]:
    """Compare two runs, or the arms of one: what `whet compare --format json` prints."""
    return _send("POST", "/v1/comparisons", dict[str, Any], _dump(request))


def _send(
    method: str,
    path: str,
    reply: type[T],
    body: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    silence_sec: float = SILENCE_SEC,
) -> Operation[T]:
    content = None if body is None else json.dumps(body).encode()
    kind = {} if body is None else {"Content-Type": "application/json"}
    silence_sec = PULSE_SEC if query and "wait" in query else silence_sec
    read = TypeAdapter(reply).validate_json
    return Operation(method, path, read, query or {}, content, {**(headers or {}), **kind}, silence_sec)


def _dump(model: BaseModel) -> dict[str, Any]:
    """What was set of a request: limits that are not set do not replace those of a task."""
    return model.model_dump(mode="json", exclude_unset=True)


def _dump_request(request: RolloutRequest) -> dict[str, Any]:
    data = _dump(request)
    if request.endpoint is not None and request.endpoint.api_key is not None:
        data["endpoint"]["api_key"] = request.endpoint.api_key.get_secret_value()
    return data


def _key(given: str | None) -> dict[str, str]:
    return {"Idempotency-Key": given or uuid.uuid4().hex}


def _wait(seconds: float) -> dict[str, float]:
    return {"wait": seconds} if seconds > 0 else {}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _quote(name: str) -> str:
    return quote(name, safe="")
