"""The flow of `whet certify`: one exam, which tests whether one skill is better than another, or not worse."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.scheduler import Ended, Stopped, refuse_existing
from whet.runs.stats.use import Piloted, read_use
from whet.skill import read_skill
from whet.skills.certificates.certificate import Certificate, make_record
from whet.skills.certificates.text import write_certificate
from whet.skills.documents.store import SkillStore
from whet.skills.gate.alpha_ledger import LedgerEntry, enter
from whet.skills.gate.exam import PAIR, ExamSequence, RolloutBudget, run_exam, run_pair, tighten
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.journal import ExamJournalFile
from whet.skills.gate.plan import MANY, GatePlan
from whet.skills.gate.power import chance_to_certify, enough_pairs
from whet.skills.gate.seed import Seed, fix_seed
from whet.skills.gate.sequential_test import ExamTerms, SequentialTest
from whet.skills.measurement import OutOfBudget, RunPart, Verdict
from whet.skills.report.files import write_certify_report
from whet.skills.report.summary import write_summary
from whet.skills.rollouts.audit import TYPICAL
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.guard import read_guarded, refuse_unknown_guard
from whet.skills.rollouts.runner import RolloutRunner, open_runner
from whet.skills.rollouts.terms import CERTIFY_TERMS, MADE_WITH, common_terms, fix_terms, resolve_budget, write_raised
from whet.tasks import Task
from whet.version import __version__


@dataclass(frozen=True, slots=True)
class CertifyRequest:
    """Which skills to compare, on which tasks, and within which budget."""

    old: Path
    new: Path
    run: RunOptions
    budget: Budget
    plan: GatePlan
    """For one exam, which gets all of alpha."""
    seed: int | None = None
    """Of the order of tasks; drawn at random when the user sets none."""
    non_inferior: float | None = None
    """How much worse the new skill may be and still pass; None when it has to be better."""
    summary: Path | None = None
    """File for the verdict in Markdown."""


@dataclass(frozen=True, slots=True)
class HarmlessPower:
    """How often an exam shows, of a change without any effect, that it is not worse, if scores are typically noisy."""

    margin: float
    chance: float
    """With the rollouts of this exam."""
    enough: int | None
    """Rollouts with which the chance is 80 %; None when a reasonable number is not enough."""


CertifyWatch = Callable[[Ended | Stopped | Seed | HarmlessPower | Piloted], None]


async def certify(
    request: CertifyRequest, config: Config, watch: CertifyWatch = lambda _: None, env: Mapping[str, str] = os.environ
) -> Certificate:
    """Test the new skill against the old one in one exam, or resume that exam."""
    return await CertifyRun(request, config, watch, env).run()


class CertifyRun:
    """One exam of a new skill against an old one."""

    def __init__(self, request: CertifyRequest, config: Config, watch: CertifyWatch, env: Mapping[str, str]) -> None:
        """Read and check everything that can be checked before anything is written."""
        self.config, self.watch, self.env, self.folder = config, watch, env, request.run.out
        self.tasks = validation_tasks(request.run.read_tasks())
        self.digests = {task.id: task.digest for task in self.tasks}
        refuse_unknown_guard(request.plan.guard, self.tasks)
        refuse_existing(self.folder, resume=request.run.resume)
        # The terms keep the first budget; a resumed exam may have more.
        first, self.budget = resolve_budget(self.folder / CERTIFY_TERMS, request.budget)
        self.plan = replace(_plan_of(request), budget=first.rollouts or 0)
        self.request = replace(request, budget=first, plan=self.plan)
        self._check_budget()
        self.old, self.new = read_skill(request.old), read_skill(request.new)
        if self.old.digest == self.new.digest:
            raise UserError(f"{request.new}: is the same as {request.old}; expected another skill")
        self.skills = SkillStore(self.folder / "skills")

    def _check_budget(self) -> None:
        fewest = PAIR * SequentialTest(self._terms(1)).fewest_to_start
        if self.budget.rollouts is not None and self.budget.rollouts < fewest:
            raise UserError(
                f"`budget` is {self.budget}; expected at least {fewest} rollouts: with fewer nothing can be certified "
                f"at level {self.plan.alpha:g}, whatever their scores"
            )

    def _terms(self, pairs: int) -> ExamTerms:
        return replace(self.plan.terms(self.plan.alpha, pairs), margin=self.request.non_inferior or 0.0)

    async def run(self) -> Certificate:
        options = self.request.run.model_copy(update={"skills": (self.request.old, self.request.new)})
        parts = {RunPart.EXAM: self.tasks}
        async with open_runner(
            options, parts, self.config, self.skills, self.env, self.watch, self.budget, self._begin
        ) as runner:
            made_with = await runner.describe_setup()
            fix_terms(self.folder / MADE_WITH, made_with)
            used = enter(self.folder, self.digests, self.plan.alpha, self.env)
            result = await self.run_exam(runner)
            certificate = self._certificate(result, made_with, used)
        write_certificate(certificate, self.folder)
        await asyncio.to_thread(write_certify_report, certificate, self.folder)
        write_summary(certificate, self.folder, self.request.summary, self.env)
        return certificate

    def _begin(self) -> None:
        """Write the terms of the exam. Called once it is certain that the run can be opened."""
        self.skills.keep(self.old)
        self.skills.keep(self.new)
        self.seed = fix_seed(self.folder / RunPart.EXAM, self.request.seed)
        terms: dict[str, object] = {
            "old": self.old.digest,
            "new": self.new.digest,
            **common_terms(self.request.run, self.request.budget, self.plan),
            "tasks": self.digests,
            "seed": self.seed.commitment,
        }
        if self.request.non_inferior is not None:
            terms["non_inferior"] = self.request.non_inferior
        fix_terms(self.folder / CERTIFY_TERMS, terms)
        write_raised(self.folder / CERTIFY_TERMS, self.request.budget, self.budget)
        self.watch(self.seed)
        if self.request.non_inferior is not None and self.budget.rollouts is not None:
            self.watch(_power_of(self._terms(self.budget.rollouts // PAIR)))

    async def run_exam(self, runner: RolloutRunner) -> ExamResult:
        """Run the exam until it has a verdict. If it certifies that the new skill is better, use what is left of the
        budget to narrow the bounds: at the verdict, the lower bound is barely above 0."""
        seed = self.seed
        exam = ExamSequence(self.old.digest, self.new.digest, tuple(self.digests), seed.value, 1, seed.commitment)
        ExamJournalFile(self.folder / RunPart.EXAM).record_start(exam)
        await self._pilot(exam, runner)
        read = read_guarded(runner, self.plan.guard)
        # A budget in another unit ends the exam when it is used up.
        rollouts = RolloutBudget(self.budget.rollouts or MANY)
        test = SequentialTest(self._terms(rollouts.pairs))
        await run_exam(exam, test, runner, rollouts, read)
        if not test.pairs:
            raise UserError(f"`budget` is {self.budget}; expected more: the first pair of rollouts used all of it")
        if test.verdict is Verdict.CERTIFIED and not test.terms.margin:
            await tighten(exam, test, self.plan.max_pairs(len(exam.tasks)), runner, rollouts, read)
        return ExamResult(exam, test)

    async def _pilot(self, exam: ExamSequence, runner: RolloutRunner) -> None:
        """Run the first pairs of the exam, and report what all of it may use. The exam takes their results from the
        store. It may stop at any pair without bias, so it may stop here as well."""
        run = self.request.run
        if not run.pilot or run.resume:
            return
        pairs = range(-(-run.pilot // PAIR))
        try:
            await asyncio.gather(*(run_pair(exam, number, runner, runner.read_execution) for number in pairs))
        except OutOfBudget:
            return  # the exam ends there
        use = await asyncio.to_thread(read_use, self.folder / RunPart.EXAM, run.concurrency)
        self.watch(Piloted(use, self.budget.rollouts))

    def _certificate(self, result: ExamResult, made_with: dict[str, Any], used: LedgerEntry) -> Certificate:
        return Certificate(
            whet=__version__,
            start=self.old.digest,
            certified=self.new.digest if result.test.verdict is Verdict.CERTIFIED else self.old.digest,
            alpha=self.plan.alpha,
            single=True,
            seed=self.seed,
            commitment=self.seed.commitment,
            made_with=made_with,
            tasks=self.digests,
            records=(make_record(result),),
            used=used,
        )


def _plan_of(request: CertifyRequest) -> GatePlan:
    """The plan of the exam. Where the new skill may be as good as the old one, the exam gives up when the new one is
    shown to be worse at all, with the same error rate."""
    if request.non_inferior is None:
        return request.plan
    return replace(request.plan, beta=request.plan.alpha, minimum_effect=0.0)


def _power_of(terms: ExamTerms) -> HarmlessPower:
    pairs = enough_pairs(0.0, TYPICAL, terms)
    return HarmlessPower(terms.margin, chance_to_certify(0.0, TYPICAL, terms), pairs and PAIR * pairs)


def validation_tasks(tasks: Sequence[Task]) -> list[Task]:
    """The tasks with split 'val'; all tasks when none has it."""
    return [task for task in tasks if task.split == "val"] or list(tasks)
