"""Worlds in which the engine is run whole, with known truth: tasks with chances, proposals that change them, a model
that changes while the run lasts, and rollouts that are lost."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, logit

from many_exams import SEED, Floats, chances, common_shift
from whet.scoring import Cause
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Execution, NotMeasured, Outcome, RolloutKey, Verdict
from whet.skills.search.two_tiers import SearchResult
from whole_runs import Paying, run_two_tiers

_EXACT = 1e-9
START = "0"
"""Skills go by their numbers."""

Random = np.random.Generator
Start = Callable[[Random, int], Floats]
"""Chances of the skill that a run begins with, on so many tasks."""
Proposal = Callable[[Random, Floats], Floats]
"""Chances of a candidate, from those of its parent."""
Score = Callable[[Random, float, bool], float]
"""What a rollout scores, from its chance and whether its skill is a new one."""
Noise = Callable[[Random, int], Floats]
"""What is added to all logits at each of so many calls, one after the other."""


def beta(shape: float) -> Start:
    return lambda random, tasks: chances(random, 1, tasks, shape)[0]


def same(_: Random, parent: Floats) -> Floats:
    """A proposal that does nothing."""
    return parent


def succeed(random: Random, chance: float, _: bool) -> float:
    return float(random.random() < chance)


@dataclass(frozen=True, slots=True)
class Losses:
    """Which rollouts have no score, or had their calls sent again."""

    failures: float = 0.0
    """The share of a new skill's failures."""
    successes: float = 0.0
    """The share of the first skill's successes."""
    both: float = 0.0
    """The share of all rollouts of either skill, whatever they score."""
    tries: int = 1
    """How often the gateway sends a call before the rollout counts as lost."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a world before its run."""

    start: Start = field(default_factory=lambda: beta(0.8))
    proposal: Proposal = same
    tasks: int = 30
    training: int = 30
    budget: int = 1500
    proposals: int | None = None
    """None: as many as the budget is good for."""
    score: Score = succeed
    noise: Noise | None = None
    losses: Losses = Losses()


class World:
    """One run of a setting."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.seed = setting, seed
        self.validation = [f"val-{number}" for number in range(setting.tasks)]
        self.training = [f"train-{number}" for number in range(setting.training)]
        self._place = {name: number for number, name in enumerate(self.validation + self.training)}
        self._random = np.random.default_rng([SEED, seed])
        self.skills = [setting.start(self._random, len(self._place))]
        self._noise = None if setting.noise is None else setting.noise(self._random, 2 * setting.budget)
        self._calls, self._outcomes = 0, dict[RolloutKey, Outcome]()
        self.resent: dict[RolloutKey, int] = {}
        """By the keys of rollouts, how often their calls were sent again."""

    def propose(self, leader: str) -> str | None:
        if self.setting.proposals is not None and len(self.skills) > self.setting.proposals:
            return None
        self.skills.append(self.setting.proposal(self._random, self.skills[int(leader)]))
        return str(len(self.skills) - 1)

    def lift(self, skill: str, over: str = START) -> float:
        """By how much one skill is better than another on the validation tasks: the truth."""
        return float((self.skills[int(skill)] - self.skills[int(over)])[: self.setting.tasks].mean())

    async def read_execution(self, key: RolloutKey) -> Execution:
        return Execution(resent=self.resent.get(key, 0))

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        if key not in self._outcomes:
            self._outcomes[key] = self._roll_out(task, skill, key)
        return self._outcomes[key]

    def _roll_out(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        losses, chance = self.setting.losses, float(self.skills[int(skill)][self._place[task]])
        for number in range(losses.tries):
            score = self.setting.score(self._random, self._now(chance), skill != START)
            lost = losses.failures * (score < 0.5) if skill != START else losses.successes * (score >= 0.5)
            if self._random.random() >= losses.both + (1 - losses.both) * lost:
                self.resent[key] = number
                return score
        self.resent[key] = losses.tries - 1
        return Cause.AGENT

    def _now(self, chance: float) -> float:
        if self._noise is None:
            return chance
        self._calls += 1
        return float(expit(logit(chance) + self._noise[self._calls - 1]))


async def run(world: World) -> SearchResult:
    """The engine with all defaults."""
    plan = GatePlan(world.setting.budget, world.seed)
    tasks = world.training, world.validation
    return await run_two_tiers(START, *tasks, plan, Paying(world.propose), world, read_execution=world.read_execution)


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one run, by the truth."""

    certified: bool
    false: bool
    """Whether anything was certified that is not better than what it replaced."""
    attempts: int
    rollouts: int


async def run_one(setting: Setting, seed: int) -> Ran:
    """A run that breaks off because too much was lost has certified nothing."""
    world = World(setting, seed)
    try:
        done = await run(world)
    except NotMeasured:
        return Ran(certified=False, false=False, attempts=0, rollouts=len(world.resent))
    certified = [held for held in done.exam_results if held.test.verdict is Verdict.CERTIFIED]
    return Ran(
        certified=bool(certified),
        false=any(world.lift(held.candidate, held.exam.incumbent) <= _EXACT for held in certified),
        attempts=len(done.exam_results),
        rollouts=done.spent,
    )


# A model that changes while the run lasts


def sudden(points: float) -> Noise:
    """All scores rise by so many points at one moment, somewhere in the middle of the run."""

    def noise(random: Random, calls: int) -> Floats:
        at = random.integers(calls // 10, calls // 2 - calls // 10)
        return np.where(np.arange(calls) < at, 0.0, _rise(points))

    return noise


def even(points: float) -> Noise:
    """The same, evenly over the run."""
    return lambda _, calls: np.linspace(0, 2 * _rise(points), calls)


def slow(deviation: float, length: float) -> Noise:
    """Noise that all rollouts have in common, and that lasts for so many calls: AR(1), in logits."""

    def noise(random: Random, calls: int) -> Floats:
        kept = np.exp(-1 / length)
        steps = random.standard_normal(calls)
        found = np.empty(calls)
        found[0] = steps[0]
        for number in range(1, calls):
            found[number] = kept * found[number - 1] + np.sqrt(1 - kept**2) * steps[number]
        return deviation * found

    return noise


def _rise(points: float) -> float:
    """In logits, for tasks that are as hard as easy."""
    tasks = logit(chances(np.random.default_rng(SEED), 1, 2000))
    return float(common_shift(tasks, expit(tasks).mean(axis=1) + points / 100)[0])


# Proposals


def fix_and_break(number: int) -> Proposal:
    """For an agent without chance: so many failed tasks succeed from now on, and as many others fail. Of the training
    tasks fewer fail, or the search would never take it."""

    def proposal(random: Random, parent: Floats) -> Floats:
        changed = parent.copy()
        validation, training = np.split(np.arange(len(parent)), 2)
        for half, breaks in ((validation, number), (training, number - 3)):
            fails, works = half[parent[half] < 0.5], half[parent[half] >= 0.5]
            few = min(number, len(fails), len(works))
            changed[random.choice(fails, few, replace=False)] = 1.0
            changed[random.choice(works, min(few, breaks), replace=False)] = 0.0
        return changed

    return proposal


def half_solved(random: Random, tasks: int) -> Floats:
    """An agent without chance that solves half of the tasks of each split."""
    half = np.repeat([0.0, 1.0], [tasks // 4, tasks // 2 - tasks // 4])
    return np.concatenate([random.permutation(half), random.permutation(half)])


def harm(random: Random, parent: Floats) -> Floats:
    moved: Floats = expit(logit(parent) - abs(random.normal(0.3, 0.3)))
    return moved


def uneven(spread: float) -> Proposal:
    """Does nothing on average over all tasks there might be, but something on each of these."""
    return lambda random, parent: np.asarray(expit(logit(parent) + spread * random.standard_normal(parent.shape)))


def flips(share: float) -> Proposal:
    """The same for an agent almost without chance: tasks turn round, as many for the better as for the worse."""

    def proposal(random: Random, parent: Floats) -> Floats:
        turned = random.random(parent.shape) < share
        return np.where(turned, 1 - parent, parent)

    return proposal


def nearly_sure(random: Random, tasks: int) -> Floats:
    return np.where(random.random(tasks) < 0.5, 0.02, 0.98)


# Scores between 0 and 1; each pair has the same mean


def sure_or_full(sure: float) -> Score:
    """The first skill scores this each time; a new one 1 with this chance, and else 0."""
    return lambda random, _, new: float(random.random() < sure) if new else sure


def rarely_much(random: Random, _: float, new: bool) -> float:
    """A new skill is better by .95 in few rollouts, and worse by .05 in most."""
    return 0.05 if not new else float(random.random() < 0.05)


def eighths(random: Random, chance: float, _: bool) -> float:
    """The share of eight tests that pass."""
    return float(random.binomial(8, chance)) / 8
