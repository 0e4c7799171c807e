"""`make check-skillopt`: SkillOpt's own acceptance experiment, run by SkillOpt and by whet in the same mock world.

A rollout is one attempt of its mock agent at one task; both sides are counted there. whet looks for rules with
SkillOpt's own reflection, and its engine decides. SkillOpt's count holds the scoring before and after that is its
experiment's evidence; whet's holds the exam that is its own, up to the certificate.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

sys.path.append(sys.argv[1])
from skillopt_sleep.backend import MockBackend
from skillopt_sleep.experiments import run_experiment
from skillopt_sleep.experiments.personas import PERSONAS, harmful_edit_task
from skillopt_sleep.memory import apply_edits, ensure_skill_scaffold
from skillopt_sleep.mine import assign_splits
from skillopt_sleep.replay import replay_one

from whet.skills.gate.exam import ExamSequence, RolloutBudget, run_exam
from whet.skills.gate.gate import ExamResult, ExamSetting
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.gate.sequential_test import ExamTerms, SequentialTest
from whet.skills.measurement import Outcome, Pay, RolloutKey, RunPart, Verdict
from whet.skills.proposers.base import SearchStep
from whet.skills.search.two_tiers import SearchResult, SearchSetting, search_and_certify

HARMFUL = MockBackend.RULE_TEXT["__harmful__"]
SEED, EDITS = 42, 4
PLAN = GatePlan(budget=400)


@dataclass(frozen=True, slots=True)
class Ended:
    """What one side came to."""

    score: float
    """Of the final skill on the held-out tasks, by SkillOpt's own metric."""
    learning: int
    """Rollouts until it accepted the final skill."""
    probe: int
    """Rollouts until it had decided on the harmful edit."""
    harmful_rejected: bool


class Counter:
    """How many rollouts there were so far."""

    def __init__(self) -> None:
        self.rollouts = 0
        attempt = MockBackend.attempt

        def counted(backend: Any, *args: Any, **kwargs: Any) -> Any:
            self.rollouts += 1
            return attempt(backend, *args, **kwargs)

        self.patch = patch.object(MockBackend, "attempt", counted)


def main() -> int:
    faults = []
    for persona in PERSONAS:
        theirs, ours = by_skillopt(persona), asyncio.run(by_whet(persona))
        for name, ended in (("skillopt", theirs), ("whet", ours)):
            print(
                f"{persona}, {name}: final score {ended.score:.3f} after {ended.learning} rollouts; harmful edit "
                f"{'rejected' if ended.harmful_rejected else 'ACCEPTED'} after {ended.probe}"
            )
        if ours.score < theirs.score:
            faults.append(f"{persona}: whet ends at {ours.score:.3f}, skillopt at {theirs.score:.3f}")
        if ours.learning > theirs.learning or ours.probe > theirs.probe:
            faults.append(f"{persona}: whet takes more rollouts than skillopt")
        if not ours.harmful_rejected:
            faults.append(f"{persona}: whet takes the harmful edit")
    print("\n".join(faults) or "whet ends at the same scores, with no more rollouts, and rejects the harmful edit")
    return 1 if faults else 0


def by_skillopt(persona: str) -> Ended:
    """Its experiment as it is: a held-out score before and after, nights until it is perfect, then the probe."""
    counter, learned = Counter(), []

    def probing() -> Any:
        learned.append(counter.rollouts)
        return harmful_edit_task()

    with counter.patch, patch.object(run_experiment, "harmful_edit_task", probing):
        found = run_experiment.run(persona, edit_budget=EDITS, seed=SEED)
    (learning,) = learned
    return Ended(found["after_holdout"], learning, counter.rollouts - learning, found["gate_blocks_harmful"])


async def by_whet(persona: str) -> Ended:
    """The same tasks in the same splits, from the same start; then the same probe."""
    counter = Counter()
    with counter.patch:
        start = ensure_skill_scaffold("", name="skillopt-sleep-learned", description="Learned preferences.")
        world = MockWorld(assign_splits(PERSONAS[persona](), holdout_fraction=0.34, seed=SEED))
        certified: list[int] = []
        done = await world.sharpened(start, lambda seen: certified.append(counter.rollouts) if _is_new(seen) else None)
        assert certified, f"{persona}: whet certified nothing"
        print(f"{persona}, whet: {counter.rollouts - certified[0]} rollouts after the certificate, to bound the lift")
        before_probe = counter.rollouts
        few = assign_splits([harmful_edit_task(), *PERSONAS[persona]()[:3]], holdout_fraction=0.5, seed=SEED)
        tried = await MockWorld(few).sharpened(done.certified)
        probed = counter.rollouts - before_probe
        # In some splits the harmful edit is never proposed; so it is held before the exam as well.
        rejected = HARMFUL not in tried.certified and await world.refuses(done.certified, HARMFUL)
        score = run_experiment._score_holdout(world.backend, list(world.tasks.values()), done.certified, "")
    return Ended(round(score, 4), certified[0], probed, rejected)


def _is_new(seen: object) -> bool:
    return isinstance(seen, ExamResult) and seen.test.verdict is Verdict.CERTIFIED


class MockWorld:
    """SkillOpt's mock agent, judge and reflection, as whet's rollouts and proposer. Skills stand for themselves."""

    def __init__(self, tasks: Sequence[Any]) -> None:
        self.backend, self.tasks = MockBackend(), {task.id: task for task in tasks}
        self._replayed: dict[RolloutKey, Any] = {}
        self._trained: dict[str, list[tuple[Any, Any]]] = {}

    async def sharpened(self, start: str, watch: Callable[[object], None] = lambda _: None) -> SearchResult:
        search = SearchSetting(self._split("train"), self)
        exams = ExamSetting(tuple(self._split("val")), Seed.choose(PLAN.seed))
        return await search_and_certify(start, PLAN, search, exams, self, watch)

    async def refuses(self, incumbent: str, rule: str) -> bool:
        """Whether a skill with this rule fails the exam, even if the search had taken it."""
        exam = ExamSequence(incumbent, f"{incumbent}\n{rule}", self._split("val"), str(SEED), 1, "")
        attempt = SequentialTest(ExamTerms(0.05, 24))
        await run_exam(exam, attempt, self, RolloutBudget(100))
        return attempt.verdict is not Verdict.CERTIFIED

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        """All or nothing: whether the agent answered exactly."""
        if key not in self._replayed:
            self._replayed[key] = replay_one(self.backend, self.tasks[task], skill, "")
            if key.part is RunPart.SEARCH:
                self._trained.setdefault(skill, []).append((self.tasks[task], self._replayed[key]))
        return float(self._replayed[key].hard)

    async def propose(
        self,
        parent: str,
        steps: Sequence[SearchStep],
        pay: Pay,
        section: str | None = None,
    ) -> str | None:
        """What SkillOpt's reflection says of the failures that the search has seen; it needs no rollouts of its own."""
        failures = [(task, found) for task, found in self._trained[parent] if found.hard < 1]
        edits = self.backend.reflect(
            failures, [], parent, "", edit_budget=EDITS, evolve_skill=True, evolve_memory=False
        )
        edited, applied = apply_edits(parent, edits)
        candidates = {step.candidate for step in steps}
        return str(edited) if applied and edited not in candidates else None

    def _split(self, name: str) -> tuple[str, ...]:
        return tuple(task.id for task in self.tasks.values() if task.split == name)


if __name__ == "__main__":
    sys.exit(main())
