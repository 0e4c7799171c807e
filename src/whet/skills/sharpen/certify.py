"""Only the exam: is one skill better than another?"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whet.errors import UserError
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.scheduler import Ended, Stopped, refuse_existing
from whet.skill import Skill, read_skill
from whet.skills.certificates.certificate import Certificate, make_record
from whet.skills.certificates.text import write_certificate
from whet.skills.documents.store import SkillStore
from whet.skills.gate.alpha_ledger import enter
from whet.skills.gate.exam import PAIR, ExamSequence, RolloutBudget, run_exam, tighten
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.journal import ExamJournalFile
from whet.skills.gate.plan import MANY, GatePlan
from whet.skills.gate.seed import Seed, fix_seed
from whet.skills.gate.sequential_test import SequentialTest
from whet.skills.measurement import RunPart, Verdict
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.runner import RolloutRunner, open_runner
from whet.skills.rollouts.terms import CERTIFY_TERMS, MADE_WITH, common_terms, fix_terms, resolve_budget, write_raised
from whet.tasks import Task, read_tasks
from whet.version import __version__


@dataclass(frozen=True, slots=True)
class Certifying:
    """Which skills to compare, on what, and within which bounds."""

    old: Path
    new: Path
    request: RunOptions
    budget: Budget
    plan: GatePlan
    """For one attempt, which all of its alpha goes to."""
    seed: int | None = None
    """Of the order of tasks; drawn by chance when the user names none."""


Watch = Callable[[Ended | Stopped | Seed], None]


async def certify(
    wish: Certifying, config: Config, watch: Watch = lambda _: None, env: Mapping[str, str] = os.environ
) -> Certificate:
    """Hold the new skill before an exam of the old one, or go on with it."""
    folder = wish.request.out
    tasks = validation_tasks(read_tasks(wish.request.tasks))
    refuse_existing(folder, resume=wish.request.resume)
    first, now = resolve_budget(folder / CERTIFY_TERMS, wish.budget)
    plan = replace(wish.plan, budget=first.rollouts or 0)
    wish = replace(wish, budget=first, plan=plan)
    fewest = PAIR * SequentialTest(plan.terms(plan.alpha, 1)).fewest
    if now.rollouts is not None and now.rollouts < fewest:
        raise UserError(
            f"--budget is {now}; expected at least {fewest} rollouts: with fewer nothing can be certified at level "
            f"{plan.alpha:g}, whatever their scores"
        )
    shelf, old, new = SkillStore(folder / "skills"), read_skill(wish.old), read_skill(wish.new)
    if old.digest == new.digest:
        raise UserError(f"{wish.new}: is the same as {wish.old}; expected another skill")
    digests = {task.id: task.digest for task in tasks}

    def begin() -> None:
        shelf.keep(old)
        shelf.keep(new)
        seed = fix_seed(folder / RunPart.EXAM, wish.seed)
        fix_terms(folder / CERTIFY_TERMS, _terms(wish, old, new, digests, seed))
        write_raised(folder / CERTIFY_TERMS, first, now)
        watch(seed)

    request = wish.request.model_copy(update={"skills": (wish.old, wish.new)})
    async with open_runner(folder, request, {RunPart.EXAM: tasks}, config, shelf, env, watch, now, begin) as lab:
        seed = fix_seed(folder / RunPart.EXAM, wish.seed)
        made_with = await lab.made_with()
        fix_terms(folder / MADE_WITH, made_with)
        used = enter(folder, digests, plan.alpha, env)
        exam = ExamSequence(old.digest, new.digest, tuple(digests), seed.value, 1, seed.commitment)
        ExamJournalFile(folder / RunPart.EXAM).opened(exam)
        held = await _held(exam, now, plan, lab)
        certificate = Certificate(
            whet=__version__,
            start=old.digest,
            certified=new.digest if held.test.verdict is Verdict.CERTIFIED else old.digest,
            alpha=plan.alpha,
            single=True,
            seed=seed,
            commitment=seed.commitment,
            made_with=made_with,
            tasks=digests,
            records=(make_record(held),),
            used=used,
        )
    write_certificate(certificate, folder)
    return certificate


def validation_tasks(tasks: Sequence[Task]) -> list[Task]:
    """Those that are for validation, if any says so; else all."""
    return [task for task in tasks if task.split == "val"] or list(tasks)


async def _held(exam: ExamSequence, budget: Budget, plan: GatePlan, lab: RolloutRunner) -> ExamResult:
    # A budget in another unit ends it when it is used up.
    purse = RolloutBudget(budget.rollouts or MANY)
    attempt = SequentialTest(plan.terms(plan.alpha, purse.pairs))
    await run_exam(exam, attempt, lab, purse, lab.notes)
    if not attempt.pairs:
        raise UserError(f"--budget is {budget}; expected more: it was used up at the first position")
    if attempt.verdict is Verdict.CERTIFIED:
        await tighten(exam, attempt, plan.max_pairs(len(exam.tasks)), lab, purse, lab.notes)
    return ExamResult(exam, attempt)


def _terms(wish: Certifying, old: Skill, new: Skill, tasks: dict[str, str], seed: Seed) -> dict[str, object]:
    return {
        "old": old.digest,
        "new": new.digest,
        **common_terms(wish.request, wish.budget, wish.plan),
        "tasks": tasks,
        "seed": seed.commitment,
    }
