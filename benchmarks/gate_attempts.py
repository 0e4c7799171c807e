"""Attempts in arrays, many at once: what is certified at which cost, how often the evidence deceives, how close the
bounds are, and what a test that allows a margin lets pass."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from gate_report import NONE, Bench, Cell, Grid, cost, grid, mean, often, rare, rate, unbiased
from many_exams import (
    SEED,
    Flags,
    Floats,
    drawn,
    first_crossing,
    population,
    streamed,
    verdicts,
)
from whet.skills.gate.eprocess import log_e_value
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.sequential_test import ExamTerms, level_of

TASKS = 30
PLAN = GatePlan(budget=0)
"""For its defaults."""
_SHARDS = 10


def level(number: int, alpha: float = PLAN.alpha) -> float:
    """Of the attempt of this number, counted from 1."""
    return level_of(alpha, number)


# Power

POWER: Mapping[tuple[float, ...], tuple[float, float]] = {
    (0.20,): (0.96, 115),
    (0.40,): (0.995, 37),
    (0.0, 0.20): (0.93, 278),
    (0.0, 0.0, 0.0, 0.20): (0.87, 592),
}
"""By the true lifts of a run's candidates, in the order of their attempts: how often the last one is certified, at
least, and after how many rollouts in all, at most, give or take the error of the simulation that they are from."""
_DEARER = 1.05
_POWER_RUNS = 8000
POSITIONS = 6 * TASKS


def power(bench: Bench) -> list[Grid]:
    """One attempt after the other, each in fresh pairs at half the level of the one before."""
    runs = bench.runs(_POWER_RUNS)
    rows: list[tuple[str, list[Cell]]] = []
    for lifts in (*POWER, (0.0,) * 4, (0.10,), (0.15,), (0.30,)):
        shards = list(bench.pool.map(partial(_attempts_of, lifts, runs // _SHARDS), range(_SHARDS)))
        certified, paid = (np.concatenate([shard[part] for shard in shards]) for part in (0, 1))
        nulls = rare(certified[:, [lift <= 0 for lift in lifts]].any(axis=1), PLAN.alpha) if 0.0 in lifts else NONE
        share, rollouts = POWER.get(lifts, (None, None))
        last = rate(certified[:, -1]) if share is None else often(certified[:, -1], share)
        rows.append(
            (
                ", then ".join(_signed(lift) for lift in lifts),
                [last, nulls, cost(paid, rollouts and _DEARER * rollouts)],
            )
        )
    title = f"Attempts of a run on {TASKS} tasks, up to {POSITIONS} positions each; {runs:,} repetitions"
    columns = ("true lifts of its candidates", "last one certified", "any null certified", "rollouts")
    return [grid(title, columns, rows)]


def _attempts_of(lifts: Sequence[float], runs: int, shard: int) -> tuple[Flags, Floats]:
    random = np.random.default_rng([SEED, 1, shard, *(round(100 * lift) for lift in lifts)])
    certified, paid = [], np.zeros(runs)
    for number, lift in enumerate(lifts, 1):
        arms = population(random, runs, TASKS, lift)
        found = verdicts(streamed(random, arms, POSITIONS), ExamTerms(level(number), POSITIONS))
        certified.append(found.certified)
        paid = paid + 2.0 * found.positions
    return np.stack(certified, axis=1), paid


# Validity

_VALID_RUNS = 20_000
_LONG = 300


def validity(bench: Bench) -> list[Grid]:
    """How often the evidence ever reaches a level when the candidate is not better."""
    runs = bench.runs(_VALID_RUNS)
    cases: Mapping[str, Callable[[int, int], Floats]] = {
        "both arms the same skill": partial(_stream, 0.0),
        "no lift, very uneven over tasks": partial(_stream, 1.5),
        "without chance: 5 of 30 tasks fixed, 5 broken": _sure,
        "-.05 often, +.95 rarely": _skewed,
    }
    rows = []
    for name, case in cases.items():
        logs = np.concatenate(list(bench.pool.map(partial(_highest, case, runs // _SHARDS), range(_SHARDS))))
        rows.append((name, [rare(logs >= -np.log(one), one) for one in _LEVELS]))
    columns = ("candidate", *(f"level {one:g}" for one in _LEVELS))
    return [grid(f"Nulls whose evidence ever reaches a level within {_LONG} positions; {runs:,} each", columns, rows)]


_LEVELS = tuple(level(number) for number in (1, 2, 3))


def _highest(case: Callable[[int, int], Floats], runs: int, shard: int) -> Floats:
    seen = case(runs, shard)
    parts = [log_e_value(seen[start : start + 1000], 0.0, above=True).max(axis=1) for start in range(0, runs, 1000)]
    return np.concatenate(parts)


def _stream(spread: float, runs: int, shard: int) -> Floats:
    random = np.random.default_rng([SEED, 2, round(10 * spread), shard])
    return streamed(random, population(random, runs, TASKS, 0.0, spread), _LONG)


def _sure(runs: int, shard: int) -> Floats:
    random = np.random.default_rng([SEED, 3, shard])
    effect = np.zeros(TASKS)
    effect[:5], effect[-5:] = 1, -1
    return effect[drawn(random, runs, TASKS, _LONG)]


def _skewed(runs: int, shard: int) -> Floats:
    random = np.random.default_rng([SEED, 4, shard])
    return np.where(random.random((runs, _LONG)) < 0.05, 0.95, -0.05)


# Bounds, and the lift that is printed

_BOUND_RUNS = 2000
LIFTS = (0.02, 0.10, 0.20, 0.30, 0.40)


def bounds(bench: Bench) -> list[Grid]:
    """What is printed of a candidate once it is certified, and continued to the last position."""
    runs = bench.runs(_BOUND_RUNS, 100)
    rows = list(bench.pool.map(_bounds_row, LIFTS, [runs] * len(LIFTS)))
    columns = (
        "true lift",
        "certified",
        "mean bound at the verdict",
        "after all positions",
        "bound above the truth",
        "mean after the verdict, less the truth",
        "mean up to it, less the truth",
    )
    title = f"Bounds at level {level(1):g}, {TASKS} tasks, {POSITIONS} positions; {runs:,} each"
    return [grid(title, columns, rows)]


def _bounds_row(lift: float, runs: int) -> tuple[str, list[Cell]]:
    random = np.random.default_rng([SEED, 5, round(100 * lift)])
    seen = streamed(random, population(random, runs, TASKS, lift), POSITIONS)
    held = verdicts(seen, ExamTerms(level(1), POSITIONS))
    above = first_crossing(seen, lift, level(1), above=True) < POSITIONS
    certified, ends = seen[held.certified], held.positions[held.certified]
    up_to = np.arange(POSITIONS) < ends[:, None]
    before = (certified * up_to).sum(axis=1) / ends
    # By position: the mean over a run would weigh runs with few positions left as much as others.
    after = (certified * ~up_to).sum(axis=1) - lift * (POSITIONS - ends)
    left = (POSITIONS - ends).mean() if ends.size else 1.0
    return f"{lift:+.2f}", [
        rate(held.certified),
        mean(_lower_bounds(np.where(up_to, certified, -1.0), level(1))),
        mean(_lower_bounds(certified, level(1))),
        rare(above, level(1)),
        unbiased(after / left),
        mean(before - lift),
    ]


def _lower_bounds(seen: Floats, level: float) -> Floats:
    """As whet's own bounds, for all sequences at once."""
    low, high = np.full(len(seen), -0.999), np.full(len(seen), 0.999)
    for _ in range(15):
        middle = (low + high) / 2
        refuted = log_e_value(seen, middle, above=True).max(axis=1) >= -np.log(level)
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low


# Shortening

_REMOVALS = 4000
_CHANGE_LEVEL = 0.05
"""The default of `whet certify`."""


def removals(bench: Bench) -> list[Grid]:
    """All rules that seem to carry nothing are dropped at once when the skill without them is not worse by a margin."""
    runs = bench.runs(_REMOVALS)
    margins = (0.02, 0.05, 0.10)
    rows = list(bench.pool.map(_removals_row, margins, [runs] * len(margins)))
    effects = ("cost the margin", "cost half of it", "cost nothing", "help, +.05")
    columns = [f"{effect}: {what}" for effect in effects for what in ("dropped", "rollouts")]
    title = f"Dropping rules at level {PLAN.removal_level:g}, {TASKS} tasks, {POSITIONS} positions; {runs:,} each"
    return [grid(title, ("margin", *columns), rows)]


def _removals_row(margin: float, runs: int) -> tuple[str, list[Cell]]:
    cells: list[Cell] = []
    for lift in (-margin, -margin / 2, 0.0, 0.05):
        random = np.random.default_rng([SEED, 6, round(100 * margin), round(1000 * lift) + 1000])
        arms = population(random, runs, TASKS, lift, 0.25)
        terms = ExamTerms(PLAN.removal_level, POSITIONS, minimum_effect=0.0)
        held = verdicts(streamed(random, arms, POSITIONS), terms, floor=-margin)
        dropped = rare(held.certified, PLAN.removal_level) if lift <= -margin else rate(held.certified)
        cells += [dropped, cost(2 * held.positions)]
    return f"{margin:.2f}", cells


def changes(bench: Bench) -> list[Grid]:
    """What `whet certify --non-inferior` says of a change that costs twice its margin, exactly its margin, or nothing,
    or that helps a little."""
    runs = bench.runs(_REMOVALS)
    settings = [(margin, pairs) for margin in (0.05, 0.10, 0.15) for pairs in (100, 200, 400)]
    rows = list(bench.pool.map(_changes_row, settings, [runs] * len(settings)))
    effects = ("costs twice the margin", "costs the margin", "no effect", "helps, +.05")
    columns = [f"{effect}: {what}" for effect in effects for what in ("not worse", "worse", "rollouts")]
    title = f"Changes that must not be worse, level {_CHANGE_LEVEL:g}, {TASKS} tasks; {runs:,} each"
    return [grid(title, ("margin, rollouts", *columns), rows)]


def _changes_row(setting: tuple[float, int], runs: int) -> tuple[str, list[Cell]]:
    margin, pairs = setting
    cells: list[Cell] = []
    for lift in (-2 * margin, -margin, 0.0, 0.05):
        random = np.random.default_rng([SEED, 7, round(100 * margin), pairs, round(1000 * lift) + 1000])
        arms = population(random, runs, TASKS, lift, 0.25)
        terms = ExamTerms(_CHANGE_LEVEL, pairs, beta=_CHANGE_LEVEL, minimum_effect=0.0)
        held = verdicts(streamed(random, arms, pairs), terms, floor=-margin)
        passed = rare(held.certified, _CHANGE_LEVEL) if lift <= -margin else rate(held.certified)
        harmed = rare(held.futile, _CHANGE_LEVEL) if lift >= 0 else rate(held.futile)
        cells += [passed, harmed, cost(2 * held.positions)]
    return f"{margin:.2f}, {2 * pairs}", cells


def _signed(lift: float) -> str:
    return "null" if lift == 0 else f"{lift:+.2f}"
