"""whet from Python. Each verb is one function; the command line calls the same functions."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from whet.agents import Agent, AgentFunction
from whet.agents.own_agent import as_agent
from whet.errors import UserError
from whet.event_loop import run_coroutine
from whet.gateway import Limits
from whet.runs.config import Config, ModelConfig, project_config
from whet.runs.fork import fork as run_fork
from whet.runs.fork import plan_fork
from whet.runs.options import ForkOptions, Options, RejudgeOptions, RolloutOptions, RunOptions
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
from whet.skills.certificates.certificate import Certificate
from whet.skills.gate.plan import AUTO, GatePlan
from whet.skills.options import AdoptOptions, CertifyOptions, SharpenOptions, TransferOptions
from whet.skills.proposers.base import Proposer
from whet.skills.proposers.schedule import ScheduleOptions
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.adopt import Adoption
from whet.skills.sharpen.adopt import adopt as adopt_version
from whet.skills.sharpen.adopt import undo as undo_adoption
from whet.skills.sharpen.certify import CertifyRequest, CertifyWatch
from whet.skills.sharpen.certify import certify as certify_skill
from whet.skills.sharpen.events import SharpenEvent
from whet.skills.sharpen.options import (
    default_proposer_model,
    read_guard,
    read_policy,
    read_preferences,
    read_proposer,
)
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill
from whet.skills.sharpen.transfer import Lifts
from whet.skills.sharpen.transfer import transfer as transfer_skill
from whet.sleep.harvest import HarvestReport
from whet.sleep.harvest import harvest as harvest_sessions
from whet.sleep.mining.mine import Mined, MineReport
from whet.sleep.mining.mine import mine as mine_from_repository
from whet.sleep.mining.options import MineOptions
from whet.sleep.mining.sessions.mine import SessionsReport, mine_repositories
from whet.sleep.night.flow import NightPlan, Setting, agree
from whet.sleep.night.flow import plan_night as find_night_plan
from whet.sleep.night.flow import run_night as sleep_until_morning
from whet.sleep.options import SleepOptions, SleepScheduleOptions
from whet.sleep.report import NightRecord
from whet.sleep.review.adopt import Adopted as AdoptedProposal
from whet.sleep.review.adopt import adopt_proposal as adopt_staged
from whet.sleep.review.adopt import roll_back
from whet.sleep.schedule import hold_lock
from whet.sleep.schedule.host import Host
from whet.sleep.schedule.schedule import Checked, night_command
from whet.sleep.schedule.schedule import check as try_schedule
from whet.sleep.schedule.schedule import install as install_schedule
from whet.sleep.schedule.schedule import remove as remove_schedule
from whet.sleep.staging import Proposal as StagedProposal
from whet.sleep.staging import drop_backups, list_proposals, reject
from whet.sleep.store import Forgotten, SleepStore, sleep_folder
from whet.tasks import Split, Task, TaskSource
from whet.tasks.judges import PythonJudge
from whet.validation_errors import explain, user_error

AgentLike = str | Agent | AgentFunction
"""A name, an object with the methods of `Agent`, or an async function from an assignment to an answer."""
OptionsT = TypeVar("OptionsT", bound=Options)
ModelLike = str | ModelConfig
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
    agents, models = _by_name("agent", _as_tuple(agent)), _by_name("model", _as_tuple(model))
    config = _with_objects(config or project_config(), agents, models)
    named = {"tasks": _source(tasks), "agents": tuple(agents), "models": tuple(models), "skills": _as_tuple(skill)}
    chosen = _merge(RunOptions, options, {**fields, **named}).complete(config)
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
    models = _by_name("model", _as_tuple(model))
    config = _with_objects(config or project_config(), {}, models)
    named = {"run": _folder(run), "rollout": rollout, "at": at, "model": next(iter(models), None), "skill": skill}
    chosen = _merge(ForkOptions, options, named).complete(config)
    run_coroutine(run_fork(plan_fork(chosen, config), config, watch))
    return load(chosen.out)


def mine_tasks(
    repository: Path | str,
    *,
    options: MineOptions | None = None,
    watch: Callable[[Mined], None] = lambda _: None,
) -> MineReport:
    """Make tasks from the history and the tested code of a Python repository, and keep those that are proved.

    >>> mine_tasks("shop", options=MineOptions(to="tasks", limit=10)).proved  # doctest: +SKIP
    """
    chosen = _merge(MineOptions, options, {"repository": Path(repository)})
    return run_coroutine(mine_from_repository(chosen, watch))


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
    named = {"run": _folder(run), "judge": judge, "tasks": _source(tasks)}
    chosen = _merge(RejudgeOptions, options, named)
    run_coroutine(judge_again(chosen, config or project_config(), watch))
    return load(chosen.run)


async def sharpen_async(
    skill: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: SharpenOptions | None = None,
    proposer: str | Proposer | None = None,
    agent: AgentLike | None = None,
    model: ModelLike | None = None,
    config: Config | None = None,
    watch: Callable[[SharpenEvent], None] = lambda _: None,
) -> SharpenResult:
    """`sharpen`, in the caller's own event loop. Cancelling it stops the run cleanly; it can be resumed."""
    agents, models = _by_name("agent", _as_tuple(agent)), _by_name("model", _as_tuple(model))
    config = _with_objects(config or project_config(), agents, models)
    name = proposer if isinstance(proposer, str) else _name_of(proposer) if proposer is not None else None
    named = {
        "skill": skill,
        "tasks": _source(tasks),
        "agent": next(iter(agents), None),
        "model": next(iter(models), None),
    }
    chosen = _merge(SharpenOptions, options, {**named, "proposer": name})
    request = sharpen_request(chosen, config)
    if proposer is not None and not isinstance(proposer, str):
        return await sharpen_skill(request, proposer, config, watch)
    asked = chosen.proposer_model or default_proposer_model(chosen.proposer, request.run, config)
    declared = read_proposer(chosen.proposer, asked, chosen.proposer_agent)
    return await sharpen_skill(request, declared, config, watch)


def sharpen(
    skill: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: SharpenOptions | None = None,
    proposer: str | Proposer | None = None,
    agent: AgentLike | None = None,
    model: ModelLike | None = None,
    config: Config | None = None,
    watch: Callable[[SharpenEvent], None] = lambda _: None,
) -> SharpenResult:
    """Improve a skill on training tasks, and certify the improvement on tasks that no proposal has seen.

    `proposer` is a name, as for `whet sharpen`, or an object with the method of `Proposer`. NotMeasured when too many
    scores are missing for a conclusion; then the run can be resumed.

    >>> sharpen("skills/sums", "tasks", options=SharpenOptions(budget="$5"), proposer="llm").best  # doctest: +SKIP
    """
    return run_coroutine(
        sharpen_async(
            skill,
            tasks,
            options=options,
            proposer=proposer,
            agent=agent,
            model=model,
            config=config,
            watch=watch,
        )
    )


def sharpen_request(options: SharpenOptions, config: Config) -> SharpenRequest:
    """What `sharpen` is to do, read and checked."""
    if options.skill is None:
        raise UserError("`skill` is missing; expected a skill folder or a Markdown file")
    _refuse_missing_run(options)
    budget = read_budget(options.budget)
    rule = None if options.gate == "certify" else options.gate
    guard = read_guard(options.guard, options.guard_margin, gate=rule, shorten=options.shorten)
    plan = GatePlan(
        budget.rollouts or 0,
        options.seed or 0,
        options.alpha,
        samples=options.samples or AUTO,
        search=options.search,
        gate=options.gate,
        shorten=options.shorten,
        guard=guard,
        one_exam=options.one_exam,
    )
    return SharpenRequest(
        options.skill,
        options.run_options().complete(config),
        budget,
        plan,
        options.proposer,
        read_policy(options.policy),
        read_preferences(options.preferences),
        ScheduleOptions(options.schedule, options.epochs, options.batch, options.edits),
        options.memory_file,
        options.known_good,
        seed=options.seed,
        force=options.force,
    )


def certify(
    old: Path | str | None = None,
    new: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: CertifyOptions | None = None,
    agent: AgentLike | None = None,
    model: ModelLike | None = None,
    config: Config | None = None,
    watch: CertifyWatch = lambda _: None,
) -> Certificate:
    """Test whether a new skill is better than an old one, or with `non_inferior` that it is not worse, in an exam that
    ends as soon as the answer is clear.

    >>> certify("skills/old", "skills/new", "tasks", agent="codex").certified  # doctest: +SKIP
    """
    agents, models = _by_name("agent", _as_tuple(agent)), _by_name("model", _as_tuple(model))
    config = _with_objects(config or project_config(), agents, models)
    named = {"old": old, "new": new, "tasks": _source(tasks)}
    arm = {"agent": next(iter(agents), None), "model": next(iter(models), None)}
    chosen = _merge(CertifyOptions, options, {**named, **arm})
    if chosen.old is None or chosen.new is None or chosen.tasks == ():
        raise UserError("expected two skills and `tasks`")
    _refuse_missing_run(chosen)
    budget = read_budget(chosen.budget)
    guard = read_guard(chosen.guard, chosen.guard_margin, non_inferior=chosen.non_inferior)
    plan = GatePlan(budget.rollouts or 0, chosen.seed or 0, chosen.alpha, guard=guard)
    rollouts = chosen.run_options().complete(config)
    request = CertifyRequest(
        chosen.old, chosen.new, rollouts, budget, plan, chosen.seed, chosen.non_inferior, chosen.summary
    )
    return run_coroutine(certify_skill(request, config, watch))


def adopt(run: Path | str | None = None, *, options: AdoptOptions | None = None, undo: bool = False) -> Adoption:
    """Write the certified skill of a sharpen run over the one that the run started with, or undo that.

    >>> adopt("runs/sharpened").files[0].path  # doctest: +SKIP
    PosixPath('/home/me/project/CLAUDE.md')
    """
    chosen = _merge(AdoptOptions, options, {"run": run, "undo": undo or None})
    if chosen.undo:
        return undo_adoption(chosen.run)
    return adopt_version(chosen.run, chosen.version, chosen.to, uncertified=chosen.uncertified)


def transfer(
    skill: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: TransferOptions | None = None,
    agent: AgentLike | Sequence[AgentLike] | None = None,
    model: ModelLike | Sequence[ModelLike] | None = None,
    config: Config | None = None,
    watch: Callable[[Event], None] = lambda _: None,
) -> Lifts:
    """Measure how much a skill helps each agent on each model, compared with no skill or with an older one.

    >>> transfer("sharpened/best/sums", "tasks", agent=["opencode", "codex"], model="m").lifts  # doctest: +SKIP
    """
    agents, models = _by_name("agent", _as_tuple(agent)), _by_name("model", _as_tuple(model))
    config = _with_objects(config or project_config(), agents, models)
    named = {"skill": skill, "tasks": _source(tasks), "agents": tuple(agents), "models": tuple(models)}
    chosen = _merge(TransferOptions, options, named)
    if chosen.skill is None:
        raise UserError("`skill` is missing; expected a skill folder or a Markdown file")
    rollouts = chosen.run_options().complete(config)
    return run_coroutine(transfer_skill(chosen.skill, chosen.against, rollouts, config, watch))


def harvest(
    options: SleepOptions | None = None, watch: Callable[[int, int], None] = lambda _files, _bytes: None
) -> HarvestReport:
    """Read, mask and keep the sessions that coding agents left in the home folder. No model is called.

    >>> harvest(SleepOptions(clis=("codex",))).read  # doctest: +SKIP
    12
    """
    chosen = (options or SleepOptions()).complete(Path.cwd(), os.environ)
    now = datetime.now().astimezone()
    with SleepStore(sleep_folder(os.environ)) as store, hold_lock(store, now):
        return harvest_sessions(chosen, store, now, home=Path.home(), env=os.environ, watch=watch)


def forget(what: str) -> Forgotten:
    """Delete a session, or all sessions of a repository, and everything that was derived from them.

    >>> forget("~/projects/shop").sessions  # doctest: +SKIP
    12
    """
    with SleepStore(sleep_folder(os.environ)) as store, hold_lock(store, datetime.now().astimezone()):
        forgotten = store.forget(what)
        drop_backups(store)
        return forgotten


def plan_night(options: SleepOptions | None = None, *, config: Config | None = None) -> NightPlan:
    """Read new sessions, and find out what a night would try and what that may cost. No model is called.

    >>> plan_night(SleepOptions(model="anthropic/claude-sonnet-4-5")).rules  # doctest: +SKIP
    """
    with SleepStore(sleep_folder(os.environ)) as store:
        return run_coroutine(find_night_plan(_night_setting(options, config), store))


def run_night(
    options: SleepOptions | None = None,
    *,
    config: Config | None = None,
    consent: bool = False,
    scheduled: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> NightRecord:
    """Run a night, or continue one that was killed: read sessions, try what was corrected again and again as a rule in
    the memory file, and stage what is proved.

    `consent` records that the endpoint of the model may see files of the repositories. A `scheduled` night waits until
    the machine is idle, within its window.

    >>> run_night(SleepOptions(model="anthropic/claude-sonnet-4-5"), consent=True).outcome  # doctest: +SKIP
    <Outcome.PROPOSED: 'proposed'>
    """
    with SleepStore(sleep_folder(os.environ)) as store:
        setting = _night_setting(options, config, watch)
        if consent:
            agree(setting, store)
        return run_coroutine(sleep_until_morning(setting, store, scheduled=scheduled))


def _night_setting(
    options: SleepOptions | None, config: Config | None, watch: Callable[[str], None] = lambda _: None
) -> Setting:
    chosen = (options or SleepOptions()).complete(Path.cwd(), os.environ)
    return Setting(chosen, config or project_config(), Path.home(), os.environ, watch)


def proposals() -> list[StagedProposal]:
    """Everything that nights proposed, the oldest first, with what became of it.

    >>> [one.edit for one in proposals() if one.state == "staged"]  # doctest: +SKIP
    ['Run make test; there is no npm here.']
    """
    with SleepStore(sleep_folder(os.environ)) as store:
        return list_proposals(store)


def adopt_proposal(
    proposal: str, target: Sequence[str] = (), *, commit: bool = False, force: bool = False
) -> AdoptedProposal:
    """Write a proposal of a night into its files, or into those that are named, all or none."""
    with SleepStore(sleep_folder(os.environ)) as store:
        return adopt_staged(store, proposal, target, commit=commit, force=force)


def reject_proposal(proposal: str, because: str) -> StagedProposal:
    """Reject a proposal of a night. Its rule is not proposed again unless new sessions support it."""
    with SleepStore(sleep_folder(os.environ)) as store:
        return reject(store, proposal, because, datetime.now().astimezone())


def roll_back_proposal(proposal: str) -> AdoptedProposal:
    """Restore the files as they were before a proposal was adopted. If one changed since, the reverse is proposed."""
    with SleepStore(sleep_folder(os.environ)) as store:
        return roll_back(store, proposal, datetime.now().astimezone())


def mine_sessions(
    options: SleepOptions | None = None, watch: Callable[[str], None] = lambda _: None
) -> list[SessionsReport]:
    """Make rules and proved tasks of the sessions that were harvested, by repository. No model is called.

    `watch` gets the name of each session before it is tried.

    >>> [task.id for report in mine_sessions() for task in report.tasks]  # doctest: +SKIP
    ['session-0b2f6c1d9e']
    """
    chosen = (options or SleepOptions()).complete(Path.cwd(), os.environ)
    now = datetime.now().astimezone()
    with SleepStore(sleep_folder(os.environ)) as store, hold_lock(store, now):
        return run_coroutine(mine_repositories(chosen, store, now, os.environ, Path.home(), watch))


def schedule(options: SleepScheduleOptions | None = None) -> list[str]:
    """Let a night start by itself every day, or remove that. Returns what was done, in lines.

    >>> schedule(SleepScheduleOptions(at="03:00", backend="print"))  # doctest: +SKIP
    """
    chosen, host = options or SleepScheduleOptions(), Host(Path.home(), os.environ)
    if chosen.remove:
        return [f"{name}: removed" for name in remove_schedule(host)] or ["nothing was scheduled"]
    settings = SleepOptions().complete(Path.home(), os.environ)
    return install_schedule(chosen, settings, host, night_command())


def check_schedule() -> Checked:
    """Start the scheduled command as the schedule does, without the environment of a shell, as a dry run."""
    return try_schedule(Host(Path.home(), os.environ))


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


def _source(tasks: TaskSource) -> Path | str | tuple[Path | str | Task, ...]:
    return tasks if isinstance(tasks, Path | str) else tuple(tasks)


def _merge(model: type[OptionsT], options: OptionsT | None, named: Mapping[str, Any]) -> OptionsT:
    """The options with what the caller named beside them."""
    given = {key: value for key, value in named.items() if value not in (None, ())}
    return model(**{**(options.given() if options else {}), **given})


def _refuse_missing_run(options: RolloutOptions) -> None:
    if options.resume and not options.out.is_dir():
        raise UserError(f"{options.out}: there is no run to continue; expected the folder of one, or no `resume`")


def _as_tuple(given: Any) -> Sequence[Any]:
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
    return agent if type(agent).__module__.startswith("whet.agents.") else as_agent(name, agent)


def _judge_with(judges: Sequence[Judge | JudgeFunction], task: Task) -> Task:
    """The task with these judges in place of those that it names."""
    if not judges:
        return task
    specs = tuple(PythonJudge(name=name, judge=one) for name, one in _by_name("judges", judges).items())
    return task.model_copy(update={"judge": specs})
