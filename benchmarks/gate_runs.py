"""Whole runs in the world of known truth: the engine with all defaults, and the rules of SkillOpt and GEPA instead; and
how much of a good leader's lift the engine certifies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import uvloop

from gate_attempts import PLAN
from gate_report import NONE, Bench, Cell, Grid, cost, grid, mean, often, rare, rate
from gate_rivals import GEPA, MINIBATCH, SKILLOPT
from known_world import World, WorldProposer
from many_exams import SEED, population, thrown
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Outcome, RolloutKey, Verdict
from whole_runs import PER_PROPOSAL, Paying, run_two_tiers, whole

RULES = (SKILLOPT, GEPA)
_SHARD = 20
_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run, by the truth."""

    accepted: int
    """Certified, or taken by a rule."""
    false: int
    """Of these, not better than what they replaced."""
    returned: float
    """Lift over the start, on tasks that nobody saw."""
    leader: float
    too_high: float
    """By how much the score that the run ends with is above the truth."""


KINDS = {
    ("null", 1500): "every proposal does nothing",
    ("mixed", 1500): "every proposal helps half of the tasks as much as it harms the others",
    ("harm", 1500): "every proposal does nothing, or harms",
    ("rich", 1500): "a quarter of the proposals help",
    ("rich", 3000): "a quarter of the proposals help",
}
_RUNS = 1000


def whole_runs(bench: Bench) -> list[Grid]:
    """The engine with all defaults, and the rules of others."""
    runs, rows = bench.runs(_RUNS), list[tuple[str, list[Cell]]]()
    for (kind, budget), what in KINDS.items():
        for rule in ("whet", *RULES):
            found = _runs(bench, rule, kind, budget, runs)
            rows.append((f"{what}, {budget:,} rollouts: {rule}", _figures(found, promised=rule == "whet")))
    columns = (
        "proposals, budget: who decides",
        "accepts any",
        "any that is not better",
        "lift returned",
        "returned worse",
        "lift of the leader",
        "leader worse",
        "score shown too high by",
    )
    return [grid(f"Whole runs from the empty skill, 30 + 30 tasks, all defaults; {runs:,} runs", columns, rows)]


def _figures(runs: Sequence[Run], *, promised: bool) -> list[Cell]:
    false = [run.false > 0 for run in runs]
    leaders = [mean([run.leader for run in runs]), rate([run.leader < -_EXACT for run in runs])]
    return [
        rate([run.accepted > 0 for run in runs]),
        rare(false, PLAN.alpha) if promised else rate(false),
        mean([run.returned for run in runs]),
        rate([run.returned < -_EXACT for run in runs]),
        *(leaders if promised else (NONE, NONE)),
        mean([run.too_high for run in runs]),
    ]


def _runs(bench: Bench, rule: str, kind: str, budget: int, runs: int) -> list[Run]:
    firsts = range(0, runs, _SHARD)
    numbers = (min(_SHARD, runs - first) for first in firsts)
    shards = bench.pool.map(_shard, repeat(rule), repeat(kind), repeat(budget), firsts, numbers)
    return [run for shard in shards for run in shard]


def _shard(rule: str, kind: str, budget: int, first: int, number: int) -> list[Run]:
    seeds = range(first, first + number)
    if rule != "whet":
        return [_rule_run(rule, kind, seed, budget) for seed in seeds]

    async def runs() -> list[Run]:
        return [await _engine_run(kind, seed, budget) for seed in seeds]

    return uvloop.run(runs())


async def _engine_run(kind: str, seed: int, budget: int) -> Run:
    done, world = await whole(kind, seed, budget)
    certified = [held for held in done.exam_results if held.test.verdict is Verdict.CERTIFIED]
    return Run(
        accepted=len(certified),
        false=sum(world.lift(held.candidate, held.exam.incumbent) <= _EXACT for held in certified),
        returned=world.lift(done.certified, split="test"),
        leader=world.lift(done.leader, split="test"),
        # What is certified is printed as a lower bound.
        too_high=max((_above_truth(world, held) for held in certified), default=0.0),
    )


def _above_truth(world: World, held: ExamResult) -> float:
    return max(0.0, held.test.at_least() - world.lift(held.candidate, held.exam.incumbent))


def _rule_run(rule: str, kind: str, seed: int, budget: int) -> Run:
    """The bar is measured once on the validation tasks, and is then what the last winner had there."""
    world, proposer = World(), WorldProposer(kind, seed)
    random = np.random.default_rng([SEED, 30, seed])
    validation, train = world.tasks("validation"), world.tasks("train")
    leader, accepted, false = "", 0, 0
    bar, left = _measure(random, world, validation, leader), budget - len(validation)
    while left >= PER_PROPOSAL + len(validation):
        candidate = proposer.propose(leader)
        # GEPA reflects on the three tasks that it tries parent and child on.
        left -= 2 * MINIBATCH if rule == GEPA else PER_PROPOSAL
        if rule == GEPA:
            few = [train[number] for number in random.choice(len(train), MINIBATCH, replace=False)]
            if _measure(random, world, few, candidate) <= _measure(random, world, few, leader):
                continue
        left -= len(validation)
        found = _measure(random, world, validation, candidate)
        if found > bar:
            accepted, false = accepted + 1, false + (world.lift(candidate, leader) <= _EXACT)
            leader, bar = candidate, found
    lift, truth = world.lift(leader, split="test"), float(np.mean([world.chance(task, leader) for task in validation]))
    return Run(accepted, false, lift, lift, bar - truth)


def _measure(random: np.random.Generator, world: World, tasks: Sequence[str], skill: str) -> float:
    return float(thrown(random, np.array([world.chance(task, skill) for task in tasks])).mean())


# A leader that is there

LEADERS: Mapping[tuple[float, int], float | None] = {
    (0.0, 12): None,
    (0.12, 12): None,
    (0.208, 12): 0.80,
    (0.261, 12): 0.80,
    (0.30, 12): 0.90,
    (0.208, 1000): None,
    (0.30, 1000): None,
}
"""By true lift and the number of proposals: how often it is certified, at least. A search with more proposals than it
can pay leaves nothing to the exam."""
_LEADER_RUNS, _TASKS, _BUDGET = 800, 24, 800
Found = tuple[bool, int, float]
"""Whether it was certified, after how many rollouts, and the bound."""


def leaders(bench: Bench) -> list[Grid]:
    """The search finds a leader by three edits, has it examined early, and finds nothing better. Does the rest of the
    budget certify it?"""
    runs, rows = bench.runs(_LEADER_RUNS), list[tuple[str, list[Cell]]]()
    for (lift, proposals), share in LEADERS.items():
        firsts = range(0, runs, _SHARD)
        numbers = (min(_SHARD, runs - first) for first in firsts)
        shards = bench.pool.map(_leader_shard, repeat(lift), repeat(proposals), firsts, numbers)
        found = [one for shard in shards for one in shard]
        hits, spent, bounds = zip(*found, strict=True)
        certified = rare(hits, PLAN.alpha) if lift == 0 else often(hits, share) if share else rate(hits)
        at_least = mean([bound for hit, bound in zip(hits, bounds, strict=True) if hit])
        rows.append((f"{lift:+.3f}, {proposals:,}", [certified, cost(spent), at_least]))
    title = f"A leader on {_TASKS} tasks, {_BUDGET} rollouts in all; {runs} runs"
    return [grid(title, ("its true lift, proposals", "certified", "rollouts used", "bound, where certified"), rows)]


def _leader_shard(lift: float, proposals: int, first: int, number: int) -> list[Found]:
    async def runs() -> list[Found]:
        return [await leader_run(lift, proposals, seed) for seed in range(first, first + number)]

    return uvloop.run(runs())


async def leader_run(lift: float, proposals: int, seed: int) -> Found:
    """One run of the engine in which the search finds a skill with this lift and no better one."""
    random = np.random.default_rng([SEED, 31, seed])
    before, after = (arm[0] for arm in population(random, 1, _TASKS, lift))
    steps = [before + (after - before) * part for part in (0, 1 / 3, 2 / 3, 1)]

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        split, _, place = task.partition("-")
        if split == "train":  # each of the first three edits is taken, and none after
            return int(skill) / 10 if int(skill) < len(steps) else 0.0
        return float(random.random() < steps[int(skill)][int(place)])

    numbers = iter(range(1, proposals + 1))
    proposer = Paying(lambda _: next((str(number) for number in numbers), None))
    train, validation = ([f"{split}-{n}" for n in range(size)] for split, size in (("train", 10), ("val", _TASKS)))
    done = await run_two_tiers("0", train, validation, GatePlan(_BUDGET, seed), proposer, rollouts)
    certified = [held for held in done.exam_results if held.test.verdict is Verdict.CERTIFIED]
    return bool(certified), done.spent, certified[-1].test.at_least() if certified else 0.0
