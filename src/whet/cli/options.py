"""Turns an options model into the options of a command: flags, help, defaults and ranges come from the model."""

import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

import typer

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from whet.runs.options import Options

F = TypeVar("F", bound=Callable[..., None])
LIMITS = {
    "max_cost": (float, "Stop at this cost in dollars. The run can be resumed."),
    "max_tokens": (int, "Stop after this many tokens, input and output together."),
    "max_minutes": (float, "Stop after this many minutes."),
}
"""The flags for the limits of a run, with their types and their help."""
PANELS = {
    "Which tasks": ("task", "split", "limit", "samples"),
    "Limits": ("budget", "max_cost", "max_tokens", "max_minutes", "pilot", "yes", "dry_run"),
    "Folder and output": ("out", "resume", "retry", "as_json", "fail_under", "summary"),
    "How it runs": (
        *("concurrency", "sandbox", "cache", "record", "login", "user_config", "judge_model", "by_task"),
        *("weight_version", "live_if_diverged"),
    ),
    "Server": (
        *("host", "port", "tokens", "allow", "mode", "queue", "max_sessions", "session_idle_sec"),
        *("done_after_rollout", "drain_sec"),
    ),
    "Advanced": (
        "schedule",
        "edits",
        "epochs",
        "batch",
        "policy",
        "gate",
        "search",
        "seed",
        "min_effect",
        "beta",
        "alpha",
        "guard",
        "guard_margin",
        "one_exam",
    ),
}
"""The help panels of verbs with many options, and the options in each. The others come first."""
MANY = 12
"""A verb with more options than this has panels."""
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before an expensive run.")]
Json = Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the options of a model appear on the command line, where that differs from the model."""

    arguments: tuple[str, ...] = ()
    """Options that are given without a flag, in this order."""
    left_out: tuple[str, ...] = ()
    """Options that the command does not have."""
    required: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    """Flags that are not named as their option."""
    help: Mapping[str, str] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    """Lists whose values may hold commas."""
    limits: tuple[str, ...] = tuple(LIMITS)
    """Which limits of a run the command has, if the model has `limits`."""


def takes(model: "type[Options]", layout: Layout) -> Callable[[F], F]:
    """Let a command take the options of a model. The function is called with the model as `options`, and with its own
    other parameters."""

    def decorate(command: F) -> F:
        own = [one for one in inspect.signature(command).parameters.values() if one.name != "options"]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [
            context,
            *_parameters(model, layout),
            *(_keyword(one.name, one.annotation, one.default) for one in own),
        ]

        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            rest = {one.name: values.pop(one.name) for one in own}
            # Only what the user typed is set: whet.toml has its say about the rest.
            given = {name: one for name, one in values.items() if _is_typed(context, name)}
            command(options=model(**_fields(model, layout, given)), **rest)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run  # type: ignore[return-value] # a command for typer, which calls it by its signature

    return decorate


def _parameters(model: "type[Options]", layout: Layout) -> Iterator[inspect.Parameter]:
    from whet.runs.options import RolloutOptions

    fields = model.model_fields
    # What all verbs share comes last.
    named = sorted(fields, key=lambda name: name in RolloutOptions.model_fields)
    for name in (*layout.arguments, *(one for one in named if one not in layout.arguments)):
        if name in layout.left_out:
            continue
        if name == "limits":
            for limit in layout.limits:
                kind, text = LIMITS[limit]
                option = typer.Option(f"--{limit.replace('_', '-')}", help=text)
                yield _keyword(limit, Annotated[kind | None, option], None)
            continue
        yield _parameter(name, fields[name], layout)
        if _plain_type(fields[name].annotation) is bool and fields[name].default is None:
            # What whet.toml may have turned on can be turned off.
            off = f"--no-{name.replace('_', '-')}"
            yield _keyword(f"no_{name}", Annotated[bool, typer.Option(off, hidden=True)], False)


def _parameter(name: str, info: "FieldInfo", layout: Layout) -> inspect.Parameter:
    kind = _plain_type(info.annotation)
    # rich would take brackets for its own markup.
    text = with_flags(layout.help.get(name, info.description or ""), layout.flags).replace("[", "\\[")
    required = name in layout.required or info.is_required()
    default = None if required or info.default_factory or info.default in ((), (None,)) else info.default
    if name in layout.arguments:
        argument = typer.Argument(help=text)
        if required:
            return _keyword(name, Annotated[kind, argument], inspect.Parameter.empty)
        return _keyword(name, Annotated[kind | None, argument], None)
    option = typer.Option(
        _flag(name, info, layout),
        help=text,
        show_default=default is not None and default != "" and kind is not bool,
    )
    if kind is bool:
        return _keyword(name, Annotated[bool, option], False)
    if required:
        return _keyword(name, Annotated[kind, option], inspect.Parameter.empty)
    return _keyword(name, Annotated[kind if default is not None else kind | None, option], default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain_type(annotation: Any) -> Any:
    """The type that the command line reads: a list of names for a tuple, and no None."""
    union = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [get_args(one)[0] if get_origin(one) is Annotated else one for one in union if one is not type(None)]
    if Path in kinds:
        return Path
    return list[str] if get_origin(kinds[0]) is tuple else kinds[0]


def _flag(name: str, info: "FieldInfo", layout: Layout) -> str:
    """A flag that is on by default has only its `--no-` form."""
    flag = layout.flags.get(name, f"--{name.replace('_', '-')}")
    return f"--no-{flag.removeprefix('--')}" if info.default is True else flag


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _fields(model: "type[Options]", layout: Layout, given: dict[str, Any]) -> dict[str, Any]:
    limits = {name: given.pop(name) for name in LIMITS if name in given and name not in model.model_fields}
    for name in [name for name in given if name not in model.model_fields]:
        given[name.removeprefix("no_")] = not given.pop(name)
    found = {name: _value(name, value, model.model_fields[name], layout) for name, value in given.items()}
    return {**found, **({"limits": _limits(limits)} if limits else {})}


def _value(name: str, value: Any, info: "FieldInfo", layout: Layout) -> Any:
    if isinstance(value, list):
        names = value if name in {"tasks", *layout.whole} else split_names(layout.flags.get(name, f"--{name}"), value)
        # 'none' stands for an arm without a skill.
        return tuple(None if one == "none" and type(None) in _inner(info) else one for one in names)
    return not value if info.default is True else value


def _inner(info: "FieldInfo") -> tuple[Any, ...]:
    return tuple(kind for one in get_args(info.annotation) for kind in (get_args(one) or (one,)))


def _limits(given: Mapping[str, Any]) -> Any:
    from whet.errors import UserError
    from whet.gateway import Limits

    for name, value in given.items():
        least = 1 if name == "max_tokens" else 0
        if value < least:
            raise UserError(f"`{name}` is {value:g}; expected a number of at least {least}")
    minutes = given.get("max_minutes")
    return Limits(
        cost=given.get("max_cost"),
        total_tokens=given.get("max_tokens"),
        wall_sec=None if minutes is None else minutes * 60,
    )


def panel_of(name: str | None) -> str | None:
    """The help panel of an option; None for the first one."""
    return next((panel for panel, names in PANELS.items() if name in names), None)


def split_names(flag: str, values: Iterable[str]) -> list[str]:
    """Names that are given by several flags, or by one with commas between them."""
    from whet.errors import UserError

    # A command line may hold commas of its own.
    names = [name for value in values for name in ([value] if value.startswith("command:") else value.split(","))]
    if not all(name.strip() for name in names):
        raise UserError(f"{flag} is '{','.join(values)}'; expected a name, or several with commas between them")
    return list(dict.fromkeys(name.strip() for name in names))


_OPTION = re.compile(r"`([a-z_]+)(?:=(True|False))?`")


def with_flags(text: str, flags: Mapping[str, str] = types.MappingProxyType({}), known: Sequence[str] = ()) -> str:
    """A text in which every option that stands in backquotes is written as its flag. `known` limits which.

    >>> with_flags("`resume` needs `out`"), with_flags("`record=False` needs the network")
    ('--resume needs --out', '--no-record needs the network')
    """

    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if known and name not in known:
            return found[0]
        shown = flags.get(name, f"--{name.replace('_', '-')}")
        return f"--no-{shown.removeprefix('--')}" if value == "False" else shown

    return _OPTION.sub(flag, text)
