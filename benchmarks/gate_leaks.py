"""What whoever writes proposals may know of an exam, and what not. Where an order is known that will be asked, the gate
is worth nothing; were that not seen here, the other figures would show nothing."""

from functools import partial

import numpy as np

from gate_attempts import PLAN, level
from gate_report import Bench, Cell, Grid, grid, rare, rate
from many_exams import SEED, Counts, Flags, Floats, drawn, verdicts
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.sequential_test import ExamTerms

_RUNS, _SHARDS = 2000, 10
Random = np.random.Generator


# The order of the exam


def orders(bench: Bench) -> list[Grid]:
    """A deterministic agent solves half of the tasks; every candidate fixes some and breaks as many."""
    runs = bench.runs(_RUNS)
    columns = (
        "tasks, positions",
        "blind",
        "best of 10 by the order of an earlier run",
        "made for the order of an earlier run",
        "made for the very order that is asked",
    )
    rows: list[tuple[str, list[Cell]]] = []
    for tasks in (12, 30):
        shards = bench.pool.map(partial(_orders, tasks, runs // _SHARDS), range(_SHARDS))
        blind, best, made, known = np.concatenate(list(shards), axis=1)
        promised = [rare(one, level(1)) for one in (blind, best, made)]
        rows.append((f"{tasks}, {6 * tasks}", [*promised, rate(known)]))
    tried = (1, 10, 100)
    shards = bench.pool.map(partial(_seeds_tried, tried, bench.runs(_RUNS // 10)), range(_SHARDS))
    by_seeds = np.concatenate(list(shards), axis=1)
    return [
        grid(f"Null certified at level {level(1):g}, by what is known of the order; {runs:,} runs", columns, rows),
        grid(
            f"Null certified at level {level(1):g} by the best of several seeds: why a certificate says that its seed "
            "was chosen",
            ("tasks", *(f"best of {number}" for number in tried)),
            [("30", [rate(one) for one in by_seeds])],
        ),
    ]


def _orders(tasks: int, runs: int, shard: int) -> Flags:
    random = np.random.default_rng([SEED, 20, tasks, shard])
    earlier, asked = (
        np.stack([_order(tasks, f"{shard}/{which}/{run}") for run in range(runs)]) for which in ("earlier", "asked")
    )
    blind = np.stack([_null(random, tasks) for _ in range(runs)])
    best = np.stack([_best_of(random, order, tasks) for order in earlier])
    made = np.stack([_fit(order, tasks) for order in earlier])
    known = np.stack([_fit(order, tasks) for order in asked])
    terms = ExamTerms(level(1), 6 * tasks)
    return np.stack(
        [verdicts(np.take_along_axis(one, asked, axis=1), terms).certified for one in (blind, best, made, known)]
    )


def _seeds_tried(tried: tuple[int, ...], runs: int, shard: int) -> Flags:
    random, tasks = np.random.default_rng([SEED, 21, shard]), 30
    terms, found = ExamTerms(level(1), 6 * tasks), []
    for run in range(runs // _SHARDS or 1):
        effect = _null(random, tasks)
        seen = np.stack([effect[_order(tasks, f"seeds/{shard}/{run}/{number}")] for number in range(max(tried))])
        certified = verdicts(seen, terms).certified
        found.append([certified[:number].any() for number in tried])
    return np.array(found).T


def _order(tasks: int, seed: str) -> Counts:
    """The numbers of the tasks in the order of whet's own exam."""
    exam = ExamSequence("incumbent", "candidate", tuple(map(str, range(tasks))), seed, 1, "")
    return np.array([int(exam.task_at(position)) for position in range(6 * tasks)])


def _null(random: Random, tasks: int) -> Floats:
    """Fixes some of the second half, and breaks as many of the first."""
    effect, changed = np.zeros(tasks), tasks // 6
    effect[tasks // 2 + random.choice(tasks // 2, changed, replace=False)] = 1
    effect[random.choice(tasks // 2, changed, replace=False)] = -1
    return effect


def _best_of(random: Random, order: Counts, tasks: int, number: int = 10) -> Floats:
    return max((_null(random, tasks) for _ in range(number)), key=lambda effect: effect[order].sum())


def _fit(order: Counts, tasks: int) -> Floats:
    """Fixes the most asked of the unsolved tasks, and breaks the least asked of the solved."""
    asked, effect, changed, half = np.bincount(order, minlength=tasks), np.zeros(tasks), tasks // 6, tasks // 2
    effect[half + np.argsort(-asked[half:])[:changed]] = 1
    effect[np.argsort(asked[:half])[:changed]] = -1
    return effect


# What comes back from an exam

_CANDIDATES = 20


def leaks(bench: Bench) -> list[Grid]:
    """Twenty candidates one after the other. Each has an order of its own, so even scores that came back would not let
    one pass that is not better on these tasks."""
    runs = bench.runs(_RUNS)
    bits, scores = (
        np.concatenate(list(bench.pool.map(partial(case, runs // _SHARDS), range(_SHARDS))))
        for case in (_told_bits, _told_scores)
    )
    rows = [
        ("which candidates were certified", [rare(bits, PLAN.alpha)]),
        ("the mean score of each as well, and changes the best a little", [rare(scores, PLAN.alpha)]),
    ]
    title = f"Runs that certify any of {_CANDIDATES} nulls, 30 tasks, by what the proposer sees of exams; {runs:,} runs"
    return [grid(title, ("the proposer sees", "any certified"), rows)]


def _told_bits(runs: int, shard: int) -> Flags:
    random = np.random.default_rng([SEED, 22, shard])
    certified = np.zeros(runs, dtype=bool)
    for number in range(1, _CANDIDATES + 1):
        effects = np.stack([_null(random, 30) for _ in range(runs)])
        seen = np.take_along_axis(effects, drawn(random, runs, 30, 180), axis=1)
        certified |= verdicts(seen, ExamTerms(level(number), 180)).certified
    return certified


def _told_scores(runs: int, shard: int) -> Flags:
    random = np.random.default_rng([SEED, 23, shard])
    best = np.stack([_null(random, 30) for _ in range(runs)])
    best_score, certified = np.full(runs, -np.inf), np.zeros(runs, dtype=bool)
    for number in range(1, _CANDIDATES + 1):
        effects = best if number == 1 else np.stack([_swap_one(random, one) for one in best])
        seen = np.take_along_axis(effects, drawn(random, runs, 30, 180), axis=1)
        held = verdicts(seen, ExamTerms(level(number), 180))
        certified |= held.certified
        score = (seen * (np.arange(180) < held.positions[:, None])).sum(axis=1) / held.positions
        better = score > best_score
        best, best_score = np.where(better[:, None], effects, best), np.maximum(score, best_score)
    return certified


def _swap_one(random: Random, effect: Floats) -> Floats:
    """One task that it fixes is another, and one that it breaks."""
    changed = effect.copy()
    for side, value in ((slice(15, 30), 1), (slice(0, 15), -1)):
        part = changed[side]
        dropped, taken = (random.choice(np.flatnonzero(part == one)) for one in (value, 0))
        part[dropped], part[taken] = 0, value
    return changed
