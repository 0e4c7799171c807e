"""The flow of `whet sharpen`: `SharpenRun.run` calls the steps in order. The command line and the API start here."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.scheduler import refuse_existing
from whet.runs.stats.summary import tally, total
from whet.runs.stats.use import Piloted, Unit, format_amount, read_use
from whet.runs.store.store import Store
from whet.skill import read_skill
from whet.skills.certificates.certificate import Certificate, make_record, make_shortening
from whet.skills.certificates.text import write_certificate
from whet.skills.documents.document import Policy
from whet.skills.documents.history import ACCEPTED, BEST, LEADER, SHORTENED, SKILLS, TERMS, ExamSummary, History
from whet.skills.documents.store import SkillStore, copy_skill
from whet.skills.gate.alpha_ledger import LedgerEntry, count_uses, enter
from whet.skills.gate.gate import ExamResult, ExamSetting
from whet.skills.gate.heuristics import RuleComparison
from whet.skills.gate.journal import ExamJournalFile
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.plan import MANY, GatePlan
from whet.skills.gate.seed import fix_seed
from whet.skills.measurement import OutOfBudget, RolloutKey, RunPart, Verdict
from whet.skills.proposers.base import Proposer, SearchStep
from whet.skills.proposers.driver import ProposerDriver
from whet.skills.proposers.schedule import ProposalSchedule, ScheduleOptions
from whet.skills.report.files import write_report
from whet.skills.results import SharpenResult
from whet.skills.rollouts.audit import audit, detectable_lift
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.final_test import FinalTest, UsedError, run_final_test
from whet.skills.rollouts.guard import read_guarded, refuse_unknown_guard
from whet.skills.rollouts.runner import RolloutRunner, open_runner
from whet.skills.rollouts.splits import split_tasks
from whet.skills.rollouts.terms import (
    MADE_WITH,
    common_terms,
    compute_once,
    fix_terms,
    replace_budget,
    resolve_budget,
    write_raised,
)
from whet.skills.search.shorten import Removal
from whet.skills.search.two_tiers import SearchResult, SearchSetting, search_and_certify
from whet.skills.sharpen.adopt import write_origin
from whet.skills.sharpen.budget_split import BudgetSplit, BudgetSplitter
from whet.skills.sharpen.events import AuditFinished, SharpenStarted, SharpenWatch
from whet.skills.sharpen.options import refuse_unknown_sections
from whet.skills.sharpen.proposer_runtime import ProposerSpec
from whet.version import __version__

DRAFTS = "drafts"
"""Folder of all proposals."""
ROLLOUTS = "rollouts.json"
"""How many rollouts a budget in another unit was found to cover."""


@dataclass(frozen=True, slots=True)
class SharpenRequest:
    """What to sharpen, on which tasks, and within which budget."""

    skill: Path
    run: RunOptions
    """Tasks, agent, model and run folder."""
    budget: Budget
    """For everything that the run uses."""
    plan: GatePlan
    """Its own budget is set after the audit."""
    proposer: str
    """The name of the proposer, for the record."""
    policy: Policy = field(default_factory=Policy)
    preferences: str = ""
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    also: Path | None = None
    """A document that agents always read, to be sharpened together with the skill."""
    known_good: Path | None = None
    """Positive control: a skill known to be better. If the audit does not see it, the tasks measure nothing."""
    seed: int | None = None
    """Of the order of exams; drawn at random when the user sets none."""
    force: bool = False
    """Run even if the budget is too small to detect a realistic improvement."""
    check_prompt: Callable[[str], None] = lambda _: None
    """Raises an error, which ends the run, on a prompt of a proposer that must not be sent to its model."""


async def sharpen_skill(
    request: SharpenRequest,
    proposer: Proposer | ProposerSpec,
    config: Config,
    watch: SharpenWatch = lambda _: None,
    env: Mapping[str, str] = os.environ,
) -> SharpenResult:
    """Sharpen a skill, or resume a run that was interrupted.

    NotMeasured when too many rollouts failed to decide anything; the run can be resumed then.
    """
    return await SharpenRun(request, proposer, config, watch, env).run()


def plan_budget(request: SharpenRequest) -> BudgetSplitter:
    """Read the skill, split the tasks and prepare the split of the budget. UserError when a budget in rollouts is too
    small."""
    read_skill(request.skill, request.also)
    known_good = None if request.known_good is None else read_skill(request.known_good).digest
    splits = split_tasks(request.run.read_tasks(), request.plan.seed)
    splitter = BudgetSplitter(request.budget, request.plan, splits, known_good)
    if request.budget.rollouts is not None:
        splitter.split(request.budget.rollouts)
    return splitter


class SharpenRun:
    """One sharpen run: the fields are what its steps share, the methods are the steps in their order."""

    runner: RolloutRunner
    made_with: dict[str, Any]
    split: BudgetSplit
    audited: AuditFinished

    def __init__(
        self,
        request: SharpenRequest,
        proposer: Proposer | ProposerSpec,
        config: Config,
        watch: SharpenWatch,
        env: Mapping[str, str],
    ) -> None:
        """Read and check everything that can be checked before anything is written."""
        self.proposer, self.config, self.watch, self.env = proposer, config, watch, env
        self.folder = request.run.out
        self.start = read_skill(request.skill, request.also)
        if isinstance(proposer, ProposerSpec):
            proposer.check(request.run, config)
        refuse_unknown_sections(request.policy, self.start)
        refuse_existing(self.folder, resume=request.run.resume)
        # A budget may be raised when a run is resumed. What was planned with the first budget stays as it is.
        first, self.budget = resolve_budget(self.folder / TERMS, request.budget)
        if not (self.folder / DRAFTS).is_dir():
            first = self.budget  # nothing was proposed yet, so nothing was planned with another budget
        self.request = replace(request, budget=first, plan=replace(request.plan, budget=first.rollouts or 0))
        self.splitter = plan_budget(self.request)
        self.splits = self.splitter.splits
        self.validation = {task.id: task.digest for task in self.splits.validation}
        refuse_unknown_guard(request.plan.guard, (*self.splits.train, *self.splits.validation))
        self.skills = SkillStore(self.folder / SKILLS)

    async def run(self) -> SharpenResult:
        async with self._open():
            await self.pilot()
            await self.audit()
            found = await self.search()
            tested = await self.test(found)
            # After a hard stop, not every rollout that was planned was done, so they are counted.
            planned = found.spent + self.split.audit + (2 * len(tested.before) if tested else 0)
            rollouts = await self.runner.count_rollouts() if self.runner.account.stopped else planned
            result = self._result(found, self.certify(found, tested), rollouts)
        await asyncio.to_thread(self.write, result)
        return result

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        """Open the stores and the gateway of the run."""
        splits, options = self.splits, self.request.run
        parts = {RunPart.SEARCH: splits.train, RunPart.EXAM: splits.validation, RunPart.TEST: splits.test}
        options = options.model_copy(update={"skills": (self.request.skill,)})
        if isinstance(self.proposer, ProposerSpec):
            parts[RunPart.PROPOSALS] = ()
            options = self.proposer.add_to(options)
        async with open_runner(
            options, parts, self.config, self.skills, self.env, self.watch, self.budget, self._begin
        ) as self.runner:
            self.made_with = await self.runner.describe_setup()
            fix_terms(self.folder / MADE_WITH, self.made_with)
            yield

    def _begin(self) -> None:
        """Write the terms of the run. Called once it is certain that the run can be opened."""
        known_good = [read_skill(self.request.known_good)] if self.request.known_good else []
        for skill in (self.start, *known_good):
            self.skills.keep(skill)
        self.seed = fix_seed(self.folder / RunPart.EXAM, self.request.seed)
        if replace_budget(self.folder / TERMS, self.request.budget):
            (self.folder / ROLLOUTS).unlink(missing_ok=True)
        fix_terms(self.folder / TERMS, self._terms())
        write_raised(self.folder / TERMS, self.request.budget, self.budget)
        write_origin(self.folder, self.request.skill, self.request.also)
        used = count_uses(self.folder, self.validation, self.env)
        self.watch(SharpenStarted(self.folder, self.start, self.splits, self.budget, used, self.seed))

    def _terms(self) -> dict[str, object]:
        request, splits = self.request, self.splits
        sides = {"train": splits.train, "validation": splits.validation, "test": splits.test}
        return {
            "skill": self.start.digest,
            **common_terms(request.run, request.budget, request.plan),
            "proposer": request.proposer,
            "optimizer": asdict(self.proposer) if isinstance(self.proposer, ProposerSpec) else None,
            "preferences": request.preferences,
            "policy": request.policy.model_dump(mode="json"),
            "known_good": self.splitter.known_good,
            "course": request.schedule.as_terms(),
            "seed": self.seed.commitment,
            "tasks": {name: {task.id: task.digest for task in side} for name, side in sides.items()},
        }

    async def pilot(self) -> None:
        """Run the first rollouts of the audit, and report what the whole run will use. They are on training tasks, and
        the audit uses their results."""
        run = self.request.run
        if not run.pilot or run.resume:
            return
        skill = self.start.digest
        tasks = [task.id for task in self.splits.train[: run.pilot]]
        try:
            await asyncio.gather(*(self.runner(task, skill, RolloutKey.search(1, task, skill)) for task in tasks))
        except OutOfBudget:
            return  # the audit says so
        use = await asyncio.to_thread(read_use, self.folder / RunPart.SEARCH, run.concurrency)
        self.watch(Piloted(use, self.budget.rollouts))

    async def audit(self) -> None:
        """Measure the noise of the scores, split the budget by what a rollout uses, and check that it is enough."""
        budget, account = self.request.budget, self.runner.account
        train = [task.id for task in self.splits.train]
        try:
            found = await audit(self.start.digest, train, self.runner, self.splitter.known_good)
        except OutOfBudget:
            raise UserError(f"`budget` is {budget}; expected more: the audit used all of it") from None
        self.runner.mark_decided()
        rollouts = budget.rollouts or compute_once(
            self.folder / ROLLOUTS, lambda: budget.in_rollouts(account.used, found.rollouts)
        )
        self.split = self.splitter.split(rollouts)
        account.divide({RunPart.SEARCH: self.split.search_share, RunPart.EXAM: self.split.exam_share}, budget.amount)
        variance = found.cautious_variance
        lift, table = detectable_lift(variance, self.split.plan), self.splitter.lift_table(variance, rollouts)
        seconds, cost = await asyncio.to_thread(_mean_use, self.folder / RunPart.SEARCH)
        self.audited = AuditFinished(found, lift, table, seconds, cost, rollouts)
        self.watch(self.audited)
        if self.request.plan.gate is GateKind.CERTIFY and not self.request.force:
            self.splitter.check_power(self.split, found, lift)

    async def search(self) -> SearchResult:
        """Search for better skills on the train tasks, and certify the best on the validation tasks."""
        self.history = History(self.folder, self.start.digest, self.request.proposer)
        self.driver = self._driver()
        # A run without an exam does not use the validation tasks.
        journal = ExamJournalFile(self.folder / RunPart.EXAM, self._enter_ledger)
        read = read_guarded(self.runner, self.request.plan.guard)
        found = await search_and_certify(
            self.start.digest,
            self.split.plan,
            SearchSetting(
                tuple(task.id for task in self.splits.train), self.driver, self.skills, self._close_search, read
            ),
            ExamSetting(tuple(self.validation), self.seed, journal, read),
            self.runner,
            self._record,
        )
        for held in found.exam_results:  # the bounds of the last exam may be closer now than at its verdict
            self.history.record_exam(held.candidate, summarise_exam(held))
        return found

    def _driver(self) -> ProposerDriver:
        request, plan = self.request, self.split.plan
        tasks = {task.id: task for task in self.splits.train}
        spec, check = self.proposer, request.check_prompt
        proposer = spec.open(self.runner, check) if isinstance(spec, ProposerSpec) else spec
        schedule = ProposalSchedule(
            request.schedule, plan.proposals(len(tasks)), plan.seed, request.policy, request.preferences
        )
        search, drafts = self.folder / RunPart.SEARCH, self.folder / DRAFTS
        return ProposerDriver(proposer, self.skills, search, tasks, drafts, self.history, schedule, self.watch)

    def _record(self, event: SearchStep | ExamResult | RuleComparison | Removal) -> None:
        """Write a decision into the history, and pass on to the proposer what it may know: one bit of an exam."""
        match event:
            case SearchStep(parent, candidate, mean, bar):
                self.history.record_measurement(candidate, parent, mean=mean, bar=bar, accepted=event.accepted)
            case ExamResult():
                self.history.record_exam(event.candidate, summarise_exam(event))
                self.driver.learn(certified=event.test.verdict is Verdict.CERTIFIED)
            case RuleComparison():
                self.driver.learn(certified=event.accepted)
            case Removal(units, held):
                reason = f"left out: {'; '.join(units)}"
                self.history.record_version(held.candidate, held.exam.incumbent, (), reason)
                self.history.record_exam(held.candidate, summarise_exam(held))
        self.runner.mark_decided()
        self.watch(event)

    def _close_search(self) -> int:
        """Let exams use everything that is left except for the final test. Returns the rollouts that the budget was
        raised by: everything up to here was planned without them."""
        kept = self.split.test_share * self.request.budget.amount
        self.runner.account.close(RunPart.SEARCH, RunPart.EXAM, kept)
        return MANY if self.budget.rollouts is None else self.budget.rollouts - self.split.rollouts

    def _enter_ledger(self) -> LedgerEntry:
        return enter(self.folder, self.validation, self.request.plan.alpha, self.env)

    async def test(self, found: SearchResult) -> FinalTest | None:
        """Test the final skill against the start, once. None when there is nothing to test, when no budget is left, or
        when the test tasks were used before with a skill that was certified on a smaller budget."""
        tasks = [task.id for task in self.split.test]
        if found.final == found.start or not tasks:
            return None
        try:
            tested = await run_final_test(self.folder / RunPart.TEST, found.start, found.final, tasks, self.runner)
        except (OutOfBudget, UsedError):
            return None
        return tested

    def certify(self, found: SearchResult, tested: FinalTest | None) -> Certificate:
        """Put everything that the verdicts rest on into one certificate."""
        return Certificate(
            whet=__version__,
            start=found.start,
            certified=found.certified,
            gate=self.request.plan.gate,
            alpha=self.request.plan.alpha,
            single=self.request.plan.one_exam,
            seed=self.seed,
            commitment=self.seed.commitment,
            made_with=self.made_with,
            tasks=self.validation,
            records=tuple(map(make_record, found.exam_results)),
            shortening=make_shortening(found.removal),
            test=tested,
            used=self._enter_ledger() if found.exam_results else None,
        )

    def _result(self, found: SearchResult, certificate: Certificate, rollouts: int) -> SharpenResult:
        get, unit = self.skills.get, self.budget.unit
        return SharpenResult(
            folder=self.folder,
            done=found,
            start=get(found.start),
            best=get(found.certified),
            leader=get(found.leader),
            shortened=get(found.shortened) if found.shortened != found.certified else None,
            accepted=get(found.accepted) if found.accepted else None,
            audit=self.audited.audit,
            certificate=certificate,
            budget=self.budget,
            rollouts=rollouts,
            used=None if unit is Unit.ROLLOUTS else format_amount(self.runner.account.used, unit),
        )

    def write(self, result: SharpenResult) -> None:
        """Write certificate and report, and copy the skills that were found into the run folder."""
        write_certificate(result.certificate, self.folder)
        write_report(result)
        named = {BEST: result.best, LEADER: result.leader, SHORTENED: result.shortened, ACCEPTED: result.accepted}
        for name, skill in named.items():
            shutil.rmtree(self.folder / name, ignore_errors=True)
            if skill is not None:
                copy_skill(skill, self.folder / name)


def summarise_exam(held: ExamResult) -> ExamSummary:
    """An exam as the history of a skill stores it."""
    attempt = held.test
    assert attempt.verdict is not None
    assert attempt.decided_at is not None
    return ExamSummary(
        exam=held.exam.id,
        number=held.exam.number,
        incumbent=held.exam.incumbent,
        level=held.level,
        verdict=attempt.verdict,
        positions=attempt.decided_at,
        at_least=attempt.at_least(),
        at_most=attempt.at_most(),
        margin=attempt.terms.margin,
    )


def _mean_use(search: Path) -> tuple[float, float | None]:
    """Seconds and dollars per rollout so far."""
    with Store.open_read(search) as store:
        whole = total(tally(store).values())
    number = max(1, whole.measured)
    return whole.seconds / number, None if whole.cost is None else whole.cost / number
