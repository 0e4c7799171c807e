"""Whole runs in worlds of new tasks, in which proposals move every task a little: the engine with all defaults, and the
rules of SkillOpt and GEPA in its place, at the same number of rollouts."""

from dataclasses import dataclass
from itertools import repeat

import numpy as np
import uvloop
from scipy.special import expit, logit

from gate_report import NONE, Bench, Cell, Grid, grid, mean, rate
from gate_rivals import GEPA, MINIBATCH
from gate_runs import RULES
from many_exams import Floats, chances, thrown
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Outcome, RolloutKey
from whole_runs import PER_PROPOSAL, Paying, run_two_tiers

TEST = 400
_RUNS, _SHARD = 400, 20


@dataclass(frozen=True, slots=True)
class Kind:
    """How often proposals do nothing or harm, and how much the others help."""

    null: float
    harmful: float
    helps: float


KINDS = {"rich": Kind(0.50, 0.30, 0.8), "lean": Kind(0.55, 0.37, 0.4)}
POPULATIONS = tuple((kind, tasks, budget) for kind in KINDS for tasks, budget in ((20, 1000), (30, 1500), (30, 4000)))
Lifts = tuple[float, float]
"""Of what is returned and of the leader, on the test tasks."""


class Population:
    """Tasks of one run: validation, dev and test, and what proposals make of them. A skill goes by its number."""

    def __init__(self, kind: str, tasks: int, seed: int) -> None:
        self._kind, self.tasks = KINDS[kind], tasks
        self._random = np.random.default_rng(1000 * seed + tasks)
        self._logits = [logit(chances(self._random, 1, 2 * tasks + TEST)[0])]

    def propose(self, leader: str) -> str:
        """Whatever the proposal does, it does to some tasks more than to others."""
        kind, drawn = self._kind, self._random.random()
        if drawn < kind.null:
            shift, spread = 0.0, 0.25
        elif drawn < kind.null + kind.harmful:
            shift, spread = -abs(self._random.normal(0, 0.5)), 0.5
        else:
            shift, spread = abs(self._random.normal(0, kind.helps)), 0.5
        before = self._logits[int(leader)]
        self._logits.append(before + shift + spread * self._random.standard_normal(before.shape))
        return str(len(self._logits) - 1)

    def chances(self, skill: str) -> Floats:
        found: Floats = expit(self._logits[int(skill)])
        return found

    def lift(self, skill: str) -> float:
        """In points, on tasks that nobody saw."""
        return 100 * float((self.chances(skill) - self.chances("0"))[2 * self.tasks :].mean())


def populations(bench: Bench) -> list[Grid]:
    """Mean lift of what is returned, and how often it is worse than the start."""
    runs, rows = bench.runs(_RUNS), list[tuple[str, list[Cell]]]()
    for kind, tasks, budget in POPULATIONS:
        for rule in ("whet", *RULES):
            found = _runs(bench, rule, kind, tasks, budget, runs)
            leader = rate(found[:, 1] < 0) if rule == "whet" else NONE
            cells = [mean(found[:, 0], 1), rate(found[:, 0] < 0), leader]
            rows.append((f"{kind}, {tasks} tasks, {budget:,} rollouts: {rule}", cells))
    columns = ("world: who decides", "points returned", "returned worse than the start", "leader worse")
    return [grid(f"Whole runs in worlds of new tasks, at equal budgets; {runs} runs", columns, rows)]


def _runs(bench: Bench, rule: str, kind: str, tasks: int, budget: int, runs: int) -> Floats:
    firsts = range(0, runs, _SHARD)
    numbers = (min(_SHARD, runs - first) for first in firsts)
    cases = repeat(rule), repeat(kind), repeat(tasks), repeat(budget), firsts, numbers
    return np.array([lifts for shard in bench.pool.map(_shard, *cases) for lifts in shard])


def _shard(rule: str, kind: str, tasks: int, budget: int, first: int, number: int) -> list[Lifts]:
    worlds = [(seed, Population(kind, tasks, seed)) for seed in range(first, first + number)]
    if rule != "whet":
        return [_by_rule(rule, world, budget, seed) for seed, world in worlds]

    async def runs() -> list[Lifts]:
        return [await _by_whet(world, budget, seed) for seed, world in worlds]

    return uvloop.run(runs())


async def _by_whet(world: Population, budget: int, seed: int) -> Lifts:
    names = [[f"{split}-{number}" for number in range(world.tasks)] for split in ("validation", "dev")]
    place = {name: number for number, name in enumerate(name for split in names for name in split)}
    random, outcomes, odds = np.random.default_rng([seed, 1]), dict[RolloutKey, float](), dict[str, list[float]]()

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        if key not in outcomes:
            if skill not in odds:
                odds[skill] = world.chances(skill)[: len(place)].tolist()
            outcomes[key] = float(random.random() < odds[skill][place[task]])
        return outcomes[key]

    validation, dev = names
    done = await run_two_tiers("0", dev, validation, GatePlan(budget, seed), Paying(world.propose), rollouts)
    return world.lift(done.certified), world.lift(done.leader)


def _by_rule(rule: str, world: Population, budget: int, seed: int) -> Lifts:
    """As in the world of known truth: one bar, measured once and replaced by each winner's score."""
    random, tasks = np.random.default_rng([seed, 2]), world.tasks

    def measured(skill: str) -> float:
        return float(thrown(random, world.chances(skill)[:tasks]).mean())

    leader, left = "0", budget - tasks
    bar = measured(leader)
    while left >= PER_PROPOSAL + tasks:
        candidate = world.propose(leader)
        left -= 2 * MINIBATCH if rule == GEPA else PER_PROPOSAL
        if rule == GEPA:
            few = tasks + random.choice(tasks, MINIBATCH, replace=False)
            if thrown(random, world.chances(candidate)[few]).sum() <= thrown(random, world.chances(leader)[few]).sum():
                continue
        left -= tasks
        if (found := measured(candidate)) > bar:
            leader, bar = candidate, found
    return world.lift(leader), world.lift(leader)
