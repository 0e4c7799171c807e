"""Negative controls: what the gate would be worth if its conditions were broken. Were a leak not seen here, the other
figures would show nothing."""

from concurrent.futures import Executor

import numpy as np
from gate_report import Cell, Grid, grid, rate
from many_attempts import SEED, Counts, Flags, Floats, drawn, exam_on, population, thrown, verdicts

from whet.skills.attempt import Terms

_RUNS, _SHARDS = 2000, 10
TASKS, SOLVED, CHANGED, POSITIONS = 30, 15, 5, 120


def leaks(pool: Executor) -> list[Grid]:
    """A deterministic agent solves half of 30 tasks; every candidate fixes 5 and breaks 5, so none is better."""
    bits, scores, traces = (np.concatenate(list(pool.map(case, range(_SHARDS)))) for case in (_bits, _scores, _traces))
    rows: list[tuple[str, list[Cell]]] = [
        ("certified bits only, 100 candidates, .10 for the run", [rate(bits, 0.017, 2000, at_most=0.10)]),
        ("exam scores of rejected candidates fed back", [rate(scores, 0.18, 2000)]),
        ("exam traces shown, one candidate at .0125", [rate(traces, 0.61, 2000)]),
    ]
    title = f"What the proposer is told, and how often a candidate that is no better is certified; {_RUNS:,} runs"
    return [grid(title, ("the proposer sees", "certified"), rows)]


def _bits(shard: int) -> Flags:
    random = np.random.default_rng([SEED, 40, shard])
    found = []
    for _ in range(_RUNS // _SHARDS):
        exam = drawn(random, 1, TASKS, POSITIONS)
        found.append(_held(np.stack([_random_candidate(random) for _ in range(100)])[:, exam[0]]).any())
    return np.array(found)


def _scores(shard: int) -> Flags:
    """The best of the rejected so far is changed a little: one task that it fixes, and one that it breaks."""
    random = np.random.default_rng([SEED, 41, shard])
    runs = _RUNS // _SHARDS
    exams = drawn(random, runs, TASKS, POSITIONS)
    best = np.stack([_random_candidate(random) for _ in range(runs)])
    best_score, certified = np.full(runs, -np.inf), np.zeros(runs, dtype=bool)
    for number in range(100):
        candidate = best if number == 0 else np.stack([_swapped(random, one) for one in best])
        seen = np.take_along_axis(candidate, exams, axis=1)
        held = verdicts(seen, _LEVEL_OF_A_HUNDRED)
        certified |= held.certified
        taken = np.arange(POSITIONS) < held.positions[:, None]
        score = (seen * taken).sum(axis=1) / held.positions
        better = score > best_score
        best, best_score = np.where(better[:, None], candidate, best), np.maximum(score, best_score)
    return certified


def _traces(shard: int) -> Flags:
    """Whoever sees how often the exam asks each task fixes the frequent and breaks the rare ones."""
    random = np.random.default_rng([SEED, 42, shard])
    exams = drawn(random, _RUNS // _SHARDS, TASKS, POSITIONS)
    seen = np.stack([fitted(np.bincount(exam, minlength=TASKS))[exam] for exam in exams])
    return verdicts(seen, Terms(0.0125, POSITIONS, worth=0.10)).certified


def fitted(asked: Counts) -> Floats:
    """The candidate that fixes the most asked of the unsolved tasks, and breaks the least asked of the solved."""
    effect = np.zeros(TASKS)
    effect[SOLVED + np.argsort(-asked[SOLVED:])[:CHANGED]] = 1
    effect[np.argsort(asked[:SOLVED])[:CHANGED]] = -1
    return effect


_LEVEL_OF_A_HUNDRED = Terms(0.10 / 100, POSITIONS, worth=0.10)


def _held(seen: Floats) -> Flags:
    return verdicts(seen, _LEVEL_OF_A_HUNDRED).certified


def _random_candidate(random: np.random.Generator) -> Floats:
    effect = np.zeros(TASKS)
    effect[SOLVED + random.choice(TASKS - SOLVED, CHANGED, replace=False)] = 1
    effect[random.choice(SOLVED, CHANGED, replace=False)] = -1
    return effect


def _swapped(random: np.random.Generator, effect: Floats) -> Floats:
    changed = effect.copy()
    for side, value in ((slice(SOLVED, TASKS), 1), (slice(0, SOLVED), -1)):
        part = changed[side]
        part[random.choice(np.flatnonzero(part == value))], part[random.choice(np.flatnonzero(effect[side] == 0))] = (
            0,
            value,
        )
    return changed


# Missing scores

_LOST_RUNS = 4000


def missing(pool: Executor) -> list[Grid]:
    """The incumbent loses rollouts; what becomes of them decides whether a null is certified."""
    nulls = list(pool.map(_lost, (0.0, 0.0), (0.10, 0.20)))
    found = next(pool.map(_lost, (0.20,), (0.10,)))
    figures = {"zero": (0.033, 0.158), "imputed": (0.0, 0.0), "void": (0.0025, 0.0025)}
    power = {"zero": None, "imputed": 0.47, "void": 0.75}
    names = {"zero": "counted as 0 (wrong)", "imputed": "counted against the candidate", "void": "position left out"}
    rows = []
    for name, expected in figures.items():
        promise = None if name == "zero" else 0.0125
        cells = [rate(null[name], figure, 2000, promise) for null, figure in zip(nulls, expected, strict=True)]
        rows.append((names[name], [*cells, rate(found[name], power[name], 400)]))
    rows.append(("nothing lost", [rate(nulls[0]["none"], at_most=0.0125), Cell("–"), rate(found["none"], 0.81, 400)]))
    title = f"Rollouts of the incumbent that are lost, level .0125, 120 positions; {_LOST_RUNS:,} repetitions"
    columns = ("a lost score is", "null certified: 10 % lost", "20 % lost", "+.20 certified: 10 % lost")
    return [grid(title, columns, rows)]


def _lost(lift: float, share: float) -> dict[str, Flags]:
    random = np.random.default_rng([SEED, 50, round(100 * lift), round(100 * share)])
    arms = population(random, _LOST_RUNS, TASKS, lift)
    exam = exam_on(random, arms[0], POSITIONS)
    before, after = (thrown(random, np.take_along_axis(arm, exam, axis=1)) for arm in arms)
    lost = random.random(before.shape) < share
    terms = Terms(0.0125, POSITIONS)
    seen = after - before
    return {
        "none": verdicts(seen, terms).certified,
        "zero": verdicts(np.where(lost, after, seen), terms).certified,
        "imputed": verdicts(np.where(lost, after - 1, seen), terms, np.where(lost, after, seen)).certified,
        # What lies just at a bound changes no wealth that bets on it.
        "void": verdicts(np.where(lost, 0.0, seen), terms, np.where(lost, terms.worth, seen)).certified,
    }
