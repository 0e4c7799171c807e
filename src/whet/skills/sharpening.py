"""Sharpening a skill from the request to the folders that hold what came of it. Command line and API start here."""

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.runs.bench import Request
from whet.runs.config import Config
from whet.runs.scheduler import Ended, Stopped, refuse_existing
from whet.runs.store import Store
from whet.runs.summary import tally, total
from whet.skill import Skill, read_skill
from whet.skills.attempt import Verdict, levels
from whet.skills.audit import Audit, audit, detectable_lift, extra_rollouts, refuse_hopeless, table
from whet.skills.brief import Writer
from whet.skills.certificate import Certificate, record_of, shortening_of, write_certificate
from whet.skills.desk import Hired
from whet.skills.engine import Sharpened, sharpen
from whet.skills.gate import Held
from whet.skills.gates import Compared
from whet.skills.history import BEST, LEADER, SKILLS, TERMS, History
from whet.skills.journal import common_terms, fix_terms
from whet.skills.kinds import GateKind
from whet.skills.lab import Lab, Part, open_lab
from whet.skills.outcome import Outcome
from whet.skills.plan import Plan
from whet.skills.policy import Policy
from whet.skills.proposing import Proposing
from whet.skills.report import report
from whet.skills.sealed import Tested, take_test, tasks_to_test
from whet.skills.search import Step
from whet.skills.shelf import Shelf, copy_skill
from whet.skills.shorten import Removal
from whet.skills.task_split import Splits, split_tasks
from whet.tasks import Task, read_tasks
from whet.version import __version__

REPORT, SHORTENED, ACCEPTED = "report.md", "shortened", "accepted"


@dataclass(frozen=True, slots=True)
class Sharpening:
    """What to sharpen, on what, and within which bounds."""

    skill: Path
    request: Request
    """Tasks, agent and model; where the run goes."""
    plan: Plan
    proposer: str
    """What the writer is called."""
    policy: Policy = field(default_factory=Policy)
    preferences: str = ""
    force: bool = False
    """Whether to go on although the budget cannot show what may be expected."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The run is open."""

    folder: Path
    skill: Skill
    splits: Splits
    plan: Plan


@dataclass(frozen=True, slots=True)
class Audited:
    """The noise is known, before anything is proposed."""

    audit: Audit
    lift: float | None
    """The smallest that the exams can show; None when they cannot be held."""
    table: list[tuple[int, float | None]]
    """For several budgets, the smallest lift that each shows."""
    seconds: float
    cost: float | None
    """Of a rollout."""


Event = Begun | Audited | Step | Held | Compared | Removal | Ended | Stopped
Watch = Callable[[Event], None]


async def sharpen_skill(
    wish: Sharpening,
    writer: Writer | Hired,
    config: Config,
    watch: Watch = lambda _: None,
    env: Mapping[str, str] = os.environ,
) -> Outcome:
    """Sharpen a skill, or go on with it. NotMeasured when too much was lost; then it can be resumed."""
    hired = writer if isinstance(writer, Hired) else None
    if hired:
        hired.check(wish.request, config)
    folder = wish.request.out
    splits, plan, test = shares(wish)
    refuse_existing(folder, resume=wish.request.resume)
    shelf = Shelf(folder / SKILLS)
    start = shelf.keep(read_skill(wish.skill))
    fix_terms(folder / TERMS, _terms(wish, hired, start, splits))
    watch(Begun(folder, start, splits, wish.plan))
    parts = {Part.SEARCH: splits.train, Part.EXAM: splits.validation, Part.TEST: test}
    request = replace(wish.request, skills=(start.folder,))
    if hired:
        parts[Part.PROPOSALS] = ()
        request = hired.beside(request)
    async with open_lab(folder, request, parts, config, shelf, env, watch) as lab:
        writer = writer.at_desk(lab) if isinstance(writer, Hired) else writer
        noise = await _audit(wish, plan, start, splits, lab, watch)
        history = History(folder, start.digest, wish.proposer)
        done = await _search_and_certify(wish, plan, writer, start, splits, shelf, history, lab, watch)
        done.spent += extra_rollouts(len(splits.train))
        tested = await _test(folder, done, test, lab)
        certificate = _certificate(wish, done, splits, lab.made_with, tested)
    best, leader = shelf.get(done.certified), shelf.get(done.leader)
    shortened = shelf.get(done.shortened) if done.shortened != done.certified else None
    accepted = shelf.get(done.accepted) if done.accepted else None
    outcome = Outcome(folder, done, start, best, leader, shortened, accepted, noise, certificate, wish.plan.budget)
    _hand_out(outcome)
    return outcome


def shares(wish: Sharpening) -> tuple[Splits, Plan, tuple[Task, ...]]:
    """How tasks and budget are divided: the splits, the plan of both tiers, and what is tested in the end.
    UserError when the budget is too small to try anything."""
    splits = split_tasks(read_tasks(wish.request.tasks), wish.plan.seed)
    # A tenth of the budget at most is put aside for each side of the test.
    test = tasks_to_test(splits.test, wish.plan.seed, wish.plan.budget // 10)
    plan = replace(wish.plan, budget=wish.plan.budget - 2 * len(test) - extra_rollouts(len(splits.train)))
    if plan.search_purse < 2 * len(splits.train):
        raise UserError(
            f"--budget is {wish.plan.budget}; expected more: {splits} take {wish.plan.budget - plan.budget} rollouts "
            "for audit and test, and the search needs one for each training task and proposal"
        )
    return splits, plan, test


async def _audit(wish: Sharpening, plan: Plan, start: Skill, splits: Splits, lab: Lab, watch: Watch) -> Audit:
    """Measure the noise. UserError when the plan is hopeless, unless it is forced."""
    found = await audit(start.digest, [task.id for task in splits.train], lab)
    validation = len(splits.validation)
    lift = detectable_lift(found.cautious_variance, plan, validation)
    seconds, cost = await asyncio.to_thread(_each, wish.request.out / Part.SEARCH)
    shown = table(found.cautious_variance, plan, wish.plan.budget - plan.budget, validation)
    watch(Audited(found, lift, shown, seconds, cost))
    if not wish.force and plan.gate is GateKind.CERTIFY:
        refuse_hopeless(lift, plan)
    return found


def _each(search: Path) -> tuple[float, float | None]:
    """Seconds and dollars of a rollout so far."""
    with Store.open_read(search) as store:
        whole = total(tally(store).values())
    number = max(1, whole.measured)
    return whole.seconds / number, None if whole.cost is None else whole.cost / number


async def _search_and_certify(
    wish: Sharpening,
    plan: Plan,
    writer: Writer,
    start: Skill,
    splits: Splits,
    shelf: Shelf,
    history: History,
    lab: Lab,
    watch: Watch,
) -> Sharpened:
    folder = wish.request.out
    train = {task.id: task for task in splits.train}
    search, drafts = folder / Part.SEARCH, folder / "drafts"
    proposing = Proposing(writer, shelf, search, train, wish.policy, drafts, history, wish.preferences)

    def pass_on(event: Step | Held | Compared | Removal) -> None:
        match event:
            case Step():
                history.tell(event)
            case Held():
                history.tell(event)
                proposing.learn(certified=event.attempt.verdict is Verdict.CERTIFIED)
            case Compared():
                proposing.learn(certified=event.accepted)
            case Removal(unit, held):
                history.made(held.candidate, held.exam.incumbent, (), f"left out: {unit}")
                history.tell(held)
        watch(event)

    validation = tuple(task.id for task in splits.validation)
    done = await sharpen(start.digest, tuple(train), validation, plan, proposing, lab, pass_on, shelf)
    for held in done.held:  # the bounds of the last may be closer than when its verdict fell
        history.tell(held)
    return done


async def _test(folder: Path, done: Sharpened, tasks: Sequence[Task], lab: Lab) -> Tested | None:
    """Test what came of it against the start, once."""
    if done.final == done.start or not tasks:
        return None
    tested = await take_test(folder / Part.TEST, done.start, done.final, [task.id for task in tasks], lab)
    done.spent += len(tested.before) + len(tested.after)
    return tested


def _certificate(
    wish: Sharpening, done: Sharpened, splits: Splits, made_with: dict[str, Any], tested: Tested | None
) -> Certificate:
    exams = max((held.exam.number for held in done.held), default=1)
    return Certificate(
        whet=__version__,
        start=done.start,
        certified=done.certified,
        gate=wish.plan.gate,
        alpha=wish.plan.alpha,
        levels=tuple(islice(levels(wish.plan.alpha, wish.plan.attempts), exams)),
        seed=wish.plan.seed,
        made_with=made_with,
        tasks={task.id: task.digest for task in splits.validation},
        records=tuple(map(record_of, done.held)),
        shortening=shortening_of(done),
        test=tested,
    )


def _terms(wish: Sharpening, hired: Hired | None, start: Skill, splits: Splits) -> dict[str, object]:
    sides = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {
        "skill": start.digest,
        **common_terms(wish.request, wish.plan),
        "proposer": wish.proposer,
        "optimizer": asdict(hired) if hired else None,
        "preferences": wish.preferences,
        "policy": wish.policy.model_dump(mode="json"),
        "tasks": {name: {task.id: task.digest for task in side} for name, side in sides.items()},
    }


def _hand_out(outcome: Outcome) -> None:
    write_certificate(outcome.certificate, outcome.folder)
    (outcome.folder / REPORT).write_text(report(outcome), encoding="utf-8")
    handed = {BEST: outcome.best, LEADER: outcome.leader, SHORTENED: outcome.shortened, ACCEPTED: outcome.accepted}
    for name, skill in handed.items():
        shutil.rmtree(outcome.folder / name, ignore_errors=True)
        if skill is not None:
            copy_skill(skill, outcome.folder / name)
