"""Proving tasks: the task's own solution must score 1, and doing nothing must not."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from whet.agents import StopReason, agent_named
from whet.box import Sandbox
from whet.errors import UserError
from whet.exchange import Exchange, Recorder
from whet.gateway import Gateway, Limits
from whet.rollout.attempt import attempt
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.runs.config import NO_MODEL, Config, judge_model_configs, model_secrets, open_models
from whet.runs.plan import check_tasks
from whet.runs.stats.means import is_pass
from whet.scoring import Score
from whet.scoring.trust import trust_warnings
from whet.tasks import Task
from whet.tasks.judges import JudgeSpec
from whet.text.redact import Redactor

TAIL_LINES = 12
"""Lines of a program's output that a check reports."""


class TaskVerdict(StrEnum):
    """What is known of a task."""

    PROVED = "proved"
    """The solution scores 1, doing nothing does not."""
    READ = "read"
    """It is well formed, and ships no solution to prove it with."""
    ELSEWHERE = "elsewhere"
    """It is well formed, and this sandbox cannot run it."""
    BROKEN = "broken"
    """The solution does not score 1, or doing nothing does."""


@dataclass(frozen=True, slots=True)
class TaskCheck:
    task: Task
    verdict: TaskVerdict
    reason: str = ""
    solution: Score | None = None
    nothing: Score | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Of a broken task: the end of what the solution and the judge's commands printed, by their names."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its reader passed over, and what lets the agent's work into the judge's own process."""
        return (*self.task.warnings, *(f"{self.task.origin}: {warning}" for warning in trust_warnings(self.task)))


async def check(
    tasks: Sequence[Task],
    sandbox: Sandbox,
    env: Mapping[str, str] = os.environ,
    config: Config | None = None,
    judge_model: str | None = None,
) -> AsyncGenerator[TaskCheck, None]:
    """Prove each task, in order. Judges ask the model that they name, or else this one."""
    judges = [judge for task in tasks if task.solution is not None for judge in task.judge]
    async with open_resources(sandbox, env, config, judges, judge_model) as resources:
        for task in tasks:
            yield await _check(task, resources)


@asynccontextmanager
async def open_resources(
    sandbox: Sandbox,
    env: Mapping[str, str] = os.environ,
    config: Config | None = None,
    judges: Iterable[JudgeSpec] = (),
    judge_model: str | None = None,
) -> AsyncIterator[RunResources]:
    """What attempts of `oracle` and `nop` need, checked and open: no model of an agent, only those of these judges."""
    config = config or Config()
    judge_model = judge_model or config.defaults.judge_model
    configs = judge_model_configs(judges, judge_model, config)
    redactor = Redactor([secret for name, model in configs.items() for secret in model_secrets(name, model, env)])
    limits = Limits(**config.limits.model_dump())
    await sandbox.check()
    async with open_models(configs, env) as models, Gateway(redactor, limits) as gateway:
        yield RunResources(sandbox, gateway, redactor, env, judge_models=models, judge_model=judge_model)


async def _check(task: Task, resources: RunResources) -> TaskCheck:
    try:
        check_tasks([task], resources.sandbox, resources.host_env)
    except UserError as error:
        return TaskCheck(task, TaskVerdict.ELSEWHERE, str(error))
    if task.solution is None:
        return TaskCheck(task, TaskVerdict.READ, "ships no solution")
    solution, nothing = await asyncio.gather(*(attempt_with(agent, task, resources) for agent in ("oracle", "nop")))
    if not (reason := _what_is_wrong(solution, nothing.score)):
        return TaskCheck(task, TaskVerdict.PROVED, "", solution.score, nothing.score)
    outputs = tail_outputs(nothing if is_pass(solution.score.value or 0) else solution)
    return TaskCheck(task, TaskVerdict.BROKEN, reason, solution.score, nothing.score, outputs)


async def attempt_with(agent: str, task: Task, resources: RunResources, record_judge: Recorder | None = None) -> Result:
    """Attempt a task with an agent that calls no model: `oracle` or `nop`."""

    async def refuse(exchange: Exchange) -> None:
        raise AssertionError(f"{agent} called a model: {exchange.path}")

    async def forget(exchange: Exchange) -> None:
        pass

    rollout = Rollout(f"check-{agent}", task, agent_named(agent, {}), NO_MODEL, None)
    return await attempt(rollout, resources, refuse, record_judge or forget)


def _what_is_wrong(solution: Result, nothing: Score) -> str:
    score, report = solution.score, solution.report
    if report is not None and report.stop is StopReason.CRASHED and report.error:
        return report.error
    if score.value is None:
        return f"the solution could not be scored: {score.reason}"
    if not is_pass(score.value):
        return f"the solution scores {score.value:g}, expected 1: {score.reason}"
    if nothing.value is not None and is_pass(nothing.value):
        return "doing nothing scores 1"
    return ""


def tail_outputs(result: Result) -> dict[str, str]:
    """The end of what the solution and the judges' commands printed."""
    report = result.report
    printed = {"solve.sh": report.stdout + report.stderr} if report is not None else {}
    for score in result.judgements.values():
        printed |= {one["command"]: one["output"] for one in score.details.get("commands", ())}
    return {name: tail for name, text in printed.items() if (tail := "\n".join(text.splitlines()[-TAIL_LINES:]))}
