"""Whole runs in the world of known truth: the engine with all defaults, and the rules of SkillOpt and GEPA instead."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import uvloop
from gate_report import Cell, Grid, grid, mean, rate
from many_attempts import SEED, thrown
from whole_runs import PER_PROPOSAL, certificates, whole

from whet.skills.attempt import Verdict
from whet.skills.gate import Held
from whet.testing.world import World, WorldProposer

_SHARD = 50
_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run, by the truth."""

    accepted: int
    """Certified, or taken by a rule."""
    false: int
    """Of these, no better than what they replaced."""
    returned: float
    """Lift over the start, on tasks that nobody saw."""
    leader: float
    too_high: float
    """By how much the score that the run ends with is above the truth."""


# Runs in which nothing helps

NULLS = {
    "null": ("does nothing", 0.006),
    "mixed": ("helps half of the tasks as much as it harms the others", None),
    "harm": ("does nothing, or harms", 0.003),
}
_NULL_RUNS, _BUDGET = 2000, 1500


def nothing_certified(pool: Executor) -> list[Grid]:
    """2,000 whole runs of each kind: how many certify, or accept, anything."""
    rows: list[tuple[str, list[Cell]]] = []
    for kind, (what, expected) in NULLS.items():
        found = _engine_runs(pool, kind, _BUDGET, _NULL_RUNS)
        any_ = [run.accepted > 0 for run in found]
        certified = rate(any_, expected, 1000, at_most=0.10)
        rows.append((f"{what}: whet", [certified, *_figures(found, at_most=0.01)]))
        for rule in RULES:
            rivals = _rule_runs(pool, rule, kind, _BUDGET, _NULL_RUNS)
            rows.append((f"{what}: {rule}", [rate([run.accepted > 0 for run in rivals]), *_figures(rivals)]))
    title = f"Runs in which nothing helps: every proposal ...; {_BUDGET:,} rollouts each, {_NULL_RUNS:,} runs"
    return [grid(title, ("every proposal ...: who decides", "runs that accept any", *_COLUMNS), rows)]


_COLUMNS = ("accepted per run", "returned worse than the start", "score shown too high by")


def _figures(runs: Sequence[Run], at_most: float | None = None) -> list[Cell]:
    return [
        mean([run.accepted for run in runs], rounded=0.001),
        rate([run.returned < -_EXACT for run in runs], at_most=at_most),
        mean([run.too_high for run in runs], rounded=0.001),
    ]


# Runs against the reference

WHOLE = {
    ("rich", 1500): (0.359, 0.069, 0.128, 0.056, 0.001),
    ("rich", 3000): (0.776, 0.154, 0.203, 0.022, 0.001),
    ("null", 1500): (0.006, None, None, None, 0.006),
    ("null", 3000): (0.012, None, None, None, 0.012),
    ("harm", 1500): (0.003, None, None, 0.57, 0.003),
    ("harm", 3000): (0.005, None, None, 0.81, 0.005),
}
"""By kind and budget: runs with a certificate, lift returned, of the leader, leader worse, with a false certificate."""
_WHOLE_RUNS = 1000


def whole_runs(pool: Executor) -> list[Grid]:
    """The engine with all defaults, and in the rich world the rules of others."""
    rows: list[tuple[str, list[Cell]]] = []
    for (kind, budget), (any_, returned, leader, worse, false) in WHOLE.items():
        found = _engine_runs(pool, kind, budget, _WHOLE_RUNS)
        cells = [
            rate([run.accepted > 0 for run in found], any_, 1000),
            rate([run.false > 0 for run in found], false, 1000, at_most=0.10),
            mean([run.returned for run in found], returned, 1000, 0.001),
            rate([run.returned < -_EXACT for run in found], 0.0, 1000, at_most=0.01),
            mean([run.leader for run in found], leader, 1000, 0.001),
            rate([run.leader < -_EXACT for run in found], worse, 1000),
        ]
        rows.append((f"{kind}, {budget:,} rollouts: whet", cells))
        for rule in RULES if kind == "rich" else ():
            rivals = _rule_runs(pool, rule, kind, budget, _WHOLE_RUNS)
            cells = [
                rate([run.accepted > 0 for run in rivals]),
                rate([run.false > 0 for run in rivals]),
                mean([run.returned for run in rivals], rounded=0.001),
                rate([run.returned < -_EXACT for run in rivals]),
                Cell("–"),
                Cell("–"),
            ]
            rows.append((f"{kind}, {budget:,} rollouts: {rule}", cells))
    columns = ("proposals, budget: who decides", "accepts any", "accepts what is no better", "lift returned")
    title = f"Whole runs from the empty skill, all defaults; {_WHOLE_RUNS:,} runs"
    return [grid(title, (*columns, "returned worse", "lift of the leader", "leader worse"), rows)]


def _engine_runs(pool: Executor, kind: str, budget: int, runs: int) -> list[Run]:
    shards = pool.map(_engine_shard, repeat(kind), repeat(budget), range(0, runs, _SHARD))
    return [run for shard in shards for run in shard]


def _engine_shard(kind: str, budget: int, first: int) -> list[Run]:
    async def runs() -> list[Run]:
        return [await _engine_run(kind, seed, budget) for seed in range(first, first + _SHARD)]

    return uvloop.run(runs())


async def _engine_run(kind: str, seed: int, budget: int) -> Run:
    done, world = await whole(kind, seed, budget)
    certified = [held for held in done.held if held.attempt.verdict is Verdict.CERTIFIED]
    return Run(
        accepted=certificates(done),
        false=sum(world.lift(held.candidate, held.exam.incumbent) <= _EXACT for held in certified),
        returned=world.lift(done.certified, split="test"),
        leader=world.lift(done.leader, split="test"),
        # What is certified is told as a lower bound.
        too_high=max((_above_truth(world, held) for held in certified), default=0.0),
    )


def _above_truth(world: World, held: Held) -> float:
    return max(0.0, held.attempt.at_least() - world.lift(held.candidate, held.exam.incumbent))


# Other rules in its place

SKILLOPT, GEPA = "strict, cached (SkillOpt)", "3 train tasks, strict (GEPA)"
RULES = (SKILLOPT, GEPA)
MINIBATCH = 3


def _rule_runs(pool: Executor, rule: str, kind: str, budget: int, runs: int) -> list[Run]:
    shards = pool.map(_rule_shard, repeat(rule), repeat(kind), repeat(budget), range(0, runs, _SHARD))
    return [run for shard in shards for run in shard]


def _rule_shard(rule: str, kind: str, budget: int, first: int) -> list[Run]:
    return [_rule_run(rule, kind, seed, budget) for seed in range(first, first + _SHARD)]


def _rule_run(rule: str, kind: str, seed: int, budget: int) -> Run:
    """The bar is measured once on the validation tasks, and is then what the last winner had there."""
    world, proposer = World(), WorldProposer(kind, seed)
    random = np.random.default_rng([SEED, 90, seed])
    validation, train = world.tasks("validation"), world.tasks("train")
    leader, accepted, false = "", 0, 0
    bar, left = _measured(random, world, validation, leader), budget - len(validation)
    while left >= PER_PROPOSAL + len(validation):
        candidate = proposer.propose(leader)
        # GEPA reflects on the three tasks that it tries parent and child on.
        left -= 2 * MINIBATCH if rule == GEPA else PER_PROPOSAL
        if rule == GEPA:
            few = [train[number] for number in random.choice(len(train), MINIBATCH, replace=False)]
            if _measured(random, world, few, candidate) <= _measured(random, world, few, leader):
                continue
        left -= len(validation)
        found = _measured(random, world, validation, candidate)
        if found > bar:
            accepted, false = accepted + 1, false + (world.lift(candidate, leader) <= _EXACT)
            leader, bar = candidate, found
    lift, truth = world.lift(leader, split="test"), float(np.mean([world.chance(task, leader) for task in validation]))
    return Run(accepted, false, lift, lift, bar - truth)


def _measured(random: np.random.Generator, world: World, tasks: Sequence[str], skill: str) -> float:
    return float(thrown(random, np.array([world.chance(task, skill) for task in tasks])).mean())
