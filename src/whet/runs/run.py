"""A run from the request to the last stored result. The command line and Python programs start here."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.rollout.endpoint import check_judge_models
from whet.rollout.resources import RunResources
from whet.runs.config import Config, model_config
from whet.runs.episodes import WEIGHT_VERSION
from whet.runs.options import RunOptions
from whet.runs.plan import Plan
from whet.runs.progress import LIMITS
from whet.runs.resources import find_changed_keys, find_sampling_warnings, open_resources
from whet.runs.scheduler import ArmStopped, Began, Ended, Stopped, open_run, run_plan
from whet.runs.stats.summary import Arm, Tally, arm_of, sum_spent, tally
from whet.runs.stats.use import WORTH_A_PILOT, Piloted, read_use
from whet.runs.store.reply_cache import CacheUse
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.runs.verdicts import Settled
from whet.skill import Skill, read_skill
from whet.tasks import Task
from whet.trace.replay.session import Prefix
from whet.version import __version__

TASKS = "tasks"
"""Where a run says from where its tasks were read."""
FORK = "fork"
"""Where a run says what it is a fork of, if it is one."""


def read_task_paths(store: Store) -> tuple[Path, ...]:
    """Where the tasks of a stored run were read; empty if that is not known."""
    paths: str | list[str] | None = store.get(TASKS)  # earlier versions stored one path
    return tuple(map(Path, [paths] if isinstance(paths, str) else paths or ()))


def fork_name(about: Mapping[str, Any]) -> str:
    """What the rollouts of a fork are named after."""
    return f"{about['rollout']} {about['attempt']} {about['at']}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The rollout that a run is a fork of, and where it leaves it."""

    task: Task
    prefix: Prefix
    about: Mapping[str, Any]
    """As the run keeps it, in JSON."""

    @property
    def name(self) -> str:
        return fork_name(self.about)


@dataclass(frozen=True, slots=True)
class Started:
    """The run is open; what was done before is in the tallies."""

    folder: Path
    sandbox: str
    planned: int
    pending: int
    arms: dict[Arm, Tally]
    warnings: tuple[str, ...] = ()
    """Settings that will make the run less useful than it could be."""


Event = Started | Piloted | Began | Ended | Stopped | Settled | ArmStopped
Watch = Callable[[Event], None]


async def run(
    request: RunOptions,
    config: Config,
    watch: Watch,
    env: Mapping[str, str] = os.environ,
    origin: Origin | None = None,
    tasks: Sequence[Task] | None = None,
) -> None:
    """Run what is requested, or what is left of it, and tell `watch` how it goes. With an origin it is a fork.
    `tasks` are those to run, if not all that the request names."""
    tasks = [origin.task] if origin else tasks or request.read_tasks()
    skills = _read_skills(request)
    async with open_resources(request, tasks, config, env) as resources:
        if request.cache is CacheUse.OFF:
            await check_judge_models(resources.gateway, resources.judge_models)
        declared = {name: model_config(name, config) for name in request.models}
        warnings = tuple(line for name, model in declared.items() for line in find_sampling_warnings(name, model))
        await run_opened(request, tasks, skills, resources, watch, origin, warnings)


async def run_opened(
    request: RunOptions,
    tasks: Sequence[Task],
    skills: Sequence[Skill | None],
    resources: RunResources,
    watch: Watch,
    origin: Origin | None = None,
    warnings: tuple[str, ...] = (),
) -> None:
    """Run these tasks with the agents and models of open resources."""
    plan = Plan(
        {task.id: task for task in tasks},
        resources.agents,
        resources.models,
        skills,
        request.samples,
        request.record,
        origin.prefix if origin else None,
        origin.name if origin else "",
        request.by_task,
    )
    about = {
        "version": __version__,
        "sandbox": resources.sandbox.name,
        "agents": _declare(resources.dump_agents(), request),
        TASKS: request.task_paths,
        FORK: origin.about if origin else None,
        LIMITS: {name: limit for name, limit in asdict(resources.limits).items() if limit is not None},
        WEIGHT_VERSION: _weight_version(request),
    }
    pending = open_run(request.out, plan, resume=request.resume, about=about, retry=request.retry)
    with Store.open_read(request.out) as store:
        arms = tally(store)
    watch(Started(request.out, resources.sandbox.name, len(plan.rows()), len(pending), arms, warnings))
    resources.gateway.add_spent(sum_spent(arms.values()))
    shared = replace(resources, rollouts=len(plan.rows()))
    first = _select_pilot(pending, request)
    if first:
        pending = [row for row in pending if row not in first]
        await run_plan(request.out, plan, first, shared, request.concurrency, watch)
        watch(Piloted(read_use(request.out, request.concurrency), len(plan.rows())))
    await run_plan(request.out, plan, pending, shared, request.concurrency, watch)


def _select_pilot(pending: Sequence[RolloutRow], request: RunOptions) -> list[RolloutRow]:
    """The rollouts to run first: of every arm, spread over its tasks. None if that is a large part of the run."""
    arms: dict[Arm, list[RolloutRow]] = {}
    for row in pending:
        arms.setdefault(arm_of(row), []).append(row)
    each = -(-(request.pilot or 0) // max(1, len(arms)))
    if request.resume or not each or len(pending) < WORTH_A_PILOT * each * len(arms):
        return []
    return [rows[len(rows) * place // each] for rows in arms.values() for place in range(each)]


def _weight_version(request: RunOptions) -> str | None:
    """The version of the weights; that of the run before if it is continued. UserError when the two differ."""
    if not request.resume:
        return request.weight_version
    with Store.open_read(request.out) as store:
        before: str | None = store.get(WEIGHT_VERSION)
    if request.weight_version not in (None, before):
        raise UserError(
            f"`weight_version` is '{request.weight_version}', but the run in {request.out} began with "
            f"{before!r}; start a new run with another `out`"
        )
    return before


def _read_skills(request: RunOptions) -> list[Skill | None]:
    skills: dict[str, Skill | None] = {}
    for path in request.skills:
        skill = read_skill(path) if path else None
        if (same := skill.digest if skill else "") in skills:
            raise UserError(f"{path}: is given twice; expected a different skill for each arm")
        skills[same] = skill
    return list(skills.values())


def _declare(now: dict[str, Any], request: RunOptions) -> dict[str, Any]:
    """The agents as they are declared, with those that the run had before. UserError when one has changed since."""
    if not request.resume:
        return now
    with Store.open_read(request.out) as store:
        before: dict[str, Any] = store.get("agents") or {}
    for name, declared in now.items():
        if changed := find_changed_keys(before.get(name, declared), declared):
            raise UserError(
                f"agent '{name}' is not what it was when the run in {request.out} began: "
                f"{' and '.join(changed)} changed; start a new run with another `out`"
            )
    return before | now
