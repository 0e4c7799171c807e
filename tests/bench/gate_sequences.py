"""The wealth processes alone: their validity, what they cost against a test of fixed size, dense scores, confidence
bounds, and how rules are shown to carry nothing."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial

import numpy as np
from gate_report import Cell, Grid, cost, grid, mean, rate
from many_attempts import (
    SEED,
    Arms,
    Flags,
    Floats,
    chances,
    differences,
    drawn,
    exam_on,
    first_crossing,
    incumbent_means,
    population,
    streamed,
    verdicts,
)

from whet.skills.attempt import Terms
from whet.skills.wealth import log_wealth

# Validity

_VALID_RUNS, _SHARDS = 20_000, 10


def validity(pool: Executor) -> list[Grid]:
    """How often the evidence ever reaches 20, at a level of .05, when the candidate is no better."""
    cases: Mapping[str, tuple[Callable[[int], Flags], float, int]] = {
        "both arms the same skill": (partial(_crossed, 0.0), 0.0338, 20_000),
        "zero lift, very uneven over tasks": (partial(_crossed, 1.5), 0.0343, 20_000),
        "very uneven, tasks in random order without replacement": (partial(_crossed_in_passes, 1.5), 0.0198, 20_000),
        "deterministic: 5 of 30 tasks fixed, 5 broken": (_crossed_deterministic, 0.0309, 8_000),
    }
    rows = []
    for name, (case, expected, repeated) in cases.items():
        hits = np.concatenate(list(pool.map(case, range(_SHARDS))))
        rows.append((name, [rate(hits, expected, repeated, at_most=0.05)]))
    title = f"Share of nulls that reach level .05 within 300 positions of 30 tasks; {_VALID_RUNS:,} repetitions"
    runs = np.concatenate(list(pool.map(_any_of_twenty, range(_SHARDS))))
    levels = {
        "fresh incumbent, .05 each": (0.429, None),
        "shared incumbent, .05 each": (0.256, None),
        "shared incumbent, .05 for the run": (0.016, 0.05),
        "fresh incumbent, .05 for the run": (0.022, 0.05),
    }
    any_rows = [
        (name, [rate(runs[:, column], expected, 3000, promise)])
        for column, (name, (expected, promise)) in enumerate(levels.items())
    ]
    return [
        grid(title, ("candidate", "ever taken"), rows),
        grid(
            f"Runs that take any of 20 nulls, 200 positions each; {len(runs):,} runs", ("levels", "any taken"), any_rows
        ),
    ]


def _crossed(spread: float, shard: int) -> Flags:
    random = np.random.default_rng([SEED, 5, round(10 * spread), shard])
    arms = population(random, _VALID_RUNS // _SHARDS, 30, 0.0, spread)
    return first_crossing(streamed(random, arms, 300), 0.0, 0.05, above=True) < 300


def _crossed_in_passes(spread: float, shard: int) -> Flags:
    random = np.random.default_rng([SEED, 6, shard])
    arms = population(random, _VALID_RUNS // _SHARDS, 30, 0.0, spread)
    passes = [random.permuted(np.tile(np.arange(30), (len(arms[0]), 1)), axis=1) for _ in range(10)]
    exam = np.concatenate(passes, axis=1)
    seen = differences(random, arms[1], incumbent_means(random, arms[0], exam), exam)
    return first_crossing(seen, 0.0, 0.05, above=True) < 300


def _crossed_deterministic(shard: int) -> Flags:
    random = np.random.default_rng([SEED, 8, shard])
    effect = np.zeros(30)
    effect[:5], effect[-5:] = 1, -1
    seen = effect[drawn(random, _VALID_RUNS // _SHARDS, 30, 300)]
    return first_crossing(seen, 0.0, 0.05, above=True) < 300


def _any_of_twenty(shard: int) -> Flags:
    random = np.random.default_rng([SEED, 9, shard])
    odds = chances(random, 300, 30)
    exam = exam_on(random, odds, 200)
    bank = incumbent_means(random, odds, exam)
    fresh, shared = [], []
    for _ in range(20):
        fresh.append(log_wealth(streamed(random, (odds, odds), 200), 0.0, above=True).max(axis=1))
        shared.append(log_wealth(differences(random, odds, bank, exam), 0.0, above=True).max(axis=1))
    utmost = np.exp(np.max(fresh, axis=0)), np.exp(np.max(shared, axis=0))
    return np.stack([utmost[0] >= 20, utmost[1] >= 20, utmost[1] >= 400, utmost[0] >= 400], axis=1)


# What a sequential test saves

SEQUENTIAL: Mapping[tuple[float, float], tuple[int, float, tuple[float, ...], tuple[float, ...]]] = {
    (0.10, 0.05): (210, 0.15, (0.82, 255, 340, 112), (0.85, 102, 150)),
    (0.10, 0.005): (379, 0.20, (0.82, 241, 589, 192), (0.84, 106, 264)),
    (0.15, 0.05): (99, 0.20, (0.82, 106, 152, 56), (0.88, 50, 77)),
    (0.15, 0.005): (169, 0.20, (0.83, 108, 272, 96), (0.86, 51, 128)),
    (0.20, 0.05): (57, 0.20, (0.83, 64, 94, 37), (0.89, 31, 50)),
    (0.20, 0.005): (99, 0.20, (0.86, 64, 164, 60), (0.88, 32, 81)),
    (0.30, 0.05): (27, 0.20, (0.87, 33, 50, 32), (0.91, 16, 29)),
    (0.30, 0.005): (47, 0.20, (0.86, 32, 83, 52), (0.89, 17, 46)),
}
"""By lift and level: pairs of a fixed test of the same power; chance to give up; with one fresh rollout of the
incumbent, power and rollouts at lift 0, at the lift, and at twice the lift; with three that ten candidates share, and a
chance of .20 to give up, power and rollouts at lift 0 and at the lift."""
_SEQUENTIAL_RUNS = 3000


def savings(pool: Executor) -> list[Grid]:
    """Rollouts that a sequential test takes where a planned one takes the same number each time."""
    rows = list(pool.map(_savings_row, *zip(*SEQUENTIAL, strict=True)))
    columns = (
        "lift, level, planned rollouts",
        "power",
        "at no lift",
        "at the lift",
        "at twice",
        "m=3: power",
        "m=3: at no lift",
    )
    title = f"Mean rollouts of a sequential test of the same power as a planned one; {_SEQUENTIAL_RUNS:,} repetitions"
    return [grid(title, (*columns, "m=3: at the lift"), rows)]


def _savings_row(lift: float, level: float) -> tuple[str, list[Cell]]:
    pairs, giving_up, alone, shared = SEQUENTIAL[lift, level]

    def held(true: float, repeats: int) -> tuple[Flags, Floats]:
        random = np.random.default_rng([SEED, 3, round(100 * lift), round(1000 * level), round(100 * true), repeats])
        arms = population(random, _SEQUENTIAL_RUNS, 30, true)
        terms = Terms(level, 2 * pairs, giving_up if repeats == 1 else 0.20, lift)
        found = verdicts(streamed(random, arms, terms.positions, repeats), terms)
        return found.certified, np.asarray((2.0 if repeats == 1 else 1.3) * found.positions, dtype=float)

    null, at, twice = held(0.0, 1), held(lift, 1), held(min(2 * lift, 0.45), 1)
    null_shared, at_shared = held(0.0, 3), held(lift, 3)
    return f"{lift:+.2f}, {level:g}, {2 * pairs}", [
        mean(at[0], alone[0], 3000, 0.01),
        cost(null[1], alone[1]),
        cost(at[1], alone[2]),
        cost(twice[1], alone[3]),
        mean(at_shared[0], shared[0], 3000, 0.01),
        cost(null_shared[1], shared[1]),
        cost(at_shared[1], shared[2]),
    ]


# Dense scores

DENSE: Mapping[str, tuple[float, float, tuple[float, ...], tuple[float, ...]]] = {
    "all or nothing": (1.0, 0.312, (0.025, 0.22, 0.69, 0.99), (214, 293, 114)),
    "share of 8 tests, often all or none": (0.6, 0.205, (0.030, 0.28, 0.82, 1.00), (157, 224, 88)),
    "share of 8 tests, seldom all or none": (0.3, 0.125, (0.018, 0.34, 0.88, 1.00), (106, 163, 73)),
}
"""By score: how often a rollout passes all tests or none; mean square of equal arms; taken and rollouts by lift."""
_DENSE_RUNS = 3000
_DENSE_LIFTS = (0.0, 0.05, 0.10, 0.20)


def dense_scores(pool: Executor) -> list[Grid]:
    """The share of tests that pass says more than whether all do."""
    rows = list(pool.map(_dense_row, DENSE))
    columns = ("score", "mean square at 0", "taken: 0", "+.05", "+.10", "+.20", "rollouts: 0", "+.10", "+.20")
    title = f"Fractional credit, 30 tasks, level .05, at most 300 positions; {_DENSE_RUNS:,} repetitions"
    return [grid(title, columns, rows)]


def _dense_row(name: str) -> tuple[str, list[Cell]]:
    whole, square, taken, paid = DENSE[name]
    streams = {}
    for lift in _DENSE_LIFTS:
        random = np.random.default_rng([SEED, 60, round(10 * whole), round(100 * lift)])
        streams[lift] = _dense_stream(random, population(random, _DENSE_RUNS, 30, lift), whole)
    held = {lift: verdicts(stream, Terms(0.05, 300, worth=0.10)) for lift, stream in streams.items()}
    squares = (streams[0.0] ** 2).mean(axis=1)
    rates = [mean(held[lift].certified, figure, 3000, 0.01) for lift, figure in zip(_DENSE_LIFTS, taken, strict=True)]
    costs = [cost(2.0 * held[lift].positions, figure) for lift, figure in zip((0.0, 0.10, 0.20), paid, strict=True)]
    return name, [mean(squares, square, 3000, 0.001), *rates, *costs]


def _dense_stream(random: np.random.Generator, arms: Arms, whole: float) -> Floats:
    exam = exam_on(random, arms[0], 300)

    def scored(odds: Floats) -> Floats:
        at = np.take_along_axis(odds, exam, axis=1)
        shares = random.binomial(8, at) / 8
        return np.where(random.random(at.shape) < whole, random.random(at.shape) < at, shares)

    return scored(arms[1]) - scored(arms[0])


# Confidence bounds

BOUNDS: Mapping[float, Mapping[float, tuple[float, ...]]] = {
    0.10: {0.0125: (-0.126, -0.058, -0.012, 0.020), 0.05: (-0.078, -0.026, 0.010, 0.035)},
    0.20: {0.0125: (-0.032, 0.043, 0.092, 0.122), 0.05: (0.016, 0.075, 0.113, 0.136)},
    0.30: {0.0125: (0.073, 0.148, 0.193, 0.222), 0.05: (0.119, 0.179, 0.214, 0.237)},
}
"""Mean lower bound by true lift and level, after 60, 120, 240 and 480 positions; each bound to the hundredth below."""
LENGTHS = (60, 120, 240, 480)
_BOUND_RUNS = 500


def bounds(pool: Executor) -> list[Grid]:
    """How closely a lift is bounded from below, and how seldom the bound is above it."""
    cases = [(lift, level) for lift, levels in BOUNDS.items() for level in levels]
    rows = list(pool.map(_bounds_row, *zip(*cases, strict=True)))
    columns = ("lift, level", *(f"{length} positions" for length in LENGTHS), "ever above the truth")
    title = f"Mean lower bound on the lift, to the hundredth below, 30 tasks; {_BOUND_RUNS} repetitions"
    return [grid(title, columns, rows)]


def _bounds_row(lift: float, level: float) -> tuple[str, list[Cell]]:
    random = np.random.default_rng([SEED, 70, round(100 * lift)])
    seen = streamed(random, population(random, _BOUND_RUNS, 30, lift), max(LENGTHS))
    means = [
        mean(np.floor(100 * _lower_bounds(seen[:, :length], level)) / 100, figure, 500, 0.001)
        for length, figure in zip(LENGTHS, BOUNDS[lift][level], strict=True)
    ]
    above = first_crossing(seen, lift, level, above=True) < max(LENGTHS)
    return f"{lift:+.2f}, {level:g}", [*means, rate(above, at_most=level)]


def _lower_bounds(seen: Floats, level: float) -> Floats:
    """As whet's own bounds, for all sequences at once."""
    low, high = np.full(len(seen), -0.999), np.full(len(seen), 0.999)
    for _ in range(15):
        middle = (low + high) / 2
        refuted = log_wealth(seen, middle, above=True).max(axis=1) >= -np.log(level)
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low


# Rules that carry nothing

DROPPED: Mapping[tuple[float, float], tuple[tuple[float, float], ...]] = {
    (0.8, 0.05): ((0.027, 176), (0.109, 212), (0.342, 217), (0.892, 132)),
    (0.8, 0.10): ((0.033, 77), (0.312, 139), (0.833, 114), (0.974, 66)),
    (0.3, 0.05): ((0.029, 147), (0.158, 202), (0.517, 199), (0.981, 96)),
    (0.3, 0.10): ((0.025, 56), (0.338, 100), (0.900, 85), (0.991, 51)),
}
"""By noise and margin: how likely a removal is accepted, and positions, if it costs the margin, half of it, nothing, or
helps by 5 points."""
_DROPPED_RUNS = 2000


def removals(pool: Executor) -> list[Grid]:
    """A rule is dropped when the skill without it is not worse by more than a margin."""
    rows = list(pool.map(_removals_row, *zip(*DROPPED, strict=True)))
    effects = ("costs the margin", "costs half of it", "costs nothing", "helps, +.05")
    columns = [f"{effect}: {what}" for effect in effects for what in ("dropped", "positions")]
    title = f"Dropping a rule, level .05, 30 tasks, at most 300 positions; {_DROPPED_RUNS:,} repetitions"
    return [grid(title, ("noise, margin", *columns), rows)]


def _removals_row(shape: float, margin: float) -> tuple[str, list[Cell]]:
    cells = []
    for lift, (dropped, positions) in zip((-margin, -margin / 2, 0.0, 0.05), DROPPED[shape, margin], strict=True):
        random = np.random.default_rng([SEED, 80, round(10 * shape), round(100 * margin), round(1000 * lift) + 1000])
        arms = population(random, _DROPPED_RUNS, 30, lift, 0.25, shape)
        held = verdicts(streamed(random, arms, 300, 3), Terms(0.05, 300, worth=0.0), floor=-margin)
        promise = 0.05 if lift <= -margin else None
        cells += [rate(held.certified, dropped, 1200, promise), cost(held.positions, positions)]
    return f"Beta({shape:g}), {margin:.2f}", cells
