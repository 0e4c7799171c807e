"""The rollout runner: runs skills on tasks by real rollouts, each paid for once.

A rollout that is stored is answered from its store, so a run that was killed is simply started again. Search, exam,
test and proposals each have their own store, which is a plain run folder.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from whet.agents import AnyAgent
from whet.agents.cli import CliAgent
from whet.errors import UserError
from whet.exchange import CallError, Exchange
from whet.gateway import RETRIED, Model
from whet.gateway.prices import Price, price_for
from whet.rollout.endpoint import check_judge_models
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.plan import skill_row
from whet.runs.resources import limits_of, open_resources
from whet.runs.scheduler import (
    HOPELESS,
    MAX_ATTEMPTS,
    AttemptWatch,
    Ended,
    FailureWatch,
    Stopped,
    explain_disk_errors,
    open_store,
    run_until_scored,
)
from whet.runs.stats.use import Unit
from whet.runs.store.exchanges import ExchangeHead
from whet.runs.store.reply_cache import CacheUse
from whet.runs.store.schema import AttemptRow, RolloutRow
from whet.runs.store.store import DATABASE, Store
from whet.runs.store.writer import StoreWriter
from whet.scoring import Cause
from whet.skill import Skill
from whet.skills.documents.store import SkillStore
from whet.skills.measurement import Execution, NotMeasured, Outcome, RolloutKey, RunPart, Side
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.execution import read_execution
from whet.skills.rollouts.spending import BudgetTracker, read_spending, total_spent
from whet.tasks import Task

FORGOTTEN = "forgotten"
"""Key of the failed attempts that a store ignores: they ended a run, and no decision rests on them."""


def tries_of(part: RunPart) -> int:
    """Maximum tries of a rollout that fails for technical reasons. Where two skills are compared, a failure may depend
    on the skill: a second try would favour the skill that fails more often."""
    return 1 if part in {RunPart.EXAM, RunPart.TEST} else MAX_ATTEMPTS


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The agent and the model that do the tasks."""

    agent: str
    program: AnyAgent
    model: Model


class RolloutRunner:
    """Answers a key from its store, or by a rollout. Open for the time of one run."""

    def __init__(
        self,
        arm: AgentSetup,
        tasks: Mapping[str, Task],
        skills: SkillStore,
        stores: Mapping[RunPart, "_PartStore"],
        resources: RunResources,
        concurrency: int,
        watch: AttemptWatch,
        account: BudgetTracker,
    ) -> None:
        self._arm, self._tasks, self._skills = arm, tasks, skills
        self._stores, self._watch = stores, watch
        self.resources, self.account = resources, account
        self._room = asyncio.Semaphore(min(concurrency, arm.model.concurrency * len(arm.model.urls)))
        self._failures = FailureWatch()
        self._missing: set[RolloutKey] = set()
        """Keys without a score that no decision rests on yet."""
        self._outage: set[RolloutKey] = set()
        """Keys that look like an outage, and keys whose rollout was interrupted."""
        self._in_a_row: dict[RolloutKey, str] = {}
        """Outage keys since the last score, with their tasks."""
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __call__(self, task: str, skill: str | None, key: RolloutKey) -> Outcome:
        """Return the stored outcome of this key, or run the rollout. `skill` is a digest; None is no skill.
        NotMeasured when every rollout fails."""
        part = key.part
        part_store = self._stores[part]
        row = part_store.row(key, task, self._arm, skill)
        known = part_store.known.get(row.id)
        if known is not None and known.outcome is not None:
            return known.outcome
        under_way = asyncio.current_task()
        assert under_way is not None
        self._under_way.add(under_way)
        try:
            async with self._room:
                self.account.refuse(part)
                with self.account.at_work(part):
                    return await self._roll_out(key, part_store, row, known.failed if known else 0)
        except BaseException:
            self._outage.add(key)
            raise
        finally:
            self._under_way.discard(under_way)

    async def _roll_out(self, key: RolloutKey, part_store: "_PartStore", row: RolloutRow, failed: int) -> Outcome:
        skill = self._skills.get(row.skill) if row.skill else None
        await part_store.writer.do(lambda store: _add(store, row, skill))
        rollout = Rollout(row.id, self._tasks[row.task], self._arm.program, self._arm.model, skill, row.sample)
        part = key.part

        def ended(event: Ended | Stopped) -> None:
            if isinstance(event, Ended):
                self.account.add(part, event.result)
            self._watch(event)

        result = await run_until_scored(row, rollout, self.resources, part_store.writer, ended, failed, tries_of(part))
        if result.score.cause is Cause.INTERRUPTED:
            self.account.refuse(part)
        outcome = outcome_of(result)
        part_store.known[row.id] = _Known(outcome, 0)
        if isinstance(outcome, Cause):
            self._missing.add(key)
        self._count_failure(row, result)
        if not isinstance(outcome, Cause):
            self._in_a_row.clear()
        elif _is_outage(result, await part_store.writer.do(lambda store: _last_calls(store, row))):
            self._outage.add(key)
            self._in_a_row[key] = row.task
            self._refuse_outage(result)
        return outcome

    def _count_failure(self, row: RolloutRow, result: Result) -> None:
        try:
            self._failures.learn(row, result)
        except UserError as hopeless:
            raise NotMeasured(str(hopeless), self._missing) from hopeless

    def _refuse_outage(self, result: Result) -> None:
        """NotMeasured when model or machine fail on task after task: that says nothing about a skill. In an exam a task
        counts only when both skills failed: a failure of one skill may be its own fault."""
        tasks = {self._in_a_row[key] for key in drop_half_pairs(self._in_a_row)}
        if len(tasks) >= HOPELESS:
            in_a_row = f"rollouts on {len(tasks)} tasks in a row failed"
            raise NotMeasured(f"{in_a_row}, whatever their skills: {result.score.reason}", self._outage)

    def mark_decided(self) -> None:
        """A decision now rests on everything so far, so none of it may be tried again."""
        self._missing.clear()
        self._outage.clear()
        self._in_a_row.clear()

    async def read_execution(self, key: RolloutKey, guard: str | None = None) -> Execution:
        """How the rollout of a key was executed, with the score of its guard if the run has one."""
        return await self._stores[key.part].writer.do(lambda store: read_execution(store, key.rollout_id, guard))

    async def count_rollouts(self) -> int:
        """Number of rollouts with an outcome in all parts, read from the stores: one may have been interrupted just
        after it was stored."""
        records = [
            await part_store.writer.do(partial(on_record, part=part)) for part, part_store in self._stores.items()
        ]
        return sum(known.outcome is not None for rows in records for _, known in rows)

    async def describe_setup(self) -> dict[str, Any]:
        """What both skills of every comparison have in common, in JSON."""
        agent, model = self._arm.program, self._arm.model
        version = None
        if isinstance(agent, CliAgent):
            version = (await asyncio.to_thread(agent.find_program)).version
        return {
            "agent": {"name": self._arm.agent, "version": version, "program": agent.model_dump(mode="json")},
            "model": {
                "name": model.name,
                "upstream": model.upstream_name,
                "dialect": model.dialect,
                "set": {key: value.decode() for key, value in model.set},
                "drop": list(model.drop),
                "max_tokens": model.max_tokens,
                "allow": sorted({*model.allow, *model.allow_fields, *model.allow_tools, *model.allow_parts}),
            },
            "sandbox": self.resources.sandbox.name,
            "judge_model": self.resources.judge_model,
        }

    def agent_setup(self, agent: str | None, model: str | None) -> AgentSetup:
        """An agent and a model by name; by default those under test."""
        agent, model = agent or self._arm.agent, model or self._arm.model.name
        return AgentSetup(agent, self.resources.agents[agent], self.resources.models[model])

    def writer(self, part: RunPart) -> StoreWriter:
        """The writer of a part's store."""
        return self._stores[part].writer

    async def forget(self, keys: Iterable[RolloutKey]) -> None:
        """Let failed rollouts be tried again when the run is resumed: these keys, and all that look like an outage. No
        decision may rest on them. In an exam, a rollout that failed for one skill only stays failed."""
        candidates = [key for key in {*keys, *self._outage} if await self._has_failed(key)]
        lost: dict[RunPart, list[str]] = {}
        for key in drop_half_pairs(candidates):
            lost.setdefault(key.part, []).append(key.rollout_id)
        for part, rollouts in lost.items():
            await self._stores[part].writer.do(partial(_forget, rollouts))

    async def _has_failed(self, key: RolloutKey) -> bool:
        """Whether a try of this key failed. An interrupted try did not."""
        attempts = await self._stores[key.part].writer.do(lambda store: store.attempts_of(key.rollout_id))
        return any(one.cause not in {None, Cause.INTERRUPTED} for one in attempts)

    async def close(self) -> None:
        """Cancel rollouts that are still running: when a run fails, nobody waits for them."""
        left = [task for task in self._under_way if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@asynccontextmanager
async def open_runner(
    options: RunOptions,
    parts: Mapping[RunPart, Sequence[Task]],
    config: Config,
    skills: SkillStore,
    env: Mapping[str, str],
    watch: AttemptWatch,
    budget: Budget,
    begin: Callable[[], None],
) -> AsyncIterator[RolloutRunner]:
    """Open the runner of a new or resumed run folder. `parts` are the tasks of each store. The first agent and the
    first model of the options do the tasks. `begin` is called after all checks, before anything is written."""
    folder = options.out
    tasks = {task.id: task for part in parts.values() for task in part}
    # Every rollout must be fresh, so no cache may answer it.
    limits = budget.within(limits_of(options, config))
    options = options.model_copy(update={"cache": CacheUse.OFF, "limits": limits})
    async with open_resources(options, list(tasks.values()), config, env) as resources, AsyncExitStack() as opened:
        agent, model = options.agents[0], resources.models[options.models[0]]
        prices = {name: price_for(one) for name, one in resources.models.items()}
        _refuse_free(budget, model.name, prices[model.name])
        about = {
            "sandbox": resources.sandbox.name,
            "agents": resources.dump_agents(),
            "tasks": options.task_paths,
        }
        await check_judge_models(resources.gateway, resources.judge_models)
        begin()
        records = {part: _open_part(folder / part, part, given, about) for part, given in parts.items()}
        before = {str(part): read_spending(folder / part, prices)[0] for part in parts}
        resources.gateway.add_spent(total_spent(before.values()))
        stores = {}
        for part, (rows, known) in records.items():
            opened.enter_context(explain_disk_errors(folder / part))
            writer = await opened.enter_async_context(StoreWriter(folder / part))
            stores[part] = _PartStore(writer, rows, known)
        arm = AgentSetup(agent, resources.agents[agent], model)
        # Proposers use the budget of the search.
        account = BudgetTracker(folder, budget, resources.gateway, before, RunPart.SEARCH)
        runner = RolloutRunner(arm, tasks, skills, stores, resources, options.concurrency, watch, account)
        opened.push_async_callback(runner.close)
        try:
            yield runner
        except NotMeasured as nothing:
            await runner.close()
            await runner.forget(nothing.keys)
            raise


def _refuse_free(budget: Budget, model: str, price: Price | None) -> None:
    if budget.unit is Unit.DOLLARS and price is not None and not (price.input or price.output):
        raise UserError(f"`budget` is {budget}, but model '{model}' costs nothing; expected rollouts, tokens or hours")


def drop_half_pairs(keys: Collection[RolloutKey]) -> list[RolloutKey]:
    """Drop the keys whose counterpart in the same pair is not among the keys. Keys without a pair stay.

    >>> one, other = (RolloutKey.exam("1f0c", 3, side, "5ec7") for side in Side)
    >>> drop_half_pairs([one]), drop_half_pairs([one, other]) == [one, other]
    ([], True)
    """
    sides = {(key.part, key.pair, key.side) for key in keys}
    both = {(part, pair) for part, pair, _ in sides if all((part, pair, side) in sides for side in Side)}
    return [key for key in keys if key.pair is None or (key.part, key.pair) in both]


def outcome_of(result: Result) -> Outcome:
    """The score of a rollout, or the cause of a missing score."""
    if result.score.value is not None:
        return result.score.value
    assert result.score.cause is not None
    return result.score.cause


def _is_outage(result: Result, exchanges: Iterable[Exchange | ExchangeHead]) -> bool:
    """Whether the sandbox did not open, or the model's endpoint never answered."""
    if "agent" not in result.seconds:
        return True
    return result.score.cause is Cause.MODEL and all(map(_is_unanswered, exchanges))


def _is_unanswered(exchange: Exchange | ExchangeHead) -> bool:
    """Whether the endpoint was down or overloaded."""
    overloaded = exchange.error is CallError.STATUS and exchange.status in RETRIED
    return exchange.error is CallError.REFUSED or overloaded


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store has of a rollout."""

    outcome: Outcome | None
    """None while it may be tried again."""
    failed: int
    """Number of failed tries."""


class _PartStore:
    """The store of one part: its writer, its rows and its known outcomes."""

    def __init__(self, writer: StoreWriter, rows: Collection[RolloutRow], known: dict[str, _Known]) -> None:
        self.writer, self.known = writer, known
        self._rows = {row.id: row for row in rows}
        self._samples: dict[tuple[str, str | None], int] = {}
        for row in rows:
            self._samples[row.task, row.skill] = max(self._samples.get((row.task, row.skill), 0), row.sample + 1)

    def row(self, key: RolloutKey, task: str, arm: AgentSetup, skill: str | None) -> RolloutRow:
        """The row of a key. A new row is the next sample of its task and skill."""
        name = key.rollout_id
        if name not in self._rows:
            sample = self._samples.get((task, skill), 0)
            self._samples[task, skill] = sample + 1
            self._rows[name] = RolloutRow(name, len(self._rows), task, arm.agent, arm.model.name, skill, sample)
        row = self._rows[name]
        assert (row.task, row.skill) == (task, skill), "a key stands for one rollout"
        return row


def _open_part(
    folder: Path, part: RunPart, tasks: Sequence[Task], about: Mapping[str, object]
) -> tuple[list[RolloutRow], dict[str, _Known]]:
    with open_store(folder, tasks, resume=(folder / DATABASE).is_file(), about=about) as store:
        rows = on_record(store, part)
    return [row for row, _ in rows], {row.id: known for row, known in rows}


def on_record(store: Store, part: RunPart) -> list[tuple[RolloutRow, _Known]]:
    forgotten = set(store.get(FORGOTTEN) or ())
    return [(row, _on_record(attempts, part, forgotten)) for row, attempts in store.attempts_by_rollout()]


def _on_record(attempts: Sequence[AttemptRow], part: RunPart, forgotten: Collection[int]) -> _Known:
    """The outcome of attempts. An attempt that whet interrupted, or that had a wrong API key, is not a try."""
    tries = [
        attempt
        for attempt in attempts
        if attempt.result is not None
        and attempt.cause not in {Cause.INTERRUPTED, Cause.AUTH}
        and attempt.id not in forgotten
    ]
    if not tries:
        return _Known(None, 0)
    last = tries[-1]
    if last.cause is not None and last.cause.worth_retrying and len(tries) < tries_of(part):
        return _Known(None, len(tries))
    outcome = last.cause if last.value is None else last.value
    return _Known(outcome, len(tries))


def _add(store: Store, row: RolloutRow, skill: Skill | None) -> None:
    store.add_skills([skill_row(skill)] if skill else [])
    store.add_rollouts([row])


def _last_calls(store: Store, row: RolloutRow) -> list[ExchangeHead]:
    return store.exchange_heads(store.attempts_of(row.id)[-1].id)


def _forget(rollouts: Iterable[str], store: Store) -> None:
    failed = [one.id for rollout in rollouts for one in store.attempts_of(rollout) if one.value is None]
    store.set(FORGOTTEN, [*(store.get(FORGOTTEN) or ()), *failed])
