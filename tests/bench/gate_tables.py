"""One candidate at a time: how likely each rule takes it, what that costs, and how often it takes what does nothing."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

import numpy as np
from gate_report import Cell, Grid, cost, grid, mean, rate
from many_attempts import (
    SEED,
    Arms,
    Flags,
    Floats,
    chances,
    differences,
    exam_on,
    incumbent_means,
    pace,
    paired,
    population,
    streamed,
    thrown,
    verdicts,
)
from scipy.special import expit, logit

from whet.skills.attempt import Terms
from whet.skills.rules import RULES, Rule
from whet.testing.world import World, skill_of

# One decision: how likely a candidate is taken, by its true lift

LIFTS = (-0.10, -0.05, 0.0, 0.05, 0.10, 0.20, 0.30)
TASKS = (20, 30, 50)
DECISIONS: Mapping[str, Sequence[Sequence[float]]] = {
    "strict (SkillOpt)": (
        (0.152, 0.267, 0.419, 0.584, 0.736, 0.928, 0.993),
        (0.126, 0.252, 0.420, 0.637, 0.806, 0.971, 0.999),
        (0.083, 0.223, 0.454, 0.698, 0.884, 0.995, 1.000),
    ),
    "3 train tasks, strict (GEPA)": (
        (0.026, 0.070, 0.118, 0.195, 0.288, 0.494, 0.653),
        (0.022, 0.059, 0.119, 0.218, 0.333, 0.505, 0.659),
        (0.015, 0.050, 0.126, 0.240, 0.339, 0.524, 0.653),
    ),
    "1·SE": (
        (0.031, 0.070, 0.138, 0.264, 0.405, 0.721, 0.933),
        (0.020, 0.057, 0.141, 0.286, 0.478, 0.843, 0.981),
        (0.013, 0.043, 0.155, 0.346, 0.601, 0.934, 0.999),
    ),
    "t-interval": (
        (0.003, 0.011, 0.022, 0.052, 0.109, 0.338, 0.666),
        (0.002, 0.005, 0.019, 0.062, 0.144, 0.480, 0.846),
        (0.001, 0.003, 0.022, 0.081, 0.231, 0.707, 0.977),
    ),
    "bootstrap": (
        (0.004, 0.016, 0.041, 0.088, 0.167, 0.444, 0.759),
        (0.003, 0.013, 0.043, 0.108, 0.228, 0.607, 0.910),
        (0.001, 0.005, 0.038, 0.125, 0.314, 0.783, 0.987),
    ),
    "McNemar": (
        (0.001, 0.005, 0.015, 0.039, 0.088, 0.304, 0.631),
        (0.002, 0.006, 0.021, 0.066, 0.151, 0.501, 0.858),
        (0.001, 0.004, 0.029, 0.095, 0.264, 0.739, 0.984),
    ),
    "PACE-like": (
        (0.001, 0.003, 0.012, 0.032, 0.104, 0.444, 0.852),
        (0.001, 0.004, 0.019, 0.075, 0.227, 0.707, 0.975),
        (0.001, 0.005, 0.032, 0.131, 0.390, 0.917, 1.000),
    ),
    "whet at .05": (
        (0.001, 0.005, 0.021, 0.107, 0.354, 0.919, 0.998),
        (0.001, 0.004, 0.029, 0.143, 0.497, 0.975, 0.999),
        (0.001, 0.004, 0.031, 0.213, 0.695, 0.985, 0.999),
    ),
    "whet at .005": (
        (0.000, 0.000, 0.002, 0.012, 0.097, 0.718, 0.994),
        (0.000, 0.000, 0.001, 0.023, 0.194, 0.914, 0.999),
        (0.000, 0.000, 0.003, 0.044, 0.410, 0.983, 0.999),
    ),
}
COSTS: Mapping[str, Sequence[Sequence[float]]] = {
    "3 train tasks, strict (GEPA)": ((17, 22, 27), (23, 30, 37), (34, 44, 59)),
    "PACE-like": ((80, 78, 70), (119, 111, 87), (197, 167, 100)),
    "whet at .05": ((144, 180, 106), (176, 230, 112), (213, 296, 112)),
    "whet at .005": ((147, 212, 170), (182, 296, 190), (224, 434, 195)),
}
COSTS_AT = (0.0, 0.10, 0.20)
_DECISION_RUNS = 4000
Taken = Mapping[str, tuple[Flags, Floats]]
"""By rule: whether each candidate was taken, and for how many rollouts."""


def one_decision(pool: Executor) -> list[Grid]:
    """P(taken) by rule and true lift, and what a decision costs."""
    cases = [(tasks, lift) for tasks in TASKS for lift in LIFTS]
    found = dict(zip(cases, pool.map(_decide, *zip(*cases, strict=True)), strict=True))
    odds = [
        (
            f"{rule}, {tasks} tasks",
            [_taken(found[tasks, lift], rule, lift, row) for lift, row in zip(LIFTS, rows, strict=True)],
        )
        for rule, by_tasks in DECISIONS.items()
        for tasks, rows in zip(TASKS, by_tasks, strict=True)
    ]
    paid = [
        (
            f"{rule}, {tasks} tasks",
            [cost(found[tasks, lift][rule][1], row) for lift, row in zip(COSTS_AT, rows, strict=True)],
        )
        for rule, by_tasks in COSTS.items()
        for tasks, rows in zip(TASKS, by_tasks, strict=True)
    ]
    repeated = f"{_DECISION_RUNS:,} repetitions"
    return [
        grid(f"Chance that one candidate is taken, by its true lift; {repeated}", ("rule", *map(_signed, LIFTS)), odds),
        grid(f"Mean rollouts of one decision, by true lift; {repeated}", ("rule", *map(_signed, COSTS_AT)), paid),
    ]


def _taken(found: Taken, rule: str, lift: float, expected: float) -> Cell:
    promise = 0.05 if rule == "whet at .05" else 0.005
    return rate(found[rule][0], expected, 4000, promise if rule.startswith("whet") and lift <= 0 else None)


def _decide(tasks: int, lift: float) -> Taken:
    random = np.random.default_rng([SEED, 1, tasks, round(100 * lift) + 100])
    arms = population(random, _DECISION_RUNS, tasks, lift)
    pairs = paired(random, arms)
    both = np.full(_DECISION_RUNS, 2.0 * tasks)
    found = {name: (rule(pairs), both) for name, rule in RULES.items() if name != "strict"}
    found["strict (SkillOpt)"] = RULES["strict"](pairs), both
    passes = _minibatch(random, arms)
    found["3 train tasks, strict (GEPA)"] = passes & RULES["strict"](pairs), 6 + passes * both
    bets = pace(streamed(random, arms, 2 * tasks))
    found["PACE-like"] = bets < 2 * tasks, 2.0 * np.minimum(bets + 1, 2 * tasks)
    stream = streamed(random, arms, 6 * tasks)
    for level in (0.05, 0.005):
        held = verdicts(stream, Terms(level, 6 * tasks, worth=0.10))
        found[f"whet at {level:g}".replace("0.", ".")] = held.certified, 2.0 * held.positions
    return found


def _minibatch(random: np.random.Generator, arms: Arms) -> Flags:
    """Whether the candidate beats its parent on three training tasks, on which it is as much better as on the rest."""
    shift = (logit(arms[1]) - logit(arms[0])).mean(axis=1)
    train = chances(random, len(shift), 3)
    moved = expit(logit(train) + shift[:, None] + 0.5 * random.standard_normal(train.shape))
    return np.asarray(paired(random, (train, moved)).sum(axis=1) > 0)


# Runs in which nothing helps

_NULL_RUNS = 1500
NOTHING: Mapping[str, tuple[tuple[float, ...], ...]] = {
    "strict, cached (SkillOpt)": ((1.99, 0.93, 0.132, 630), (2.37, 0.95, 0.154, 1230)),
    "strict, fresh": ((8.68, 1.00, 0.046, 1200), (17.40, 1.00, 0.047, 2400)),
    "1·SE": ((2.98, 0.96, 0.075, 1200), (5.85, 1.00, 0.078, 2400)),
    "t-interval": ((0.42, 0.35, 0.041, 1200), (0.85, 0.57, 0.067, 2400)),
    "bootstrap": ((0.82, 0.57, 0.060, 1200), (1.62, 0.80, 0.084, 2400)),
    "McNemar": ((0.44, 0.36, 0.043, 1200), (0.89, 0.59, 0.070, 2400)),
}
"""By rule, for 20 and 40 proposals on 30 tasks: taken per run, runs that take any, shown too high by, rollouts."""
NOTHING_WHET = {20: ((0.02, 1207), (0.01, 2320)), 30: ((0.03, 1584), (0.02, 3029)), 50: ((0.03, 2081), (0.02, 3932))}
"""By number of tasks: runs that certify any, rollouts."""
PROPOSALS = (20, 40)


def nothing_helps(pool: Executor) -> list[Grid]:
    """Runs of proposals that do nothing: how many take any, and how much too high their best score stands."""
    rules = [*NOTHING, "3 train tasks, strict (GEPA)"]
    rivals = dict(zip(rules, pool.map(_nothing_taken, rules), strict=True))
    rows: list[tuple[str, list[Cell]]] = []
    for rule, found in rivals.items():
        cells: list[Cell] = []
        for (taken, shown, paid), expected in zip(found, NOTHING.get(rule, ((None,) * 4,) * 2), strict=True):
            cells += [
                mean(taken, expected[0], 1500, 0.01),
                rate(taken > 0, expected[1], 1500),
                mean(shown, expected[2], 1500, 0.001),
                cost(paid, expected[3]),
            ]
        rows.append((rule, cells))
    held = dict(zip(TASKS, pool.map(_nothing_certified, TASKS), strict=True))
    for tasks, by_number in NOTHING_WHET.items():
        cells = []
        for (taken, paid), (any_, rollouts) in zip(held[tasks], by_number, strict=True):
            cells += [
                mean(taken, rounded=0.01),
                rate(taken > 0, any_, 1500, at_most=0.10),
                Cell("–"),
                cost(paid, rollouts),
            ]
        rows.append((f"whet, .10 for the run, {tasks} tasks", cells))
    columns = [f"{number}: {what}" for number in PROPOSALS for what in ("taken", "any", "too high by", "rollouts")]
    title = f"20 and 40 proposals that do nothing, 30 tasks unless said, {_NULL_RUNS:,} runs"
    return [grid(title, ("rule", *columns), rows)]


def _nothing_taken(rule: str) -> list[tuple[Floats, Floats, Floats]]:
    return [_nothing_taken_of(rule, number) for number in PROPOSALS]


def _nothing_taken_of(rule: str, number: int) -> tuple[Floats, Floats, Floats]:
    random = np.random.default_rng([SEED, 2, number])
    odds = chances(random, _NULL_RUNS, 30)
    if rule == "strict, cached (SkillOpt)":
        return _cached(random, odds, number)
    if rule == "3 train tasks, strict (GEPA)":
        return _cached(random, odds, number, minibatch=3)
    return _fresh(random, odds, number, RULES["strict" if rule == "strict, fresh" else rule])


def _cached(
    random: np.random.Generator, odds: Floats, proposals: int, minibatch: int = 0
) -> tuple[Floats, Floats, Floats]:
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


def _nothing_certified(tasks: int) -> list[tuple[Floats, Floats]]:
    return [_nothing_certified_of(tasks, number) for number in PROPOSALS]


def _nothing_certified_of(tasks: int, proposals: int) -> tuple[Floats, Floats]:
    """All candidates walk one exam, and meet the same rollouts of the incumbent."""
    random = np.random.default_rng([SEED, 2, tasks, proposals])
    odds = chances(random, _NULL_RUNS, tasks)
    exam = exam_on(random, odds, 4 * tasks)
    before = incumbent_means(random, odds, exam)
    taken, paid, banked = np.zeros(_NULL_RUNS), np.zeros(_NULL_RUNS), np.zeros(_NULL_RUNS)
    for _ in range(proposals):
        held = verdicts(differences(random, odds, before, exam), Terms(0.10 / proposals, 4 * tasks, worth=0.10))
        taken, paid, banked = taken + held.certified, paid + held.positions, np.maximum(banked, held.positions)
    return taken, paid + banked


# SkillOpt's own selection sets

SELECTION: Mapping[str, tuple[int, int, tuple[tuple[float, ...], ...]]] = {
    "LiveMath": (17, 4, ((0.41, 0.29, 0.56, 0.99, 0.72, 11.0), (0.39, 0.22, 0.58, 0.89, 0.68, 8.4))),
    "ALFWorld": (18, 4, ((0.42, 0.27, 0.58, 0.99, 0.72, 10.6), (0.39, 0.23, 0.59, 0.91, 0.69, 8.2))),
    "OfficeQA": (24, 8, ((0.43, 0.25, 0.59, 1.41, 0.84, 11.8), (0.40, 0.20, 0.62, 1.30, 0.82, 9.1))),
    "Spreadsheet": (40, 8, ((0.45, 0.25, 0.67, 1.49, 0.86, 9.0), (0.42, 0.18, 0.70, 1.40, 0.84, 7.1))),
    "DocVQA": (53, 12, ((0.44, 0.20, 0.70, 1.80, 0.90, 8.9), (0.44, 0.17, 0.75, 1.68, 0.88, 7.0))),
    "SearchQA": (200, 40, ((0.47, 0.09, 0.90, 2.92, 0.97, 6.0), (0.47, 0.04, 0.94, 2.85, 0.96, 4.7))),
}
"""By set: tasks, decisions of a run, and for either noise what the strict rule does."""
_SELECTION_RUNS = 4000


def selection_sets(pool: Executor) -> list[Grid]:
    """What the strict, cached rule does on sets of the sizes that SkillOpt was published with."""
    cases = [(name, shape) for name in SELECTION for shape in (0.8, 0.3)]
    rows = list(pool.map(_selection_row, *zip(*cases, strict=True)))
    columns = ("set, tasks, decisions, noise", "takes a null", "at -5 points", "at +5 points", "taken per run", "any")
    return [
        grid(
            f"The strict, cached rule of SkillOpt on its own selection sets; {_SELECTION_RUNS:,} runs",
            (*columns, "points too high"),
            [
                (f"{name}, {SELECTION[name][0]}, {SELECTION[name][1]}, Beta({shape:g})", row)
                for (name, shape), row in zip(cases, rows, strict=True)
            ],
        )
    ]


def _selection_row(name: str, shape: float) -> list[Cell]:
    tasks, decisions, expected = SELECTION[name]
    figures = expected[shape == 0.3]
    random = np.random.default_rng([SEED, 7, tasks, round(10 * shape)])
    cells = []
    for lift, figure in zip((0.0, -0.05, 0.05), figures, strict=False):
        arms = population(random, _SELECTION_RUNS, tasks, lift, shape=shape)
        cells.append(_rounded_rate(RULES["strict"](paired(random, arms)), figure))
    taken, shown, _ = _cached(random, chances(random, _SELECTION_RUNS, tasks, shape), decisions)
    return [
        *cells,
        mean(taken, figures[3], 4000, 0.01),
        _rounded_rate(taken > 0, figures[4]),
        mean(100 * shown, figures[5], 4000, 0.1),
    ]


def _rounded_rate(hits: Flags, figure: float) -> Cell:
    """The reference gives two digits: as a mean, whose rounding is wider."""
    return mean(hits, figure, 4000, 0.01)


# One attempt from the empty skill, in the world of known truth

ATTEMPTS: Mapping[tuple[str, ...], tuple[tuple[float, ...], tuple[float, ...], float]] = {
    ("N0",): ((0.004, 0.750, 0.246, 63), (0.003, 0.856, 0.141, 55), 0.44),
    ("C0",): ((0.004, 0.721, 0.275, 65), (0.004, 0.811, 0.184, 58), 0.44),
    ("B0",): ((0.000, 0.981, 0.019, 34), (0.000, 0.997, 0.003, 28), 0.18),
    ("H0",): ((0.021, 0.472, 0.507, 83), (0.034, 0.551, 0.414, 78), 0.61),
    ("G0",): ((0.128, 0.226, 0.646, 96), (0.188, 0.242, 0.570, 93), 0.77),
    ("H2", "H3"): ((0.215, 0.155, 0.630, 98), (0.301, 0.143, 0.555, 95), 0.83),
    ("H0", "H2", "H3"): ((0.497, 0.065, 0.438, 91), (0.652, 0.049, 0.298, 85), 0.93),
    ("G0", "G1"): ((0.669, 0.042, 0.288, 83), (0.830, 0.028, 0.142, 73), 0.95),
    ("H0", "H1", "H2", "H3", "H4", "H5"): ((0.965, 0.007, 0.028, 54), (0.992, 0.004, 0.005, 46), 0.99),
}
"""By candidate, for 1 and 2 rollouts of the incumbent: certified, futile, undecided, positions; and the strict rule."""
_ATTEMPT_RUNS = 4000


def one_attempt(pool: Executor) -> list[Grid]:
    """Verdicts on candidates whose lift is known."""
    rows = list(pool.map(_attempt_row, ATTEMPTS))
    columns = [f"m={m}: {what}" for m in (1, 2) for what in ("certified", "futile", "undecided", "positions")]
    title = f"One attempt from the empty skill, level .0125, at most 120 positions; {_ATTEMPT_RUNS:,} repetitions"
    return [grid(title, ("candidate, lift", *columns, "strict rule, 30 tasks"), rows)]


def _attempt_row(rules: tuple[str, ...]) -> tuple[str, list[Cell]]:
    world, skill = World(), skill_of(rules)
    lift = world.lift(skill)
    tasks = world.tasks("validation")
    arms = (
        np.tile([world.chance(task, "") for task in tasks], (_ATTEMPT_RUNS, 1)),
        np.tile([world.chance(task, skill) for task in tasks], (_ATTEMPT_RUNS, 1)),
    )
    *expected, strict = ATTEMPTS[rules]
    cells = []
    for repeats, figures in zip((1, 2), expected, strict=True):
        random = np.random.default_rng([SEED, 20, *map(ord, "".join(rules)), repeats])
        held = verdicts(streamed(random, arms, 120, repeats), Terms(0.0125, 120))
        cells += [
            rate(held.certified, figures[0], 4000, at_most=0.0125 if lift < 1e-9 else None),
            rate(held.futile, figures[1], 4000, at_most=0.20 if lift >= 0.12 else None),
            rate(held.undecided, figures[2], 4000),
            cost(held.positions, figures[3]),
        ]
    random = np.random.default_rng([SEED, 21, *map(ord, "".join(rules))])
    return f"{' '.join(rules)} {lift:+.3f}", [*cells, _rounded_rate(RULES["strict"](paired(random, arms)), strict)]


def _signed(lift: float) -> str:
    return f"{lift:+.2f}"
