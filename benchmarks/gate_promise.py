"""The promise for a whole run: anything that is not better is certified with a chance of at most 10 %, whatever the
tasks, the scores, the losses and the model do."""

from itertools import repeat

import uvloop

from gate_attempts import PLAN
from gate_report import Bench, Cell, Grid, cost, grid, mean, rare, rate
from gate_worlds import (
    Losses,
    Ran,
    Setting,
    beta,
    eighths,
    even,
    fix_and_break,
    flips,
    half_solved,
    harm,
    nearly_sure,
    rarely_much,
    run_one,
    slow,
    sudden,
    sure_or_full,
    uneven,
)

_RUNS, _SHARD = 800, 20

NOTHING: dict[str, Setting] = {
    "30 + 30 tasks, 1,500 rollouts": Setting(),
    "12 tasks, nearly without chance": Setting(beta(0.2), tasks=12, training=12, budget=800),
    "2 proposals": Setting(proposals=2),
    "12 tasks, 300 rollouts": Setting(tasks=12, training=12, budget=300),
    "24 + 10 tasks, 800 rollouts": Setting(tasks=24, training=10, budget=800),
    "100 tasks, 6,000 rollouts": Setting(tasks=100, training=30, budget=6000),
    "without chance: 5 of 20 tasks fixed, 5 broken": Setting(
        half_solved, fix_and_break(5), tasks=20, training=20, budget=1000
    ),
    "share of 8 tests": Setting(score=eighths),
    ".95 for sure, or 1 with chance .95": Setting(score=sure_or_full(0.95)),
    ".5 for sure, or 1 with chance .5": Setting(score=sure_or_full(0.5)),
    "-.05 often, +.95 rarely": Setting(score=rarely_much),
    "all proposals harm": Setting(proposal=harm),
    "uneven over tasks, null over all there might be, 12 tasks": Setting(
        proposal=uneven(1.5), tasks=12, training=12, budget=800
    ),
    "the same, nearly without chance, 12 tasks": Setting(nearly_sure, flips(1 / 6), tasks=12, training=12, budget=800),
    "the same, nearly without chance, 30 tasks": Setting(nearly_sure, flips(1 / 6)),
}
LOST: dict[str, Setting] = (
    {
        f"{share:.0%} of the new skill's failures {what}": Setting(losses=Losses(failures=share, tries=tries))
        for tries, what in ((1, "lost"), (2, "sent again, once"), (4, "sent again, up to 3 times"))
        for share in (0.05, 0.10, 0.20, 0.30, 0.50)
    }
    | {
        f"{share:.0%} sent again, up to 3 times, and {both:.0%} of all calls": Setting(
            training=10, losses=Losses(failures=share, both=both, tries=4)
        )
        for both in (0.10, 0.30)
        for share in (0.20, 0.50)
    }
    | {
        f"{share:.0%} sent again, up to 3 times, 24 tasks, 4 proposals": Setting(
            tasks=24, training=10, budget=800, proposals=4, losses=Losses(failures=share, tries=4)
        )
        for share in (0.05, 0.20, 0.50)
    }
    | {"25 % of the first skill's successes lost": Setting(losses=Losses(successes=0.25))}
)
CHANGES: dict[str, Setting] = (
    {f"+{points} points at one moment": Setting(noise=sudden(points)) for points in (3, 5, 10, 15, 20, 27)}
    | {f"+{points} points, evenly": Setting(noise=even(points)) for points in (3, 15, 27)}
    | {f"noise of 1.5 logits that lasts {length} calls": Setting(noise=slow(1.5, length)) for length in (5, 50, 200)}
)


def promise(bench: Bench) -> list[Grid]:
    """Whole runs of the engine, all defaults, in which nothing helps."""
    runs = bench.runs(_RUNS)
    columns = ("world", "runs that certify what is not better", "that certify any", "attempts", "rollouts")
    worlds = {
        "Nothing helps": NOTHING,
        "Nothing helps, and scores are lost": LOST,
        "Nothing helps, and the model changes": CHANGES,
    }
    return [
        grid(f"{title}; {runs} runs each", columns, [(name, _row(bench, name, runs)) for name in settings])
        for title, settings in worlds.items()
    ]


def _row(bench: Bench, name: str, runs: int) -> list[Cell]:
    firsts = range(0, runs, _SHARD)
    shards = bench.pool.map(_shard, repeat(name), firsts, (min(_SHARD, runs - first) for first in firsts))
    found = [ran for shard in shards for ran in shard]
    return [
        rare([ran.false for ran in found], PLAN.alpha),
        rate([ran.certified for ran in found]),
        mean([ran.attempts for ran in found], 2),
        cost([ran.rollouts for ran in found]),
    ]


def _shard(name: str, first: int, number: int) -> list[Ran]:
    setting = (NOTHING | LOST | CHANGES)[name]

    async def runs() -> list[Ran]:
        return [await run_one(setting, seed) for seed in range(first, first + number)]

    return uvloop.run(runs())
