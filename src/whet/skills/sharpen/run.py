"""Sharpening a skill from the request to the folders that hold what came of it. Command line and API start here."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.scheduler import Ended, Stopped, refuse_existing
from whet.skill import Skill, read_skill
from whet.skills.certificates.certificate import Certificate, make_record, make_shortening
from whet.skills.certificates.text import write_certificate
from whet.skills.documents.document import Policy
from whet.skills.documents.history import ACCEPTED, BEST, LEADER, SHORTENED, SKILLS, TERMS, ExamSummary, History
from whet.skills.documents.store import SkillStore, copy_skill
from whet.skills.gate.alpha_ledger import LedgerEntry, count_uses, enter
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.heuristics import RuleComparison
from whet.skills.gate.journal import ExamJournalFile
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.plan import MANY, GatePlan
from whet.skills.gate.seed import Seed, fix_seed
from whet.skills.measurement import OutOfBudget, RunPart, Verdict
from whet.skills.proposers.base import Proposer, SearchStep
from whet.skills.proposers.driver import ProposalMade, ProposerDriver
from whet.skills.proposers.schedule import ProposalSchedule, ScheduleOptions
from whet.skills.report.text import write_report
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import Budget, Unit, format_amount
from whet.skills.rollouts.final_test import FinalTest, UsedError, run_final_test
from whet.skills.rollouts.runner import RolloutRunner, open_runner
from whet.skills.rollouts.splits import Splits, split_tasks
from whet.skills.rollouts.terms import MADE_WITH, common_terms, fix_terms, resolve_budget, write_raised
from whet.skills.search.shorten import Removal
from whet.skills.search.two_tiers import SearchResult, search_and_certify
from whet.skills.sharpen.budget_split import BudgetSplit
from whet.skills.sharpen.options import refuse_unknown_sections
from whet.skills.sharpen.preparing import Audited, Preparing, prepare, refuse_if_hopeless
from whet.skills.sharpen.proposer_runtime import ProposerSpec
from whet.tasks import Task, read_tasks
from whet.version import __version__


@dataclass(frozen=True, slots=True)
class SharpenRequest:
    """What to sharpen, on what, and within which bounds."""

    skill: Path
    request: RunOptions
    """Tasks, agent and model; where the run goes."""
    budget: Budget
    """Of all that the run uses."""
    plan: GatePlan
    """Its own budget is found by the audit."""
    proposer: str
    """What the writer is called."""
    policy: Policy = field(default_factory=Policy)
    preferences: str = ""
    course: ScheduleOptions = field(default_factory=ScheduleOptions)
    also: Path | None = None
    """A document that agents always read, to be sharpened together with the skill."""
    known_good: Path | None = None
    """A skill that is known to be better: where it is not, the set-up measures nothing."""
    seed: int | None = None
    """Of the order of exams; drawn by chance when the user names none."""
    force: bool = False
    """Whether to go on although the budget cannot show what may be expected."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The run is open."""

    folder: Path
    skill: Skill
    splits: Splits
    budget: Budget
    used: LedgerEntry
    """What the validation tasks were used for so far."""
    seed: Seed
    """Of the order of exams. Only its commitment may be shown."""


Event = Begun | Audited | ProposalMade | SearchStep | ExamResult | RuleComparison | Removal | Ended | Stopped
Watch = Callable[[Event], None]


async def sharpen_skill(
    wish: SharpenRequest,
    writer: Proposer | ProposerSpec,
    config: Config,
    watch: Watch = lambda _: None,
    env: Mapping[str, str] = os.environ,
) -> SharpenResult:
    """Sharpen a skill, or go on with it. NotMeasured when too much was lost; then it can be resumed."""
    folder, start = wish.request.out, read_skill(wish.skill, wish.also)
    hired = writer if isinstance(writer, ProposerSpec) else None
    if hired:
        hired.check(wish.request, config)
    refuse_unknown_sections(wish.policy, start)
    refuse_existing(folder, resume=wish.request.resume)
    first, now = resolve_budget(folder / TERMS, wish.budget)
    wish = replace(wish, budget=first, plan=replace(wish.plan, budget=first.rollouts or 0))
    wanted = wanted_of(wish)
    shelf = SkillStore(folder / SKILLS)
    validation = {task.id: task.digest for task in wanted.splits.validation}
    async with _opened(wish, now, hired, start, wanted, shelf, config, watch, env) as lab:
        made_with = await lab.made_with()
        fix_terms(folder / MADE_WITH, made_with)
        shares, audited = await prepare(wanted, start.digest, lab, folder)
        watch(audited)
        certifies = wish.plan.gate is GateKind.CERTIFY
        if certifies and not wish.force:
            refuse_if_hopeless(wanted, shares, audited)
        pen = writer.at_desk(lab) if isinstance(writer, ProposerSpec) else writer
        seed = fix_seed(folder / RunPart.EXAM, wish.seed)
        # A run without an exam uses no validation task up.
        journal = ExamJournalFile(folder / RunPart.EXAM, lambda: enter(folder, validation, wish.plan.alpha, env))
        done = await _search_and_certify(wish, shares, pen, start, wanted.splits, shelf, lab, watch, seed, now, journal)
        tested = await _test(folder, done, shares.test, lab)
        # Where a hard stop fell, not all that the purses paid for was rolled out.
        done.spent = await lab.rollouts() if lab.account.stopped else done.spent + shares.audit
        used = enter(folder, validation, wish.plan.alpha, env) if done.exam_results else None
        certificate = _certificate(wish, done, validation, made_with, tested, used, seed)
        outcome = _outcome(replace(wish, budget=now), done, shelf, audited, certificate, lab)
    await asyncio.to_thread(_hand_out, outcome)
    return outcome


@asynccontextmanager
async def _opened(
    wish: SharpenRequest,
    now: Budget,
    hired: ProposerSpec | None,
    start: Skill,
    wanted: Preparing,
    shelf: SkillStore,
    config: Config,
    watch: Watch,
    env: Mapping[str, str],
) -> AsyncIterator[RolloutRunner]:
    """The lab of a run. Its terms are written down once it is known that it can be opened."""
    folder, splits = wish.request.out, wanted.splits

    def begin() -> None:
        for skill in (start, *([read_skill(wish.known_good)] if wish.known_good else [])):
            shelf.keep(skill)
        seed = fix_seed(folder / RunPart.EXAM, wish.seed)
        fix_terms(folder / TERMS, _terms(wish, hired, start, wanted, seed))
        write_raised(folder / TERMS, wish.budget, now)
        validation = {task.id: task.digest for task in splits.validation}
        watch(Begun(folder, start, splits, now, count_uses(folder, validation, env), seed))

    parts = {RunPart.SEARCH: splits.train, RunPart.EXAM: splits.validation, RunPart.TEST: splits.test}
    request = wish.request.model_copy(update={"skills": (wish.skill,)})
    if hired:
        parts[RunPart.PROPOSALS] = ()
        request = hired.beside(request)
    async with open_runner(folder, request, parts, config, shelf, env, watch, now, begin) as lab:
        yield lab


def wanted_of(wish: SharpenRequest) -> Preparing:
    """What is to be prepared. UserError when a budget in rollouts is too small to try anything."""
    known_good = None if wish.known_good is None else read_skill(wish.known_good).digest
    splits = split_tasks(read_tasks(wish.request.tasks), wish.plan.seed)
    wanted = Preparing(wish.budget, wish.plan, splits, known_good)
    if wish.budget.rollouts is not None:
        wanted.shares(wish.budget.rollouts)
    return wanted


async def _search_and_certify(
    wish: SharpenRequest,
    shares: BudgetSplit,
    writer: Proposer,
    start: Skill,
    splits: Splits,
    shelf: SkillStore,
    lab: RolloutRunner,
    watch: Watch,
    seed: Seed,
    now: Budget,
    journal: ExamJournalFile,
) -> SearchResult:
    folder, plan = wish.request.out, shares.plan
    history = History(folder, start.digest, wish.proposer)
    train = {task.id: task for task in splits.train}
    search, drafts = folder / RunPart.SEARCH, folder / "drafts"
    steps = plan.proposals(len(train))
    schedule = ProposalSchedule(wish.course, steps, plan.seed, wish.policy, wish.preferences)
    proposing = ProposerDriver(writer, shelf, search, train, drafts, history, schedule, watch)

    def pass_on(event: SearchStep | ExamResult | RuleComparison | Removal) -> None:
        match event:
            case SearchStep(parent, candidate, mean, bar):
                history.record_measurement(candidate, parent, mean=mean, bar=bar, accepted=event.accepted)
            case ExamResult():
                history.record_exam(event.candidate, examined(event))
                proposing.learn(certified=event.test.verdict is Verdict.CERTIFIED)
            case RuleComparison():
                proposing.learn(certified=event.accepted)
            case Removal(units, held):
                history.record_version(held.candidate, held.exam.incumbent, (), f"left out: {'; '.join(units)}")
                history.record_exam(held.candidate, examined(held))
        lab.decided()
        watch(event)

    validation = tuple(task.id for task in splits.validation)

    def close_search() -> int:
        """Let exams use all that is left but for the sealed test. What a budget was raised by comes now: everything
        up to here was planned without it."""
        lab.account.close(RunPart.SEARCH, RunPart.EXAM, shares.test_share * wish.budget.amount)
        return MANY if now.rollouts is None else now.rollouts - shares.rollouts

    done = await search_and_certify(
        start.digest,
        tuple(train),
        validation,
        plan,
        proposing,
        lab,
        pass_on,
        shelf,
        seed,
        journal,
        lab.notes,
        close_search,
    )
    for held in done.exam_results:  # the bounds of the last may be closer than when its verdict fell
        history.record_exam(held.candidate, examined(held))
    return done


def examined(held: ExamResult) -> ExamSummary:
    """An exam as the history of a skill keeps it."""
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


async def _test(folder: Path, done: SearchResult, tasks: Sequence[Task], lab: RolloutRunner) -> FinalTest | None:
    """Test what came of it against the start, once; None when there is nothing to test, no money for it, or its tasks
    were done before with a skill that was certified on a smaller budget."""
    if done.final == done.start or not tasks:
        return None
    try:
        tested = await run_final_test(folder / RunPart.TEST, done.start, done.final, [task.id for task in tasks], lab)
    except (OutOfBudget, UsedError):
        return None
    done.spent += len(tested.before) + len(tested.after)
    return tested


def _certificate(
    wish: SharpenRequest,
    done: SearchResult,
    validation: dict[str, str],
    made_with: dict[str, Any],
    tested: FinalTest | None,
    used: LedgerEntry | None,
    seed: Seed,
) -> Certificate:
    return Certificate(
        whet=__version__,
        start=done.start,
        certified=done.certified,
        gate=wish.plan.gate,
        alpha=wish.plan.alpha,
        seed=seed,
        commitment=seed.commitment,
        made_with=made_with,
        tasks=validation,
        records=tuple(map(make_record, done.exam_results)),
        shortening=make_shortening(done.removal),
        test=tested,
        used=used,
    )


def _outcome(
    wish: SharpenRequest,
    done: SearchResult,
    shelf: SkillStore,
    audited: Audited,
    certificate: Certificate,
    lab: RolloutRunner,
) -> SharpenResult:
    return SharpenResult(
        folder=wish.request.out,
        done=done,
        start=shelf.get(done.start),
        best=shelf.get(done.certified),
        leader=shelf.get(done.leader),
        shortened=shelf.get(done.shortened) if done.shortened != done.certified else None,
        accepted=shelf.get(done.accepted) if done.accepted else None,
        audit=audited.audit,
        certificate=certificate,
        budget=wish.budget,
        used=None if wish.budget.unit is Unit.ROLLOUTS else format_amount(lab.account.used, wish.budget.unit),
    )


def _terms(
    wish: SharpenRequest, hired: ProposerSpec | None, start: Skill, wanted: Preparing, seed: Seed
) -> dict[str, object]:
    splits = wanted.splits
    sides = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {
        "skill": start.digest,
        **common_terms(wish.request, wish.budget, wish.plan),
        "proposer": wish.proposer,
        "optimizer": asdict(hired) if hired else None,
        "preferences": wish.preferences,
        "policy": wish.policy.model_dump(mode="json"),
        "known_good": wanted.known_good,
        "course": asdict(wish.course),
        "seed": seed.commitment,
        "tasks": {name: {task.id: task.digest for task in side} for name, side in sides.items()},
    }


def _hand_out(outcome: SharpenResult) -> None:
    write_certificate(outcome.certificate, outcome.folder)
    write_report(outcome)
    handed = {BEST: outcome.best, LEADER: outcome.leader, SHORTENED: outcome.shortened, ACCEPTED: outcome.accepted}
    for name, skill in handed.items():
        shutil.rmtree(outcome.folder / name, ignore_errors=True)
        if skill is not None:
            copy_skill(skill, outcome.folder / name)
