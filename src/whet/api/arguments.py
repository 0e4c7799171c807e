"""What callers give to the functions of the API: names, objects, options, as one form."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whet.agents import Agent, AgentFunction
from whet.agents.own_agent import as_agent
from whet.errors import UserError
from whet.runs.config import Config, ModelConfig
from whet.runs.options import Options, RolloutOptions
from whet.tasks import Task, TaskSource

AgentLike = str | Agent | AgentFunction
"""A name, an object with the methods of `Agent`, or an async function from an assignment to an answer."""

OptionsT = TypeVar("OptionsT", bound=Options)
ModelLike = str | ModelConfig


def as_source(tasks: TaskSource) -> Path | str | tuple[Path | str | Task, ...]:
    """Tasks as options take them."""
    return tasks if isinstance(tasks, Path | str) else tuple(tasks)


def merge_options(model: type[OptionsT], options: OptionsT | None, named: Mapping[str, Any]) -> OptionsT:
    """The options with what the caller named beside them."""
    given = {key: value for key, value in named.items() if value not in (None, ())}
    return model(**{**(options.given() if options else {}), **given})


def refuse_missing_run(options: RolloutOptions) -> None:
    """UserError when a run is to be resumed that is not there."""
    if options.resume and not options.out.is_dir():
        raise UserError(f"{options.out}: there is no run to continue; expected the folder of one, or no `resume`")


def as_tuple(given: Any) -> Sequence[Any]:
    """One thing, or several, as a sequence."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def index_by_name(option: str, given: Sequence[Any]) -> dict[str, Any]:
    """The names and objects of one option, by their names. A name stands for itself."""
    found: dict[str, Any] = {}
    for one in given:
        name = one if isinstance(one, str) else name_of(one)
        if found.setdefault(name, one) is not one and not isinstance(one, str):
            raise UserError(f"`{option}` has two objects named '{name}'; give each a `name` of its own")
    return found


def name_of(thing: Any) -> str:
    """What an object is called in a run: its `name`, its `kind`, or the name of its function or class.

    >>> class ShortAnswer: ...
    >>> name_of(ShortAnswer())
    'short-answer'
    """
    for attribute in ("name", "kind"):
        if isinstance(name := getattr(thing, attribute, None), str) and name:
            return name
    name = getattr(thing, "__name__", None) or type(thing).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", name).lower()


def declare_objects(config: Config, agents: Mapping[str, Any], models: Mapping[str, Any]) -> Config:
    """The config with these objects declared in it, by their names."""
    declared = {name: _declare(name, one) for name, one in agents.items() if not isinstance(one, str)}
    endpoints = {name: one for name, one in models.items() if not isinstance(one, str)}
    update = {"agents": {**config.agents, **declared}, "models": {**config.models, **endpoints}}
    return config.model_copy(update=update)


def _declare(name: str, agent: Any) -> Any:
    if not (callable(agent) or hasattr(agent, "run")):
        raise UserError(f"`agent` is {agent!r}; expected a name, an object with a method `run`, or an async function")
    return agent if type(agent).__module__.startswith("whet.agents.") else as_agent(name, agent)
