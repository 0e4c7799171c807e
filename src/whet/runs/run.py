"""A run from the request to the last stored result. The command line and Python programs start here."""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from whet.agents import AnyAgent, CliAgent, agent_named
from whet.errors import UserError
from whet.gateway import Gateway, Limits, Model
from whet.gateway.prices import price_for
from whet.redact import Redactor
from whet.rollout import Workshop
from whet.runs.cache import CacheUse, cache_use, open_cache
from whet.runs.config import Config, judge_model_configs, model_config, model_secrets, never_called, open_models
from whet.runs.plan import Plan, check_tasks
from whet.runs.scheduler import Ended, Stopped, open_run, run_plan
from whet.runs.store import Store
from whet.runs.summary import Arm, Tally, spent, tally
from whet.sandbox import DEFAULT, remove_stale, sandbox_named
from whet.scoring.leaks import refuse_denied
from whet.skill import Skill, read_skill
from whet.tasks import Task, read_tasks
from whet.trace.replay import Prefix
from whet.version import __version__

TASKS = "tasks"
"""Where a run says from where its tasks were read."""
FORK = "fork"
"""Where a run says what it is a fork of, if it is one."""
OWN = "own"
"""Stands for whatever model an agent is logged in to."""
OWN_MODEL = Model(name=OWN, url="http://127.0.0.1:9", upstream_name=OWN, key=None)


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, as a user names it."""

    tasks: Path
    out: Path
    agents: tuple[str, ...]
    models: tuple[str, ...]
    skills: tuple[Path | None, ...] = (None,)
    samples: int = 1
    concurrency: int = 4
    sandbox: str = DEFAULT
    resume: bool = False
    cache: str = CacheUse.OFF
    capture: bool = True
    """Whether agents call the models through the gateway, or, unseen, what they are logged in to."""
    home: Literal["fresh", "own"] | None = None
    """What settings agents start with; None is as they are declared."""
    judge_model: str | None = None
    """Which model judges ask, where a task names none."""
    limits: Limits = field(default_factory=Limits)
    """Of the whole run. What is None here is as whet.toml says."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The rollout that a run is a fork of, and where it leaves it."""

    task: Task
    prefix: Prefix
    about: Mapping[str, Any]
    """As the run keeps it, in JSON."""

    @property
    def name(self) -> str:
        return f"{self.about['rollout']} {self.about['attempt']} {self.prefix.at}"


@dataclass(frozen=True, slots=True)
class Started:
    """The run is open; what was done before is in the tallies."""

    folder: Path
    sandbox: str
    planned: int
    pending: int
    arms: dict[Arm, Tally]


Watch = Callable[[Started | Ended | Stopped], None]


async def run(
    request: Request,
    config: Config,
    watch: Watch,
    env: Mapping[str, str] = os.environ,
    origin: Origin | None = None,
) -> None:
    """Run what is requested, or what is left of it, and tell `watch` how it goes. With an origin it is a fork."""
    tasks = [origin.task] if origin else read_tasks(request.tasks)
    sandbox = sandbox_named(request.sandbox)
    check_tasks(tasks, sandbox, env)
    agents = {name: _agent(name, request, config) for name in request.agents}
    _check_capture(request)
    skills = _read_skills(request)
    refuse_denied(tasks, [path for path in request.skills if path], config.denied)
    judge_model = request.judge_model or config.defaults.judge_model
    judge_configs = judge_model_configs((judge for task in tasks for judge in task.judge), judge_model, config)
    model_configs = {name: model_config(name, config) for name in request.models} if request.capture else {}
    use = cache_use(request.cache)
    if use is CacheUse.REPLAY_ONLY:
        model_configs = {name: never_called(model, env) for name, model in model_configs.items()}
        judge_configs = {name: never_called(model, env) for name, model in judge_configs.items()}
    limits = _limits(request, config)
    called = model_configs | judge_configs
    known = [secret for name, model in called.items() for secret in model_secrets(name, model, env)]
    redactor = Redactor([*known, *secrets_in(env)])
    await sandbox.check()
    if request.resume:
        # Most runs are resumed because they were killed.
        await asyncio.to_thread(remove_stale)
    async with AsyncExitStack() as open_until_done:
        cache = await open_until_done.enter_async_context(open_cache(use, env))
        opened = await open_until_done.enter_async_context(open_models(called, env))
        models = {name: opened[name] for name in model_configs}
        judge_models = {name: opened[name] for name in judge_configs}
        _check_prices(limits, opened.values())
        if not request.capture:
            models = {OWN: OWN_MODEL}
        plan = Plan(
            {task.id: task for task in tasks},
            agents,
            models,
            skills,
            request.samples,
            request.capture,
            origin.prefix if origin else None,
            origin.name if origin else "",
        )
        about = {
            "version": __version__,
            "sandbox": sandbox.name,
            "agents": _declared(agents, request),
            TASKS: str(request.tasks.resolve()),
            FORK: origin.about if origin else None,
        }
        pending = open_run(request.out, plan, resume=request.resume, about=about)
        with Store.open_read(request.out) as store:
            arms = tally(store)
        before = spent(arms.values())
        watch(Started(request.out, sandbox.name, len(plan.rows()), len(pending), arms))
        gateway = await open_until_done.enter_async_context(Gateway(redactor, limits, cache, before))
        workshop = Workshop(sandbox, gateway, redactor, env, config.defaults.idle_sec, judge_models, judge_model)
        await run_plan(request.out, plan, pending, workshop, request.concurrency, watch)


def _limits(request: Request, config: Config) -> Limits:
    """What the request says, and else whet.toml."""
    given = {name: value for name, value in asdict(request.limits).items() if value is not None}
    return Limits(**config.limits.model_dump() | given)


def _check_prices(limits: Limits, models: Iterable[Model]) -> None:
    """UserError when a limit on money could not hold."""
    for model in models:
        if limits.cost is not None and price_for(model) is None:
            raise UserError(
                f"model '{model.name}': its price is not known, so a limit on cost cannot hold; "
                "give it price_input and price_output in whet.toml, or limit tokens"
            )


def _agent(name: str, request: Request, config: Config) -> AnyAgent:
    """The agent of this name, as the request wants it; UserError when it cannot run here."""
    agent = agent_named(name, config.agents)
    if not isinstance(agent, CliAgent):
        for option, wish in (("--home", request.home == "own"), ("--capture off", not request.capture)):
            if wish:
                raise UserError(f"agent '{name}' has neither settings nor a login of its own; it runs without {option}")
        return agent
    agent.check()
    return agent if request.home is None else agent.model_copy(update={"home": request.home})


def _check_capture(request: Request) -> None:
    if request.capture:
        return
    if request.sandbox != "local":
        raise UserError(
            f"--capture off needs the network, which sandbox '{request.sandbox}' does not have; use --sandbox local"
        )
    if request.models:
        raise UserError(f"--model is '{','.join(request.models)}', but with --capture off agents call their own models")


def _read_skills(request: Request) -> list[Skill | None]:
    skills: dict[str, Skill | None] = {}
    for path in request.skills:
        skill = read_skill(path) if path else None
        if (same := skill.digest if skill else "") in skills:
            raise UserError(f"{path}: is given twice; expected a different skill for each arm")
        skills[same] = skill
    return list(skills.values())


def secrets_in(env: Mapping[str, str]) -> list[str]:
    """The values of an environment that look like secrets by their names.

    >>> secrets_in({"OPENAI_API_KEY": "sk-0123456789abcdef", "HOME": "/home/somebody"})
    ['sk-0123456789abcdef']
    """
    secret = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)($|_)")
    return [value for name, value in env.items() if secret.search(name.upper()) and len(value) >= 16]


def _declared(agents: Mapping[str, AnyAgent], request: Request) -> dict[str, object]:
    """The agents as they are declared, with those that the run had before. UserError when one has changed since."""
    now: dict[str, object] = {name: agent.model_dump(mode="json") for name, agent in agents.items()}
    if not request.resume:
        return now
    with Store.open_read(request.out) as store:
        before: dict[str, object] = store.get("agents") or {}
    for name, declared in now.items():
        if before.get(name, declared) != declared:
            raise UserError(
                f"agent '{name}' is not what it was when the run in {request.out} began; "
                "start a new run with another --out"
            )
    return before | now
