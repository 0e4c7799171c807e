"""Rollouts as a service."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from whet.api.arguments import (
    AgentLike,
    ModelLike,
    as_source,
    as_tuple,
    declare_objects,
    index_by_name,
    merge_options,
)
from whet.event_loop import run_coroutine
from whet.gateway import Limits
from whet.installers import require_extra
from whet.runs.config import Config, project_config
from whet.serve.options import Mode, ServeOptions
from whet.tasks import Split, TaskSource

if TYPE_CHECKING:
    from whet.serve.serving import ServeEvent


class ServeFields(TypedDict, total=False):
    """The fields of ServeOptions that `run_server` takes as keywords."""

    task: str | Sequence[str]
    split: Split | None
    limit: int | None
    concurrency: int
    sandbox: str
    judge_model: str | None
    out: Path | str
    login: bool
    limits: Limits
    host: str
    port: int
    tokens: Path | str | None
    allow: Sequence[str]
    mode: Mode | str
    queue: int
    max_sessions: int
    session_idle_sec: float
    done_after_rollout: bool
    drain_sec: float


def run_server(
    tasks: TaskSource = (),
    *,
    agent: AgentLike | Sequence[AgentLike] | None = None,
    model: ModelLike | Sequence[ModelLike] | None = None,
    skill: Path | str | Sequence[Path | str | None] | None = None,
    options: ServeOptions | None = None,
    config: Config | None = None,
    watch: "Callable[[ServeEvent], None]" = lambda _: None,
    **fields: Unpack[ServeFields],
) -> None:
    """Serve rollouts over REST, OpenEnv and MCP, until SIGTERM or Ctrl-C. Rollouts that run then get `drain_sec` to
    end.

    `tasks` is the set that clients may name; without it, they bring their own. `agent`, `model` and `skill` are what
    they may name, the default first. Other fields of `ServeOptions` are keywords, such as `port=8000`. `watch` is
    called when the server listens, with every rollout that is done, and when it stops.

    >>> run_server("tasks", agent="opencode", model="policy", out="served")  # doctest: +SKIP
    """
    require_extra("fastapi", "serve", "servers")
    from whet.serve.serving import serve_until_stopped

    chosen, config = _complete(tasks, agent, model, skill, options, config, fields)
    run_coroutine(serve_until_stopped(chosen, config, watch))


def _complete(
    tasks: TaskSource,
    agent: Any,
    model: Any,
    skill: Any,
    options: ServeOptions | None,
    config: Config | None,
    fields: ServeFields,
) -> tuple[ServeOptions, Config]:
    """All options as one object, and whet.toml with the objects that were given."""
    agents, models = index_by_name("agent", as_tuple(agent)), index_by_name("model", as_tuple(model))
    config = declare_objects(config or project_config(), agents, models)
    named = {"tasks": as_source(tasks), "agents": tuple(agents), "models": tuple(models), "skills": as_tuple(skill)}
    return merge_options(ServeOptions, options, {**fields, **named}).complete(config), config
