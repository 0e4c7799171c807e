"""Running agents on tasks, and what follows from a run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pydantic import ValidationError

from whet.api.arguments import (
    AgentLike,
    ModelLike,
    as_source,
    as_tuple,
    declare_objects,
    index_by_name,
    merge_options,
)
from whet.errors import UserError
from whet.event_loop import run_coroutine
from whet.gateway import Limits
from whet.runs.config import Config, project_config
from whet.runs.fork import fork as run_fork
from whet.runs.fork import plan_fork
from whet.runs.options import ForkOptions, RejudgeOptions, RunOptions
from whet.runs.rejudge import Judged
from whet.runs.rejudge import rejudge as judge_again
from whet.runs.run import Event, Started
from whet.runs.run import run as run_tasks
from whet.runs.scheduler import Ended
from whet.runs.stats.compare import Comparison, Key, compare_arms, compare_runs
from whet.runs.stored_run import (
    GroupKey,
    RolloutGroup,
    StoredRollout,
    StoredRun,
    group_key,
    load,
    load_group,
    unfinished_groups,
)
from whet.scoring import Judge, Score, Work
from whet.tasks import Split, Task, TaskSource
from whet.tasks.judges import PythonJudge
from whet.validation_errors import explain, user_error

JudgeFunction = Callable[[Work], Score | float | Awaitable[Score | float]]


class RolloutFields(TypedDict, total=False):
    """The fields of RunOptions that `run_task` takes as keywords: those that do not choose tasks."""

    samples: int
    concurrency: int
    sandbox: str
    judge_model: str | None
    out: Path | str
    resume: bool
    limits: Limits
    cache: str
    record: bool
    login: bool
    user_config: bool | None
    retry: str
    by_task: bool
    weight_version: str | None


class RunFields(RolloutFields, total=False):
    """The fields of RunOptions that `run` takes as keywords."""

    task: str | Sequence[str]
    split: Split | None
    limit: int | None
    pilot: int | None


class RunArguments(RunFields, total=False):
    """All that `run` takes beside the tasks."""

    agent: AgentLike | Sequence[AgentLike] | None
    model: ModelLike | Sequence[ModelLike] | None
    skill: Path | str | Sequence[Path | str | None] | None
    judges: Sequence[Judge | JudgeFunction]
    options: RunOptions | None
    config: Config | None


async def run_async(
    tasks: TaskSource = (),
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
    agents, models = index_by_name("agent", as_tuple(agent)), index_by_name("model", as_tuple(model))
    config = declare_objects(config or project_config(), agents, models)
    named = {"tasks": as_source(tasks), "agents": tuple(agents), "models": tuple(models), "skills": as_tuple(skill)}
    chosen = merge_options(RunOptions, options, {**fields, **named}).complete(config)
    judged = [_judge_with(judges, task) for task in chosen.read_tasks()]
    await run_tasks(chosen, config, watch, tasks=judged)
    return load(chosen.out)


def run(
    tasks: TaskSource = (),
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

    `tasks` is a path, several paths, or a list of `Task`. `agent` and `model` are names or objects; several make an arm
    each, as do several skills, where None is an arm without a skill. `judges` replace the judges that the tasks name.
    Other fields of `RunOptions` are keywords, such as `samples=4`. What is not given is as whet.toml says. `watch` is
    called with every event of the run.

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


async def groups(tasks: TaskSource = (), **arguments: Unpack[RunArguments]) -> AsyncIterator[RolloutGroup]:
    """`run_async`, with every group as soon as its last rollout has ended: all samples of one task with the same agent,
    model and skill. Tasks run one after the other, so that groups end early. A group that a limit of the run cuts short
    is not given; it is in the run folder.

    >>> async def train():  # doctest: +SKIP
    ...     async for group in groups("tasks", agent="opencode", model="policy", samples=8):
    ...         step(group.rows())
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    arguments.setdefault("by_task", True)
    running = asyncio.create_task(run_async(tasks, watch=events.put_nowait, **arguments))
    running.add_done_callback(lambda _: events.put_nowait(None))
    waiting: dict[GroupKey, set[str]] = {}
    folder = Path()
    try:
        while (event := await events.get()) is not None:
            if isinstance(event, Started):
                folder, waiting = event.folder, unfinished_groups(event.folder)
            elif isinstance(event, Ended) and not event.again:
                waiting[group_key(event.row)].discard(event.row.id)
            for key in [key for key, left in waiting.items() if not left]:
                del waiting[key]
                yield load_group(folder, key)
        await running
    finally:
        running.cancel()
        await asyncio.wait([running])


def run_task(
    task: Task | str,
    *,
    agent: AgentLike,
    model: ModelLike | None = None,
    skill: Path | str | None = None,
    setup: Sequence[str] = (),
    verify: Sequence[str] = (),
    answer: str | None = None,
    **fields: Unpack[RolloutFields],
) -> StoredRollout:
    """Run an agent once on one task, and score its work. No file is needed: the task is its instruction with set-up
    commands, and verify commands or an answer to judge it by; or a `Task`, which has all that a task can have.

    >>> run_task("Write 4 to answer.txt", agent="loop", model="m", verify=["grep -qx 4 answer.txt"])  # doctest: +SKIP
    """
    if isinstance(task, str):
        task = _task(instruction=task, setup=setup, verify=verify, answer=answer)
    elif setup or verify or answer is not None:
        raise UserError("`task` is a Task; expected `setup`, `verify` and `answer` in it")
    (done,) = run([task], agent=agent, model=model, skill=skill, **fields).rollouts
    return done


def _task(**fields: Any) -> Task:
    try:
        return Task(id="task", origin="`task`", **fields)
    except ValidationError as error:
        raise user_error(explain(error, "`task`", Task)) from error


def fork(
    run: Path | str | StoredRun,
    rollout: str,
    at: int,
    *,
    model: ModelLike | None = None,
    skill: Path | str | None = None,
    options: ForkOptions | None = None,
    config: Config | None = None,
    watch: Callable[[Event], None] = lambda _: None,
) -> StoredRun:
    """Repeat a rollout with its recorded replies up to a call, then continue with a live model. The fork is a run of
    its own. `rollout` is the start of an id, and `at` the first call that is made anew.

    >>> fork("runs/quiz", "a2a5", at=2, model="other").rollouts[0].result.replay.given  # doctest: +SKIP
    1
    """
    models = index_by_name("model", as_tuple(model))
    config = declare_objects(config or project_config(), {}, models)
    named = {"run": _folder(run), "rollout": rollout, "at": at, "model": next(iter(models), None), "skill": skill}
    chosen = merge_options(ForkOptions, options, named).complete(config)
    run_coroutine(run_fork(plan_fork(chosen, config), config, watch))
    return load(chosen.out)


def rejudge(
    run: Path | str | StoredRun,
    *,
    judge: Path | str | None = None,
    tasks: TaskSource = (),
    options: RejudgeOptions | None = None,
    config: Config | None = None,
    watch: Callable[[Judged], None] = lambda _: None,
) -> StoredRun:
    """Judge a stored run again without running an agent, with the judges that its tasks name now or with those of the
    file `judge`. Earlier results stay in the store.

    >>> rejudge("runs/quiz", judge="judges.toml").arms  # doctest: +SKIP
    """
    named = {"run": _folder(run), "judge": judge, "tasks": as_source(tasks)}
    chosen = merge_options(RejudgeOptions, options, named)
    run_coroutine(judge_again(chosen, config or project_config(), watch))
    return load(chosen.run)


def compare(
    run: Path | str | StoredRun, other: Path | str | StoredRun | None = None, by: str | None = None
) -> list[Comparison]:
    """Compare two runs, or the arms of one run, on the tasks that both did.

    `by` is agent, model or skill: then only arms that differ in that alone are compared.

    >>> compare("runs/a", "runs/b")[0].verdict  # doctest: +SKIP
    <Verdict.BETTER: 'better'>
    """
    if by is not None and by not in set(Key):
        raise UserError(f"`by` is '{by}'; expected one of: {', '.join(Key)}")
    key = Key(by) if by else None
    return compare_arms(_folder(run), key) if other is None else compare_runs(_folder(run), _folder(other), key)


def _folder(run: Path | str | StoredRun) -> Path:
    return run.folder if isinstance(run, StoredRun) else Path(run)


def _judge_with(judges: Sequence[Judge | JudgeFunction], task: Task) -> Task:
    """The task with these judges in place of those that it names."""
    if not judges:
        return task
    specs = tuple(PythonJudge(name=name, judge=one) for name, one in index_by_name("judges", judges).items())
    return task.model_copy(update={"judge": specs})
