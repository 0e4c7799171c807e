"""The acceptance rules of other optimizers beside the gate: how likely each takes a candidate, what that costs, and how
many runs in which nothing helps take something."""

from collections.abc import Mapping
from itertools import product

import numpy as np
from scipy.special import expit, logit

from gate_attempts import PLAN, level
from gate_report import NONE, Bench, Cell, Grid, cost, grid, mean, rare, rate
from many_exams import SEED, Arms, Flags, Floats, chances, paired, population, streamed, thrown, verdicts
from rival_rules import RULES, Rule
from whet.skills.gate.sequential_test import ExamTerms

LIFTS = (-0.10, -0.05, 0.0, 0.05, 0.10, 0.20, 0.30)
TASKS = (20, 30, 50)
SKILLOPT, GEPA = "strict, cached (SkillOpt)", "3 train tasks, strict (GEPA)"
MINIBATCH = 3
_RUNS = 4000
Taken = Mapping[str, tuple[Flags, Floats]]
"""By rule: whether each candidate was taken, and for how many rollouts."""


def decisions(bench: Bench) -> list[Grid]:
    """P(taken) by rule and true lift, and what a decision costs."""
    runs = bench.runs(_RUNS)
    cases = [(tasks, lift, runs) for tasks in TASKS for lift in LIFTS]
    found = dict(zip(cases, bench.pool.map(_decide, *zip(*cases, strict=True)), strict=True))
    odds, paid = list[tuple[str, list[Cell]]](), list[tuple[str, list[Cell]]]()
    for rule, tasks in product(found[cases[0]], TASKS):
        name, row = f"{rule}, {tasks} tasks", [found[tasks, lift, runs] for lift in LIFTS]
        odds.append((name, [_odds(one, rule, lift) for one, lift in zip(row, LIFTS, strict=True)]))
        if rule.startswith("whet") or rule == GEPA:  # the others roll out both arms once on each task
            paid.append((name, [cost(one[rule][1]) for one in row]))
    columns = ("rule", *(f"{lift:+.2f}" for lift in LIFTS))
    return [
        grid(f"Chance that one candidate is taken, by its true lift; {runs:,} repetitions", columns, odds),
        grid(f"Mean rollouts of one decision, by true lift; {runs:,} repetitions", columns, paid),
    ]


def _odds(found: Taken, rule: str, lift: float) -> Cell:
    taken = found[rule][0]
    return rare(taken, level(1)) if rule.startswith("whet") and lift <= 0 else rate(taken)


def _decide(tasks: int, lift: float, runs: int) -> Taken:
    random = np.random.default_rng([SEED, 10, tasks, round(100 * lift) + 100])
    arms = population(random, runs, tasks, lift)
    pairs, both = paired(random, arms), np.full(runs, 2.0 * tasks)
    held = verdicts(streamed(random, arms, 6 * tasks), ExamTerms(level(1), 6 * tasks))
    passes = _minibatch(random, arms)
    return {
        f"whet at {level(1):g}": (held.certified, 2.0 * held.positions),
        SKILLOPT: (RULES["strict"](pairs), both),
        GEPA: (passes & RULES["strict"](pairs), 2 * MINIBATCH + passes * both),
        **{name: (rule(pairs), both) for name, rule in RULES.items() if name != "strict"},
    }


def _minibatch(random: np.random.Generator, arms: Arms) -> Flags:
    """Whether the candidate beats its parent on three training tasks, on which it is as much better as on the rest."""
    shift = (logit(arms[1]) - logit(arms[0])).mean(axis=1)
    train = chances(random, len(shift), MINIBATCH)
    moved = expit(logit(train) + shift[:, None] + 0.5 * random.standard_normal(train.shape))
    return np.asarray(paired(random, (train, moved)).sum(axis=1) > 0)


# Runs in which nothing helps

PROPOSALS = (20, 40)
_NULL_RUNS = 2000


def nothing_helps(bench: Bench) -> list[Grid]:
    """Runs of proposals that do nothing, each of them held: how many take any, and how much too high their best score
    stands."""
    runs = bench.runs(_NULL_RUNS)
    rules = ("whet", SKILLOPT, GEPA, "strict, fresh", *(name for name in RULES if name != "strict"))
    cases = [(rule, number, runs) for rule in rules for number in PROPOSALS]
    found = dict(zip(cases, bench.pool.map(_taken_of, *zip(*cases, strict=True)), strict=True))
    rows = []
    for rule in rules:
        cells: list[Cell] = []
        for number in PROPOSALS:
            taken, shown, paid = found[rule, number, runs]
            any_ = rare(taken > 0, PLAN.alpha) if rule == "whet" else rate(taken > 0)
            cells += [mean(taken, 2), any_, NONE if rule == "whet" else mean(shown), cost(paid)]
        rows.append((rule, cells))
    columns = [f"{number}: {what}" for number in PROPOSALS for what in ("taken", "any", "too high by", "rollouts")]
    title = f"20 and 40 proposals that do nothing, all of them held, 30 tasks; {runs:,} runs"
    return [grid(title, ("rule", *columns), rows)]


def _taken_of(rule: str, number: int, runs: int) -> tuple[Floats, Floats, Floats]:
    random = np.random.default_rng([SEED, 11, number])
    odds = chances(random, runs, 30)
    if rule == "whet":
        return _certified(random, odds, number)
    if rule in {SKILLOPT, GEPA}:
        return _cached(random, odds, number, MINIBATCH if rule == GEPA else 0)
    return _fresh(random, odds, number, RULES["strict" if rule == "strict, fresh" else rule])


def _certified(random: np.random.Generator, odds: Floats, proposals: int) -> tuple[Floats, Floats, Floats]:
    """Each at half the level of the one before, in fresh pairs."""
    taken, paid = np.zeros(len(odds)), np.zeros(len(odds))
    for number in range(1, proposals + 1):
        held = verdicts(streamed(random, (odds, odds), 180), ExamTerms(level(number), 180))
        taken, paid = taken + held.certified, paid + 2 * held.positions
    return taken, taken, paid


def _cached(random: np.random.Generator, odds: Floats, proposals: int, minibatch: int) -> tuple[Floats, Floats, Floats]:
    """The bar is measured once, and is then what the last winner had; a few training tasks may come first."""
    runs, tasks = odds.shape
    bar, taken, paid = thrown(random, odds).mean(axis=1), np.zeros(runs), np.full(runs, float(tasks))
    for _ in range(proposals):
        train = chances(random, runs, minibatch)
        passes = paired(random, (train, train)).sum(axis=1) > 0 if minibatch else np.ones(runs, dtype=bool)
        found = thrown(random, odds).mean(axis=1)
        better = passes & (found > bar)
        bar, taken, paid = np.where(better, found, bar), taken + better, paid + 2 * minibatch + passes * tasks
    return taken, bar - odds.mean(axis=1), paid


def _fresh(random: np.random.Generator, odds: Floats, proposals: int, rule: Rule) -> tuple[Floats, Floats, Floats]:
    """Both arms are rolled out afresh for every decision."""
    taken, shown = np.zeros(len(odds)), thrown(random, odds).mean(axis=1)
    for _ in range(proposals):
        before, after = thrown(random, odds), thrown(random, odds)
        takes = rule(after - before)
        taken += takes
        shown = np.where(takes, after.mean(axis=1), shown)
    return taken, shown - odds.mean(axis=1), np.full(len(odds), 2.0 * proposals * odds.shape[1])
