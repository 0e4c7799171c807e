"""whet from Python: `run` does what `whet run` does, and gives back the stored run."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import uvloop

from whet.errors import UserError
from whet.gateway import Limits
from whet.ids import new_name
from whet.runs.config import Config, find_config, read_config
from whet.runs.options import RunOptions
from whet.runs.results import StoredRun, load
from whet.runs.run import Event
from whet.runs.run import run as run_request
from whet.sandbox import DEFAULT
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

Names = str | Sequence[str] | None
T = TypeVar("T")
Kind = TypeVar("Kind", SearchKind, GateKind)


def run(
    tasks: Path | str,
    *,
    agent: Names = None,
    model: Names = None,
    skill: Path | str | Sequence[Path | str | None] | None = None,
    samples: int | None = None,
    concurrency: int | None = None,
    sandbox: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    cache: str = "off",
    judge_model: str | None = None,
    limits: Limits | None = None,
    config: Config | None = None,
    watch: Callable[[Event], None] = lambda _: None,
) -> StoredRun:
    """Run agents on tasks, record every model call and score the work. Also in a notebook.

    What is not given is as whet.toml says. Several agents, models or skills make an arm each; among skills, None is an
    arm without one. `watch` is told when the run is open and whenever an attempt has ended, in another thread.

    >>> run("examples/tasks", agent="loop", model="scripted").arms  # doctest: +SKIP
    """
    config = config or read_config(find_config(Path.cwd()))
    skills = [skill] if isinstance(skill, Path | str) else skill or [None]
    request = requested(
        Path(tasks),
        config,
        agents=agent,
        models=model,
        skills=[Path(one) if one is not None else None for one in skills],
        samples=samples,
        concurrency=concurrency,
        sandbox=sandbox,
        out=Path(out) if out is not None else None,
        resume=resume,
        cache=cache,
        judge_model=judge_model,
        limits=limits,
    )
    _finish(run_request(request, config, watch))
    return load(request.out)


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
    config = config or read_config(find_config(Path.cwd()))
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
    return _finish(sharpen_skill(wish, writer, config, watch))


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
    config = config or read_config(find_config(Path.cwd()))
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
    return _finish(transfer_skill(Path(skill), older, request, config, watch))


def requested(
    tasks: Path,
    config: Config,
    *,
    agents: Names = None,
    models: Names = None,
    skills: Sequence[Path | None] = (None,),
    samples: int | None = None,
    concurrency: int | None = None,
    sandbox: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    cache: str = "off",
    capture: bool = True,
    home: Literal["fresh", "own"] | None = None,
    judge_model: str | None = None,
    limits: Limits | None = None,
) -> RunOptions:
    """What to run: what is given, and else what whet.toml says."""
    defaults = config.defaults
    if resume and out is None:
        raise UserError("--resume needs --out: the folder of the run to continue")
    return RunOptions(
        tasks=tasks,
        out=out or new_folder(),
        agents=_named("agent", agents, defaults.agent),
        models=_named("model", models, defaults.model) if capture or models else (),
        skills=tuple(skills),
        samples=samples or defaults.samples,
        concurrency=concurrency or defaults.concurrency,
        sandbox=sandbox or defaults.sandbox or DEFAULT,
        resume=resume,
        cache=cache,
        capture=capture,
        home=home,
        judge_model=judge_model,
        limits=limits or Limits(),
    )


def _chosen(kinds: type[Kind], name: str, given: str) -> Kind:
    try:
        return kinds(given)
    except ValueError:
        raise UserError(f"{name} is '{given}'; expected one of {', '.join(kinds)}") from None


def _named(option: str, given: Names, default: str | None) -> tuple[str, ...]:
    names = given or default
    if not names:
        raise UserError(f"--{option} is missing; expected it here, or '{option}' under [defaults] in whet.toml")
    return (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))


def new_folder() -> Path:
    """Where a run goes that is not told where."""
    return Path("runs", f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{new_name()[:4]}")


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in a thread with a loop of its own: in a notebook this thread's loop is running already."""
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def begin() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    def serve() -> T:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(begin())

    with ThreadPoolExecutor(1, thread_name_prefix="whet-run") as thread:
        done = thread.submit(serve)
        try:
            return done.result()
        except KeyboardInterrupt:
            loop, task = begun.result()
            # What is finished is stored, and boxes die, before the interrupt goes on.
            loop.call_soon_threadsafe(task.cancel)
            raise
