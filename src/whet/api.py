"""whet from Python. Each verb is one function; the command line calls the same functions."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from whet.agents import Agent, AgentFunction, PythonAgent
from whet.errors import UserError
from whet.event_loop import run_coroutine
from whet.gateway import Limits
from whet.runs.config import Config, ModelConfig, project_config
from whet.runs.options import RunOptions
from whet.runs.run import Event
from whet.runs.run import run as run_tasks
from whet.runs.stored_run import StoredRun, load
from whet.scoring import Judge, Score, Work
from whet.skills.gate.kinds import GateKind, SearchKind
from whet.skills.gate.plan import AUTO, GatePlan
from whet.skills.proposers.base import Proposer
from whet.skills.proposers.schedule import Schedule, ScheduleOptions
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.events import SharpenEvent
from whet.skills.sharpen.options import read_policy, read_proposer
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill
from whet.skills.sharpen.transfer import Lifts
from whet.skills.sharpen.transfer import transfer as transfer_skill
from whet.tasks import Task, read_tasks
from whet.tasks.judges import PythonJudge

Names = str | Sequence[str] | None
AgentLike = str | Agent | AgentFunction
"""A name, an object with the methods of `Agent`, or an async function from an assignment to an answer."""
Kind = TypeVar("Kind", SearchKind, GateKind)
ModelLike = str | ModelConfig
JudgeFunction = Callable[[Work], Score | float | Awaitable[Score | float]]


class RunFields(TypedDict, total=False):
    """The fields of RunOptions that `run` takes as keywords."""

    samples: int
    concurrency: int
    sandbox: str
    judge_model: str | None
    out: Path | str
    resume: bool
    limits: Limits
    cache: str
    record: bool
    user_config: bool | None


async def run_async(
    tasks: Path | str | Sequence[Task] = (),
    *,
    agent: AgentLike | Sequence[AgentLike] | None = None,
    model: ModelLike | Sequence[ModelLike] | None = None,
    skill: Path | str | Sequence[Path | str | None] | None = None,
    judges: Sequence[Judge | JudgeFunction] = (),
    options: RunOptions | None = None,
    config: Config | None = None,
    watch: Callable[[Event], None] = lambda _: None,
    **fields: Unpack[RunFields],
) -> StoredRun:
    """`run`, in the caller's own event loop. Cancelling it stops the run cleanly; it can be resumed.

    >>> async def both():  # doctest: +SKIP
    ...     return await asyncio.gather(run_async("tasks", agent="codex"), run_async("tasks", agent="opencode"))
    """
    agents, models = _by_name("agent", _listed(agent)), _by_name("model", _listed(model))
    config = _with_objects(config or project_config(), agents, models)
    named = {
        "tasks": tasks if isinstance(tasks, Path | str) else tuple(tasks),
        "agents": tuple(agents),
        "models": tuple(models),
        "skills": tuple(_listed(skill)) if not isinstance(skill, Path | str) else (skill,),
    }
    given = {**(options.given() if options else {}), **fields, **{key: value for key, value in named.items() if value}}
    chosen = RunOptions(**given).complete(config)
    judged = [_judge_with(judges, task) for task in read_tasks(chosen.tasks)]
    await run_tasks(chosen, config, watch, tasks=judged)
    return load(chosen.out)


def run(
    tasks: Path | str | Sequence[Task] = (),
    *,
    agent: AgentLike | Sequence[AgentLike] | None = None,
    model: ModelLike | Sequence[ModelLike] | None = None,
    skill: Path | str | Sequence[Path | str | None] | None = None,
    judges: Sequence[Judge | JudgeFunction] = (),
    options: RunOptions | None = None,
    config: Config | None = None,
    watch: Callable[[Event], None] = lambda _: None,
    **fields: Unpack[RunFields],
) -> StoredRun:
    """Run agents on tasks, record every model call and score the work. Also in a notebook.

    `tasks` is a path or a list of `Task`. `agent` and `model` are names or objects; several make an arm each, as do
    several skills, where None is an arm without a skill. `judges` replace the judges that the tasks name. Other fields
    of `RunOptions` are keywords, such as `samples=4`. What is not given is as whet.toml says. `watch` is called with
    every event of the run.

    >>> run("examples/tasks", agent="loop", model="scripted").arms  # doctest: +SKIP
    """
    return run_coroutine(
        run_async(
            tasks,
            agent=agent,
            model=model,
            skill=skill,
            judges=judges,
            options=options,
            config=config,
            watch=watch,
            **fields,
        )
    )


def sharpen(
    skill: Path | str,
    tasks: Path | str,
    *,
    also: Path | str | None = None,
    proposer: str | Proposer = "criteria",
    agent: str | None = None,
    model: str | None = None,
    optimizer_agent: str | None = None,
    optimizer_model: str | None = None,
    search: Literal["ratchet", "race", "pareto"] = "ratchet",
    gate: Literal["certify", "strict", "soft", "hard", "mixed", "no-regression"] = "certify",
    shorten: bool = False,
    budget: int | str = 400,
    alpha: float = 0.10,
    seed: int | None = None,
    policy: str = "anything",
    preferences: str = "",
    known_good: Path | str | None = None,
    schedule: str = Schedule.COSINE,
    epochs: int = 4,
    batch: int = 40,
    samples: int | None = None,
    force: bool = False,
    concurrency: int | None = None,
    sandbox: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    judge_model: str | None = None,
    limits: Limits | None = None,
    config: Config | None = None,
    watch: Callable[[SharpenEvent], None] = lambda _: None,
) -> SharpenResult:
    """Improve a skill on training tasks, and certify the improvement on tasks that no proposal has seen.

    `budget` is in rollouts, or as for `whet sharpen`: "2M tokens", "$5", "3h". `known_good` is a skill that is known
    to be better, which tells whether that can be seen. `proposer` is a name as for `whet sharpen`, or whatever has the
    method `write` of `whet.skills.proposers.base.Writer`. What it uses itself, `optimizer_agent` and
    `optimizer_model`, is by default the same as does the tasks.

    >>> sharpen("examples/skills/careful-shell", "tasks", proposer="rules:rules.txt").best  # doctest: +SKIP
    """
    config = config or project_config()
    request = requested(
        Path(tasks),
        config,
        agents=agent,
        models=model,
        concurrency=concurrency,
        sandbox=sandbox,
        out=Path(out) if out is not None else None,
        resume=resume,
        judge_model=judge_model,
        limits=limits,
    )
    writer = read_proposer(proposer, optimizer_model, optimizer_agent) if isinstance(proposer, str) else proposer
    name = proposer if isinstance(proposer, str) else type(proposer).__name__
    within = read_budget(str(budget))
    if samples is not None and samples < 1:
        raise UserError(f"samples is {samples}; expected at least 1")
    wish = SharpenRequest(
        Path(skill),
        request,
        within,
        GatePlan(
            within.rollouts or 0,
            seed or 0,
            alpha,
            samples=samples or AUTO,
            search=_chosen(SearchKind, "search", search),
            gate=_chosen(GateKind, "gate", gate),
            shorten=shorten,
        ),
        name,
        read_policy(policy),
        preferences,
        ScheduleOptions(Schedule(schedule), epochs, batch),
        Path(also) if also is not None else None,
        known_good=Path(known_good) if known_good is not None else None,
        seed=seed,
        force=force,
    )
    return run_coroutine(sharpen_skill(wish, writer, config, watch))


def transfer(
    skill: Path | str,
    tasks: Path | str,
    *,
    agent: Names = None,
    model: Names = None,
    against: Path | str | None = None,
    samples: int | None = None,
    concurrency: int | None = None,
    sandbox: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    judge_model: str | None = None,
    limits: Limits | None = None,
    config: Config | None = None,
    watch: Callable[[Event], None] = lambda _: None,
) -> Lifts:
    """How much a skill helps each agent on each model, against none or against an older skill.

    >>> transfer("sharpened/best/sums", "tasks", agent=["opencode", "codex"], model="m").lifts  # doctest: +SKIP
    """
    config = config or project_config()
    request = requested(
        Path(tasks),
        config,
        agents=agent,
        models=model,
        samples=samples,
        concurrency=concurrency,
        sandbox=sandbox,
        out=Path(out) if out is not None else None,
        resume=resume,
        judge_model=judge_model,
        limits=limits,
    )
    older = Path(against) if against is not None else None
    return run_coroutine(transfer_skill(Path(skill), older, request, config, watch))


def requested(
    tasks: Path | str, config: Config, *, agents: Names = None, models: Names = None, **given: Any
) -> RunOptions:
    """What to run: what is given, and else what whet.toml says."""
    named = {"agents": tuple(_listed(agents)), "models": tuple(_listed(models))}
    found = {**named, **given}
    return RunOptions(tasks=tasks, **{key: value for key, value in found.items() if value}).complete(config)


def _chosen(kinds: type[Kind], name: str, given: str) -> Kind:
    try:
        return kinds(given)
    except ValueError:
        raise UserError(f"{name} is '{given}'; expected one of {', '.join(kinds)}") from None


def _listed(given: Any) -> Sequence[Any]:
    """One thing, or several, as a sequence."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _by_name(option: str, given: Sequence[Any]) -> dict[str, Any]:
    """The names and objects of one option, by their names. A name stands for itself."""
    found: dict[str, Any] = {}
    for one in given:
        name = one if isinstance(one, str) else _name_of(one)
        if found.setdefault(name, one) is not one and not isinstance(one, str):
            raise UserError(f"`{option}` has two objects named '{name}'; give each a `name` of its own")
    return found


def _name_of(thing: Any) -> str:
    """What an object is called in a run: its `name`, its `kind`, or the name of its function or class.

    >>> class ShortAnswer: ...
    >>> _name_of(ShortAnswer())
    'short-answer'
    """
    for attribute in ("name", "kind"):
        if isinstance(name := getattr(thing, attribute, None), str) and name:
            return name
    name = getattr(thing, "__name__", None) or type(thing).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", name).lower()


def _with_objects(config: Config, agents: Mapping[str, Any], models: Mapping[str, Any]) -> Config:
    """The config with these objects declared in it, by their names."""
    declared = {name: _declare(name, one) for name, one in agents.items() if not isinstance(one, str)}
    endpoints = {name: one for name, one in models.items() if not isinstance(one, str)}
    update = {"agents": {**config.agents, **declared}, "models": {**config.models, **endpoints}}
    return config.model_copy(update=update)


def _declare(name: str, agent: Any) -> Any:
    if not (callable(agent) or hasattr(agent, "run")):
        raise UserError(f"`agent` is {agent!r}; expected a name, an object with a method `run`, or an async function")
    return agent if type(agent).__module__.startswith("whet.agents.") else PythonAgent(name=name, program=agent)


def _judge_with(judges: Sequence[Judge | JudgeFunction], task: Task) -> Task:
    """The task with these judges in place of those that it names."""
    if not judges:
        return task
    specs = tuple(PythonJudge(name=name, judge=one) for name, one in _by_name("judges", judges).items())
    return task.model_copy(update={"judge": specs})
