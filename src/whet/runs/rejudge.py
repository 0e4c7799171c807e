"""Judges a stored run again, without running agents. The earlier results stay in the store, as logs."""

import json
import os
import tomllib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from whet.box import Box, Sandbox
from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway
from whet.rollout.endpoint import check_judge_models
from whet.rollout.failures import describe_ending
from whet.rollout.judging import client_spending, find_requested_calls, list_logged_calls
from whet.rollout.model_client import ModelClient
from whet.rollout.result import Flag, Result, encode_result, redact_result
from whet.runs.config import Config, judge_model_configs, model_secrets, never_called, open_models
from whet.runs.labels import Label, RunLabels, group_by_attempt
from whet.runs.options import RejudgeOptions
from whet.runs.plan import find_changes, has_new_box_judges, rollout_id, task_rows
from whet.runs.results import AttemptRecord, ResultReader, encode_judge_call
from whet.runs.run import FORK, fork_name, read_task_paths
from whet.runs.store.reply_cache import CacheUse, cache_use, open_cache
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.served import FROM_REQUEST
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.runs.verdicts import settle_anew
from whet.sandbox import DEFAULT, sandbox_named
from whet.scoring import NO_VERDICT, Cause, RankJudge, Score, TaskJudge, Work, combine, judges_of, score_labels
from whet.scoring.task_judges import check_is_judged
from whet.tasks import Task, read_tasks, resolve_env
from whet.tasks.judges import AnyJudge, HumanSpec, Judges, RankSpec, locate_modules
from whet.text.redact import Redactor, secrets_in
from whet.validation_errors import explain, user_error


class JudgeFile(BaseModel):
    """A file with judges to use instead of those of the tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: Judges = ()
    """They replace the judges that the tasks name."""
    rank: tuple[RankSpec, ...] = ()
    """Judges that see all samples of a task together."""
    human: tuple[HumanSpec, ...] = ()
    """Labels that people have set, as scores."""

    @model_validator(mode="before")
    @classmethod
    def _add_kinds(cls, data: Any) -> Any:
        """A table of `rank` or `human` need not repeat its kind."""
        if not isinstance(data, dict):
            return data
        lists = {kind: data[kind] for kind in ("rank", "human") if isinstance(data.get(kind), list)}
        named = {
            kind: [{"kind": kind, **one} if isinstance(one, dict) else one for one in tables]
            for kind, tables in lists.items()
        }
        return {**data, **named}

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the judges that are not judges of a task."""
        specs: tuple[RankSpec | HumanSpec, ...] = (*self.rank, *self.human)
        return {spec.name or spec.kind: spec.weight for spec in specs}


@dataclass(frozen=True, slots=True)
class Judged:
    """One rollout was judged again, or was not."""

    row: RolloutRow
    before: Score
    after: Score
    kept: tuple[str, ...]
    """Judges whose earlier score was kept, because they need the box."""
    skipped: str = ""
    """Why there was nothing to judge."""
    rerun: bool = False
    """It must be run again, because judges have changed that need its box."""


@dataclass(frozen=True, slots=True)
class _Case:
    row: RolloutRow
    attempt: int
    result: Result
    work: Work
    new_tests: bool
    """The judges that need its box have changed since."""


async def rejudge(
    request: RejudgeOptions, config: Config, watch: Callable[[Judged], None], env: Mapping[str, str] = os.environ
) -> None:
    """Judge every rollout that has a result again, and store the new result."""
    others = read_judges(request.judge) if request.judge else JudgeFile()
    tasks = _tasks(request)
    if others.judge:
        tasks = {name: with_judges(task, others.judge) for name, task in tasks.items()}
    for task in tasks.values():
        check_is_judged(task)
    specs = [*(judge for task in tasks.values() for judge in task.judge), *others.rank]
    judge_model = request.judge_model or config.defaults.judge_model
    configs = judge_model_configs(specs, judge_model, config)
    use = cache_use(request.cache)
    if use is CacheUse.REPLAY_ONLY:
        configs = {name: never_called(model, env) for name, model in configs.items()}
    known = [secret for name, model in configs.items() for secret in model_secrets(name, model, env)]
    redactor = Redactor([*known, *secrets_in(env)])
    async with AsyncExitStack() as opened:
        cache = await opened.enter_async_context(open_cache(use, env))
        models = await opened.enter_async_context(open_models(configs, env))
        gateway = await opened.enter_async_context(Gateway(redactor, request.limits, cache))
        writer = await opened.enter_async_context(StoreWriter(request.run))
        if use is CacheUse.OFF:
            await check_judge_models(gateway, models)
        sandbox = sandbox_named(request.sandbox or _sandbox_of(request.run))
        if any(_runs_in_empty_box(judge) for task in tasks.values() for judge in task.judge):
            await sandbox.check()
        labels = group_by_attempt(RunLabels(request.run).current()) if others.human else {}
        for group in _cases(request.run, tasks, env, watch):
            judgings = [_Judging(case, gateway, models, judge_model, writer, sandbox) for case in group]
            async with AsyncExitStack() as clients:
                works = [await clients.enter_async_context(judging) for judging in judgings]
                ranks = await _ranks(others.rank, [judging.case for judging in judgings], works)
                for judging, work, ranked in zip(judgings, works, ranks, strict=True):
                    labelled = _score_labels(others.human, labels.get(judging.case.attempt, ()))
                    watch(await judging.judge(work, ranked | labelled, others, redactor))
        if not others.weights:
            await writer.do(partial(settle_anew, tasks=tasks))
        if not others.judge:
            await writer.do(partial(_adopt_judges, tasks=tasks))


class _Judging:
    """Judges one rollout again. As a context manager it owns the sessions of the judge models."""

    def __init__(
        self,
        case: _Case,
        gateway: Gateway,
        models: Mapping[str, Any],
        default: str | None,
        writer: StoreWriter,
        sandbox: Sandbox,
    ) -> None:
        self.case, self._writer, self._default, self._sandbox = case, writer, default, sandbox
        # Each time has a name of its own: earlier judge calls stay in the store.
        name = f"judge {case.attempt}-{case.result.judged + 1}"
        self._client = ModelClient(gateway, models, default, self._record, name, case.row.sample)

    async def __aenter__(self) -> Work:
        await self._client.__aenter__()
        return replace(self.case.work, referee=self._client)

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__()

    async def _record(self, exchange: Exchange) -> None:
        await self._writer.do(lambda store: store.add_log(self.case.attempt, *encode_judge_call(exchange)))

    async def judge(self, work: Work, given: Mapping[str, Score], others: JudgeFile, redactor: Redactor) -> Judged:
        """Judge, and store. `given`: the scores of the judges that are not judges of the task."""
        case, before = self.case, self.case.result
        judges = judges_of(work.task)
        kept = [] if case.new_tests else [judge.name for judge in judges if judge.spec.needs_box]
        judgements: dict[str, Score] = {}
        async with self._box_for(judges) as box:
            for judge in judges:
                if judge.spec.needs_box:
                    judgements[judge.name] = _CHANGED if case.new_tests else _earlier_score(judge, before)
                else:
                    judgements[judge.name] = await judge.judge(replace(work, box=box))
        weights = {judge.name: judge.weight for judge in judges}
        judgements |= given
        ending = describe_ending(before.report, before.limit, before.changes)
        score = combine(judgements, weights | others.weights, ending)
        cost = client_spending(self._client) if self._client.sessions else None
        result = before.model_copy(
            update={
                "score": score,
                "judgements": judgements,
                "judging": cost + before.judging if cost and before.judging else cost or before.judging,
                "judged": before.judged + 1,
                "flags": self._flags(judgements, others.rank, kept),
            }
        )
        result = redact_result(result, redactor)
        body = encode_result(result)
        value, cause = result.score.value, result.score.cause
        await self._writer.do(lambda store: store.replace_result(case.attempt, body, value=value, cause=cause))
        rerun = case.new_tests and value is None
        if rerun:
            await self._writer.do(lambda store: store.reopen([case.row.id]))
        return Judged(case.row, before.score, result.score, tuple(kept), rerun=rerun)

    @asynccontextmanager
    async def _box_for(self, judges: Sequence[TaskJudge]) -> AsyncIterator[Box | None]:
        """An empty sealed box, if a judge runs commands but does not need the files of the agent."""
        if not any(_runs_in_empty_box(judge.spec) for judge in judges):
            yield None
            return
        task = self.case.work.task
        async with self._sandbox.open(task.limits, task.workdir) as box:
            await box.seal()
            yield box

    def _flags(
        self, judgements: Mapping[str, Score], ranks: Sequence[RankSpec], kept: Sequence[str]
    ) -> tuple[str, ...]:
        """The flags of the rollout. Those that depend on its judges are computed again."""
        row, before = self.case.row, self.case.result
        ranked_by = {
            spec.model or self._default for spec in ranks if judgements[RankJudge(spec).name].value is not None
        }
        by_itself = before.spending.captured and row.model in {*self._client.sessions, *ranked_by}
        others = tuple(flag for flag in before.flags if flag not in {Flag.SELF_JUDGED, NO_VERDICT})
        by_itself = by_itself or bool(kept and Flag.SELF_JUDGED in before.flags)
        undecided = any(score.is_undecided for score in judgements.values())
        return (*others, *((Flag.SELF_JUDGED,) if by_itself else ()), *((NO_VERDICT,) if undecided else ()))


def _runs_in_empty_box(judge: AnyJudge) -> bool:
    return judge.runs_in_box and not judge.needs_box


def _sandbox_of(run: Path) -> str:
    with Store.open_read(run) as store:
        return store.get("sandbox") or DEFAULT


_CHANGED = Score.missing(
    Cause.JUDGE,
    "it has changed, and it needs the agent's box, which no longer exists; whet run with --resume runs it again",
    unrelated=True,
)


def _earlier_score(judge: TaskJudge, before: Result) -> Score:
    """The earlier score of a judge that needs the box, which no longer exists."""
    said = before.judgements.get(judge.name)
    if said is not None:
        return said
    reason = "it needs the agent's box, which no longer exists; run the rollout again"
    return Score.missing(Cause.JUDGE, reason, unrelated=True)


async def _ranks(ranks: Sequence[RankSpec], cases: Sequence[_Case], works: Sequence[Work]) -> list[dict[str, Score]]:
    """The scores of the judges that see all samples of a task together, for each sample."""
    said: list[dict[str, Score]] = [{} for _ in cases]
    for judge in map(RankJudge, ranks):
        for mine, score in zip(said, await judge.judge_group(works), strict=True):
            mine[judge.name] = score
    return said


def _score_labels(specs: Sequence[HumanSpec], labels: Iterable[Label]) -> dict[str, Score]:
    """The labels of an attempt as scores. A label of a single step says nothing of the whole."""
    said: dict[str, list[tuple[str, str]]] = {}
    for one in labels:
        if one.step is None and one.value is not None:
            said.setdefault(one.name, []).append((one.author, one.value))
    return {spec.name or spec.kind: score_labels(spec, said.get(spec.label, ())) for spec in specs}


def _cases(
    run: Path, tasks: Mapping[str, Task], env: Mapping[str, str], watch: Callable[[Judged], None]
) -> Iterable[list[_Case]]:
    """The rollouts that can be judged again, task by task. The others are reported to `watch`."""
    with Store.open_read(run) as store:
        plan, rows = list(ResultReader(store)), {row.id: row for row in store.tasks()}
        for name, task in tasks.items():
            group = []
            for rollout in plan:
                row, attempt = rollout.row, rollout.counting
                if row.task != name or attempt is None or (result := attempt.result) is None:
                    continue
                if reason := _why_not_judged(result):
                    watch(Judged(row, result.score, result.score, (), reason))
                else:
                    changed = has_new_box_judges(rows[name], task)
                    group.append(_Case(row, attempt.id, result, _work(task, result, attempt, env), changed))
            if group:
                yield group


def _why_not_judged(result: Result) -> str:
    if result.report is None:
        return "the agent never ran"
    if result.score.cause not in {None, Cause.JUDGE, Cause.UNJUDGED}:
        return f"there is no work to judge: {result.score.reason}"
    return ""


def _work(task: Task, result: Result, attempt: AttemptRecord, env: Mapping[str, str]) -> Work:
    assert result.report is not None
    asks_for_calls = any(judge.needs_calls for judge in task.judge)
    exchanges = attempt.exchanges() if asks_for_calls else ()
    asked = [call for exchange in exchanges for call in find_requested_calls(exchange)]
    return Work(
        task,
        None,
        result.report.text,
        resolve_env({**task.env, **task.verify_env}, env, task.origin),
        structured=result.report.answer,
        calls=(*asked, *list_logged_calls(result.tool_uses)),
        captured=result.spending.captured,
        changes=result.changes,
        unseen=result.unseen,
        stop=result.report.stop,
        skill_read=result.skill.read if result.skill else False if result.spending.captured else None,
    )


def read_judges(file: Path) -> JudgeFile:
    """The judges of a TOML or JSON file."""
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text) if file.suffix.lower() == ".json" else tomllib.loads(text)
        given = JudgeFile.model_validate(data)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; expected a file with judges") from error
    except ValidationError as error:
        raise user_error(explain(error, str(file), JudgeFile)) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: {error}; expected TOML, or JSON in a file of that ending") from error
    if not given.judge and not given.weights:
        raise UserError(f"{file}: names no judge; expected [[judge]], [[rank]] or [[human]]")
    return given.model_copy(update={"judge": locate_modules(given.judge, file.parent)})


def with_judges(task: Task, judges: Judges) -> Task:
    """A task with other judges; UserError when it lacks what they need."""
    try:
        return Task.model_validate({**dict(task), "judge": judges})
    except ValidationError as error:
        raise user_error(explain(error, task.origin, Task)) from error


def _tasks(request: RejudgeOptions) -> dict[str, Task]:
    """The tasks of the run, with their present judges. UserError when the work that they ask for has changed."""
    with Store.open_read(request.run) as store:
        rows = [row for row in store.tasks() if row.origin != FROM_REQUEST]
        source = request.tasks or read_task_paths(store)
    if not source:
        raise UserError(f"{request.run}: the run does not record where its tasks are; set `tasks`")
    found = {task.id: task for task in read_tasks(source)}
    for row in rows:
        if row.id not in found:
            raise UserError(f"{_name(source)}: has no task '{row.id}', which the run has; name the place with `tasks`")
        _refuse_another_task(row, found[row.id], request.run)
    return {row.id: found[row.id] for row in rows}


def _name(source: Sequence[Path | Task]) -> str:
    return ", ".join(str(one) for one in source if isinstance(one, Path)) or "`tasks`"


def _adopt_judges(store: Store, tasks: Mapping[str, Task]) -> None:
    """Store the tasks as they are judged now, so that the run can be resumed with them."""
    about = store.get(FORK)
    forked = fork_name(about) if about else ""
    for row in store.tasks():
        task = tasks.get(row.id)
        if task is None or row.digest == task.digest:
            continue
        before = task.model_copy(update={"digest": row.digest})
        rollouts = [one for one in store.rollouts() if one.task == row.id]
        arms = {one.id: (one.agent, one.model, one.skill, one.sample, forked) for one in rollouts}
        (new,) = task_rows([task])
        if arms.keys() <= store.served_groups(arms).keys():
            store.change_task(new, {})  # clients know its rollouts by their names
            continue
        if any(name != rollout_id(before, *arm) for name, arm in arms.items()):
            continue  # its rollouts are named by another rule, as those of `whet sharpen` are
        store.change_task(new, {name: rollout_id(task, *arm) for name, arm in arms.items()})


def _refuse_another_task(row: TaskRow, task: Task, run: Path) -> None:
    if changed := find_changes(row, task):
        raise UserError(
            f"{task.origin}: '{changed[0]}' of task '{row.id}' is not what it was in {run}; "
            "how it is judged may change, what it asks for may not"
        )
