"""Sharpening a skill from the request to the folders that hold what came of it. Command line and API start here."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from whet.runs.bench import Request
from whet.runs.config import Config
from whet.runs.scheduler import Ended, Stopped, refuse_existing
from whet.skill import Skill, read_skill
from whet.skills.attempt import Verdict, levels
from whet.skills.brief import Writer
from whet.skills.certificate import Certificate, record_of, write_certificate
from whet.skills.engine import Held, NotMeasured, Sharpened, Step, sharpen
from whet.skills.journal import common_terms, fix_terms
from whet.skills.lab import Lab, Part, open_lab
from whet.skills.outcome import Outcome
from whet.skills.plan import Plan
from whet.skills.policy import Policy
from whet.skills.proposing import Proposing
from whet.skills.report import report
from whet.skills.sealed import Tested, take_test, tasks_to_test
from whet.skills.shelf import Shelf, copy_skill
from whet.skills.task_split import Splits, split_tasks
from whet.tasks import Task, read_tasks
from whet.version import __version__

TERMS = "sharpen.json"
"""What was fixed before the first rollout."""
BEST, LEADER, REPORT = "best", "leader", "report.md"


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


@dataclass(frozen=True, slots=True)
class Begun:
    """The run is open."""

    folder: Path
    skill: Skill
    splits: Splits
    plan: Plan


Event = Begun | Step | Held | Ended | Stopped
Watch = Callable[[Event], None]


async def sharpen_skill(
    wish: Sharpening, writer: Writer, config: Config, watch: Watch = lambda _: None, env: Mapping[str, str] = os.environ
) -> Outcome:
    """Sharpen a skill, or go on with it. NotMeasured when too much was lost; then it can be resumed."""
    folder = wish.request.out
    splits = split_tasks(read_tasks(wish.request.tasks), wish.plan.seed)
    refuse_existing(folder, resume=wish.request.resume)
    shelf = Shelf(folder / "skills")
    start = shelf.keep(read_skill(wish.skill))
    fix_terms(folder / TERMS, _terms(wish, start, splits))
    watch(Begun(folder, start, splits, wish.plan))
    # A tenth of the budget at most is put aside for each side of the test.
    test = tasks_to_test(splits.test, wish.plan.seed, wish.plan.budget // 10)
    parts = {Part.SEARCH: splits.train, Part.EXAM: splits.validation, Part.TEST: test}
    request = replace(wish.request, skills=(start.folder,))
    async with open_lab(folder, request, parts, config, shelf, env, watch) as lab:
        done = await _search_and_certify(wish, writer, start, splits, shelf, lab, watch, aside=2 * len(test))
        tested = await _test(folder, done, test, lab)
        certificate = _certificate(wish, done, splits, lab.made_with, tested)
    best, leader = shelf.get(done.certified), shelf.get(done.leader)
    outcome = Outcome(folder, done, start, best, leader, certificate, wish.plan.budget)
    _hand_out(outcome)
    return outcome


async def _search_and_certify(
    wish: Sharpening,
    writer: Writer,
    start: Skill,
    splits: Splits,
    shelf: Shelf,
    lab: Lab,
    watch: Watch,
    *,
    aside: int,
) -> Sharpened:
    folder = wish.request.out
    train = {task.id: task for task in splits.train}
    proposing = Proposing(writer, shelf, folder / Part.SEARCH, train, wish.policy, folder / "drafts", wish.preferences)

    def pass_on(event: Step | Held) -> None:
        if isinstance(event, Held):
            proposing.learn(certified=event.attempt.verdict is Verdict.CERTIFIED)
        watch(event)

    try:
        return await sharpen(
            start.digest,
            tuple(train),
            tuple(task.id for task in splits.validation),
            replace(wish.plan, budget=wish.plan.budget - aside),
            proposing,
            lab,
            pass_on,
        )
    except NotMeasured as nothing:
        await lab.forget(nothing.keys)
        raise


async def _test(folder: Path, done: Sharpened, tasks: Sequence[Task], lab: Lab) -> Tested | None:
    """Test what was certified against the start, once."""
    if done.certified == done.start or not tasks:
        return None
    tested = await take_test(folder / Part.TEST, done.start, done.certified, [task.id for task in tasks], lab)
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
        alpha=wish.plan.alpha,
        levels=tuple(islice(levels(wish.plan.alpha, wish.plan.attempts), exams)),
        seed=wish.plan.seed,
        made_with=made_with,
        tasks={task.id: task.digest for task in splits.validation},
        records=tuple(map(record_of, done.held)),
        test=tested,
    )


def _terms(wish: Sharpening, start: Skill, splits: Splits) -> dict[str, object]:
    sides = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {
        "skill": start.digest,
        **common_terms(wish.request, wish.plan),
        "proposer": wish.proposer,
        "preferences": wish.preferences,
        "policy": wish.policy.model_dump(mode="json"),
        "tasks": {name: {task.id: task.digest for task in side} for name, side in sides.items()},
    }


def _hand_out(outcome: Outcome) -> None:
    write_certificate(outcome.certificate, outcome.folder)
    (outcome.folder / REPORT).write_text(report(outcome), encoding="utf-8")
    for name, skill in ((BEST, outcome.best), (LEADER, outcome.leader)):
        shutil.rmtree(outcome.folder / name, ignore_errors=True)
        copy_skill(skill, outcome.folder / name)
