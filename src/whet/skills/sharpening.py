"""Sharpening a skill from the request to the folders that hold what came of it. Command line and API start here."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.runs.bench import Request
from whet.runs.config import Config
from whet.runs.scheduler import Ended, Stopped, refuse_existing
from whet.skill import Skill, read_skill
from whet.skills.attempt import Verdict
from whet.skills.brief import Writer
from whet.skills.engine import Held, NotMeasured, Sharpened, Step, sharpen
from whet.skills.lab import Lab, Part, open_lab
from whet.skills.plan import Plan
from whet.skills.policy import Policy
from whet.skills.proposing import Proposing
from whet.skills.shelf import Shelf, copy_skill
from whet.skills.task_split import Splits, split_tasks
from whet.tasks import read_tasks
from whet.version import __version__

TERMS = "sharpen.json"
"""What was fixed before the first rollout."""
BEST, LEADER = "best", "leader"


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it, and where it lies."""

    folder: Path
    done: Sharpened
    start: Skill
    best: Skill
    """The last certified skill; the start when none was."""
    leader: Skill
    """The best that the search found. Nothing is promised of it."""

    @property
    def certified(self) -> list[Held]:
        return [held for held in self.done.held if held.attempt.verdict is Verdict.CERTIFIED]


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
    _fix_terms(folder / TERMS, terms_of(wish, start, splits))
    watch(Begun(folder, start, splits, wish.plan))
    parts = {Part.SEARCH: splits.train, Part.EXAM: splits.validation, Part.TEST: splits.test}
    request = replace(wish.request, skills=(start.folder,))
    async with open_lab(folder, request, parts, config, shelf, env, watch) as lab:
        done = await _search_and_certify(wish, writer, start, splits, shelf, lab, watch)
    outcome = Outcome(folder, done, start, shelf.get(done.certified), shelf.get(done.leader))
    _hand_out(outcome)
    return outcome


async def _search_and_certify(
    wish: Sharpening, writer: Writer, start: Skill, splits: Splits, shelf: Shelf, lab: Lab, watch: Watch
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
            wish.plan,
            proposing,
            lab,
            pass_on,
        )
    except NotMeasured as nothing:
        await lab.forget(nothing.keys)
        raise


def terms_of(wish: Sharpening, start: Skill, splits: Splits) -> dict[str, Any]:
    """All that decisions rest on, in JSON."""
    sides = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    terms = {
        "whet": __version__,
        "skill": start.digest,
        "agent": wish.request.agents[0],
        "model": wish.request.models[0],
        "judge_model": wish.request.judge_model,
        "sandbox": wish.request.sandbox,
        "proposer": wish.proposer,
        "preferences": wish.preferences,
        "policy": wish.policy.model_dump(mode="json"),
        "plan": asdict(wish.plan),
        "tasks": {name: {task.id: task.digest for task in side} for name, side in sides.items()},
    }
    read: dict[str, Any] = json.loads(json.dumps(terms))
    return read


def _fix_terms(file: Path, terms: Mapping[str, Any]) -> None:
    """Write down what was fixed, or see that it is still so."""
    if not file.is_file():
        apart = file.with_suffix(".part")
        apart.write_text(json.dumps(terms, indent=1) + "\n")
        apart.replace(file)
        return
    before = json.loads(file.read_text())
    changed = sorted(key for key in {*before, *terms} if before.get(key) != terms.get(key))
    if changed:
        raise UserError(
            f"{file}: the run was begun with other terms ({', '.join(changed)}); go on with those, "
            "or start a new run with another --out"
        )


def _hand_out(outcome: Outcome) -> None:
    for name, skill in ((BEST, outcome.best), (LEADER, outcome.leader)):
        shutil.rmtree(outcome.folder / name, ignore_errors=True)
        copy_skill(skill, outcome.folder / name)
