"""Forking a rollout: it is done again with its recorded replies up to a call of its main thread, and goes on from there
with another model, another skill, or just once more."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.agents import agent_named
from whet.errors import UserError
from whet.runs import run as runs
from whet.runs.config import Config
from whet.runs.options import ForkOptions, RunOptions
from whet.runs.resources import find_changed_keys
from whet.runs.results import AttemptRecord, ResultReader, RolloutRecord
from whet.runs.run import FORK, Origin, read_task_paths
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.skill import Skill, read_skill
from whet.tasks import Task, read_tasks
from whet.trace.replay.session import Prefix, main_calls


@dataclass(frozen=True, slots=True)
class Forked:
    """A fork that can be run: all that it needs is there."""

    request: RunOptions
    origin: Origin
    score: float | None
    """Of the rollout that it is a fork of."""


def plan_fork(fork: ForkOptions, config: Config) -> Forked:
    """Read the recorded rollout. UserError when there is nothing to replay, or it would not be the same work."""
    with _open_run(fork.run) as store:
        rollout = ResultReader(store).find(fork.run, fork.rollout)
        row, attempt = rollout.row, _last_attempt(fork.run, rollout)
        exchanges = tuple(attempt.exchanges())
        declared = (store.get("agents") or {}).get(row.agent)
        paths, sandbox = read_task_paths(store), store.get("sandbox")
        digest = next(task.digest for task in store.tasks() if task.id == row.task)
        texts = {skill.digest: skill.body.decode() for skill in store.skills()}
    user_config = _user_config(fork.run, row, declared, config)
    _check_at(fork, row, len(main_calls(exchanges)))
    tasks = fork.tasks or paths
    task = _task(fork, row, tasks, digest)
    skill = _skill(fork, row)
    now = skill.digest if skill else None
    lines = frozenset() if now == row.skill else _lines(texts.get(row.skill or "", ""), skill.text if skill else "")
    prefix = Prefix(exchanges, fork.at, lines, fork.live_if_diverged)
    about = {"run": str(fork.run.resolve()), "rollout": row.id, "attempt": attempt.row.number, "at": fork.at}
    request = RunOptions(
        tasks=tasks,
        out=fork.out,
        agents=(row.agent,),
        models=(fork.model or row.model,),
        skills=(skill.folder if skill else None,),
        samples=fork.samples,
        concurrency=fork.concurrency,
        sandbox=sandbox,
        resume=fork.resume,
        user_config=user_config,
        login=declared is not None and declared.get("home") == "login",
        judge_model=fork.judge_model,
        limits=fork.limits,
    )
    if fork.resume:
        _check_resumed(fork.out, about)
    return Forked(request, Origin(task, prefix, about), attempt.value)


async def fork(forked: Forked, config: Config, watch: runs.Watch, env: Mapping[str, str] = os.environ) -> None:
    """Run a fork. It is a run of its own, in a folder of its own."""
    await runs.run(forked.request, config, watch, env, forked.origin)


@contextmanager
def _open_run(run: Path) -> Iterator[Store]:
    try:
        with Store.open_read(run) as store:
            yield store
    except sqlite3.Error as error:
        raise UserError(f"{run}: cannot be read: {error}") from error


def _last_attempt(run: Path, rollout: RolloutRecord) -> AttemptRecord:
    row, attempt = rollout.row, rollout.last_ended
    if attempt is None:
        raise UserError(f"{run}: rollout '{row.id}' has not been run to an end; there is nothing to replay")
    if attempt.result is not None and not attempt.result.spending.captured:
        raise UserError(f"{run}: rollout '{row.id}' was run without a record; there is no call to replay")
    return attempt


def _user_config(run: Path, row: RolloutRow, declared: Mapping[str, Any] | None, config: Config) -> bool | None:
    """Whether the agent started with the user's settings. UserError when the agent has changed since."""
    if declared is None:
        raise UserError(f"{run}: rollout '{row.id}' was not done by an agent, so it cannot be forked")
    now = agent_named(row.agent, config.agents).model_dump(mode="json")
    if changed := [key for key in find_changed_keys(declared, now) if key != "home"]:
        raise UserError(
            f"agent '{row.agent}' is not what it was in {run}: {' and '.join(changed)} changed; "
            "a fork needs it as it was"
        )
    home = declared.get("home")
    return None if home is None else home == "own"


def _check_at(fork: ForkOptions, row: RolloutRow, calls: int) -> None:
    if not calls:
        raise UserError(f"{fork.run}: rollout '{row.id}' has no answered call; there is nothing to replay")
    if not 1 <= fork.at <= calls + 1:
        raise UserError(
            f"`at` is {fork.at}; expected the number of a call of rollout '{row.id}', which has {calls}: "
            f"1 to {calls}, or {calls + 1} to replay all of them (whet show {fork.run} {row.id})"
        )


def _check_resumed(out: Path, about: Mapping[str, Any]) -> None:
    with _open_run(out) as store:
        before = store.get(FORK)
    if before != about:
        raise UserError(f"{out}: is not this fork; start a new one with another `out`")


def _task(fork: ForkOptions, row: RolloutRow, tasks: tuple[Path, ...] | tuple[Task, ...], digest: str) -> Task:
    if not tasks:
        raise UserError(f"{fork.run}: the run does not record where its tasks are; set `tasks`")
    task = next((task for task in read_tasks(tasks) if task.id == row.task), None)
    if task is None:
        raise UserError(
            f"{fork.tasks or fork.run}: has no task '{row.task}', which the rollout is of; name the place with `tasks`"
        )
    if task.digest != digest:
        raise UserError(f"{task.origin}: task '{task.id}' is not what it was in {fork.run}; a fork needs it as it was")
    return task


def _skill(fork: ForkOptions, row: RolloutRow) -> Skill | None:
    if fork.skill == Path("none") or (fork.skill is None and not row.skill):
        return None
    if fork.skill is None:
        raise UserError(
            f"rollout '{row.id}' had a skill, of which {fork.run} keeps the text alone; name its folder with `skill`, "
            "or none"
        )
    return read_skill(fork.skill)


def _lines(*texts: str) -> frozenset[str]:
    return frozenset(line.strip() for text in texts for line in text.splitlines())
