"""Only the exam: is one skill better than another?"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whet.errors import UserError
from whet.runs.bench import Request
from whet.runs.config import Config
from whet.runs.scheduler import Ended, Stopped, refuse_existing
from whet.skill import Skill, read_skill
from whet.skills.attempt import Verdict
from whet.skills.budget import Budget
from whet.skills.certificate import Certificate, record_of
from whet.skills.exam import FEWEST, Exam, Purse, hold, tighten
from whet.skills.gate import Held
from whet.skills.journal import MADE_WITH, common_terms, fix_terms
from whet.skills.lab import Lab, Part, open_lab
from whet.skills.ledger import enter
from whet.skills.plan import Plan
from whet.skills.readable import write_certificate
from whet.skills.shelf import Shelf
from whet.tasks import Task, read_tasks
from whet.version import __version__

TERMS = "certify.json"


@dataclass(frozen=True, slots=True)
class Certifying:
    """Which skills to compare, on what, and within which bounds."""

    old: Path
    new: Path
    request: Request
    budget: Budget
    plan: Plan
    """For one attempt, which all of its alpha goes to."""


Watch = Callable[[Ended | Stopped], None]


async def certify(
    wish: Certifying, config: Config, watch: Watch = lambda _: None, env: Mapping[str, str] = os.environ
) -> Certificate:
    """Hold the new skill before an exam of the old one, or go on with it."""
    folder, plan = wish.request.out, wish.plan
    tasks = validation_tasks(read_tasks(wish.request.tasks))
    fewest = (1 + plan.repeats) * min(FEWEST, plan.positions(len(tasks)))
    if wish.budget.rollouts is not None and wish.budget.rollouts < fewest:
        raise UserError(
            f"--budget is {wish.budget}; expected at least {fewest} rollouts: {1 + plan.repeats} at each position"
        )
    refuse_existing(folder, resume=wish.request.resume)
    shelf, old, new = Shelf(folder / "skills"), read_skill(wish.old), read_skill(wish.new)
    if old.digest == new.digest:
        raise UserError(f"{wish.new}: is the same as {wish.old}; expected another skill")
    digests = {task.id: task.digest for task in tasks}

    def begin() -> None:
        shelf.keep(old)
        shelf.keep(new)
        fix_terms(folder / TERMS, _terms(wish, old, new, digests))

    request = replace(wish.request, skills=(wish.old, wish.new))
    async with open_lab(folder, request, {Part.EXAM: tasks}, config, shelf, env, watch, wish.budget, begin) as lab:
        made_with = await lab.made_with()
        fix_terms(folder / MADE_WITH, made_with)
        used = enter(folder, digests, plan.alpha, env)
        exam = Exam(old.digest, tuple(digests), plan.seed, 1)
        held = await _held(exam, new, wish.budget, plan, lab)
        certificate = Certificate(
            whet=__version__,
            start=old.digest,
            certified=new.digest if held.attempt.verdict is Verdict.CERTIFIED else old.digest,
            alpha=plan.alpha,
            levels=((plan.alpha,),),
            seed=plan.seed,
            made_with=made_with,
            tasks=digests,
            records=(record_of(held),),
            used=used,
        )
    write_certificate(certificate, folder)
    return certificate


def validation_tasks(tasks: Sequence[Task]) -> list[Task]:
    """Those that are for validation, if any says so; else all."""
    return [task for task in tasks if task.split == "val"] or list(tasks)


async def _held(exam: Exam, new: Skill, budget: Budget, plan: Plan, lab: Lab) -> Held:
    terms = plan.terms(plan.alpha, len(exam.tasks))
    purse = Purse(budget.rollouts or terms.positions * (1 + plan.repeats))
    attempt = await hold(exam, new.digest, terms, lab, purse)
    if attempt is None:
        raise UserError(f"--budget is {budget}; expected more: it was used up at the first position")
    if attempt.verdict is Verdict.CERTIFIED:
        await tighten(exam, new.digest, attempt, terms.positions, lab, purse)
    return Held(exam, new.digest, plan.alpha, attempt)


def _terms(wish: Certifying, old: Skill, new: Skill, tasks: dict[str, str]) -> dict[str, object]:
    return {
        "old": old.digest,
        "new": new.digest,
        **common_terms(wish.request, wish.budget, wish.plan),
        "tasks": tasks,
    }
