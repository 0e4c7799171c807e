"""Part of `make check-sleep`: how often a night certifies a rule, by simulation with the real search and the real gate.

Every rollout is a draw with a known chance to keep the habit and a known chance to pass the tests; no process is
started. Seeds are fixed. Exit code 1 if an exact binomial bound breaks what docs/sleep.md promises.
"""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import uvloop
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from whet.skills.gate.gate import ExamSetting
from whet.skills.gate.seed import Seed
from whet.skills.measurement import Execution, Outcome, Pay, RolloutKey
from whet.skills.rollouts.audit import extra_rollouts
from whet.skills.search.two_tiers import SearchSetting, search_and_certify
from whet.sleep.exam import ALPHA, MARGIN, night_plan

NIGHTS, SHARD = 2000, 50
TRAIN, EXAM = 3, 6
"""Tasks of a night: the fewest that the search takes, and as many in the exam as the promise is about."""
EXAM_ROLLOUTS = 60
SEARCH_ROLLOUTS = extra_rollouts(TRAIN) + 2 * TRAIN * night_plan(0, TRAIN).samples
"""Audit, and one measurement of each version."""
ASKED_NIGHTS = 200
"""What is asked: of this many nights with quiet tests and 60 rollouts in all, at least 95 % certify the habit."""
POWER = 0.95
SURE = 0.95
"""Confidence of the one-sided exact binomial bounds."""
OLD, NEW = "old", "new"


@dataclass(frozen=True, slots=True)
class World:
    """The chances of a night: with the old memory file, and with the new rule in it."""

    habit: tuple[float, float]
    work: tuple[float, float]

    @property
    def name(self) -> str:
        (habit, kept), (work, passed) = self.habit, self.work
        return f"habit {habit:g} → {kept:g}, work {work:g} → {passed:g}"


HABITS = tuple(World((0.1, 0.9), (work, work)) for work in (1.0, 0.9))
NULLS = tuple(World((habit, habit), (0.9, 0.9)) for habit in (0.1, 0.5))
HARMS = tuple(World((0.1, 0.9), (work, work - 0.3)) for work in (1.0, 0.9))


class Rollouts:
    """Draws the habit and the work of each rollout once."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, np.random.default_rng([20_261, seed])
        self._drawn: dict[RolloutKey, tuple[float, float]] = {}

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        if key not in self._drawn:
            chances = (self._world.habit[skill == NEW], self._world.work[skill == NEW])
            habit, work = (float(self._random.random() < chance) for chance in chances)
            self._drawn[key] = habit, work
        return self._drawn[key][0]

    async def read_execution(self, key: RolloutKey) -> Execution:
        return Execution(guard=self._drawn[key][1])


class OneRule:
    """Proposes the new rule once."""

    async def propose(self, parent: str, steps: Sequence[object], pay: Pay, section: str | None = None) -> str | None:
        return NEW if parent == OLD and not steps else None


@dataclass(frozen=True, slots=True)
class Night:
    """What came of one night."""

    certified: bool
    exam: int
    """Rollouts of its exam."""
    rollouts: int
    """Rollouts in all: audit, search and exam."""


async def simulate(world: World, seed: int, rollouts: int) -> Night:
    """One night that may use this many rollouts in all, the noise audit included."""
    plan = replace(night_plan(rollouts - extra_rollouts(TRAIN), TRAIN), seed=seed)
    drawn = Rollouts(world, seed)
    train, exam = (
        [f"{side}-{number}" for number in range(tasks)] for side, tasks in (("train", TRAIN), ("exam", EXAM))
    )
    done = await search_and_certify(
        OLD,
        plan,
        SearchSetting(train, OneRule(), read_execution=drawn.read_execution),
        ExamSetting(tuple(exam), Seed.choose(seed), read_execution=drawn.read_execution),
        drawn,
    )
    assert done.spent <= plan.budget
    rollouts_of_exams = sum(2 * len(held.test.pairs) for held in done.exam_results)
    return Night(done.certified == NEW, rollouts_of_exams, extra_rollouts(TRAIN) + done.spent)


def simulate_shard(world: World, rollouts: int, first: int) -> list[Night]:
    async def nights() -> list[Night]:
        return [await simulate(world, seed, rollouts) for seed in range(first, first + SHARD)]

    return uvloop.run(nights())


def simulate_nights(pool: Executor, world: World, rollouts: int) -> list[Night]:
    shards = pool.map(simulate_shard, repeat(world), repeat(rollouts), range(0, NIGHTS, SHARD))
    return [night for shard in shards for night in shard]


def check(certified: int, promise: str) -> tuple[str, bool]:
    """The one-sided exact bound of a share, and whether it keeps the promise."""
    if promise == "power":
        bound = float(binomtest(certified, NIGHTS, alternative="greater").proportion_ci(SURE, "exact").low)
        return f"at least {POWER:.0%}: lower bound {bound:.1%}", bound >= POWER
    bound = float(binomtest(certified, NIGHTS, alternative="less").proportion_ci(SURE, "exact").high)
    return f"at most {ALPHA:.0%}: upper bound {bound:.1%}", bound <= ALPHA


def row(world: World, found: Sequence[Night], promise: str) -> tuple[list[str], bool]:
    """The cells of a row, and whether its promise holds."""
    certified = sum(night.certified for night in found)
    interval = binomtest(certified, NIGHTS).proportion_ci(0.95, "exact")
    told, holds = check(certified, promise) if promise else ("none", True)
    exams = [night.exam for night in found if night.exam]
    cells = [
        world.name,
        f"{certified / NIGHTS:.1%} [{interval.low:.1%}, {interval.high:.1%}]",
        f"{len(exams) / NIGHTS:.0%}",
        f"{np.mean(exams):.0f}, at most {max(exams)}" if exams else "none",
        told if holds else f"[red]{told}[/]",
    ]
    return cells, holds


def tabulate(
    pool: Executor, title: str, rollouts: int, groups: Sequence[tuple[Sequence[World], str]]
) -> tuple[Table, bool]:
    """A table of nights that may use this many rollouts, and whether every promise in it holds."""
    table, kept = Table(title=title, title_justify="left"), True
    for column in ("night", "certified [95 %]", "had an exam", "exam rollouts, mean", "promise"):
        table.add_column(column)
    for worlds, promise in groups:
        for world in worlds:
            cells, holds = row(world, simulate_nights(pool, world, rollouts), promise)
            table.add_row(*cells)
            kept = kept and holds
    return table, kept


def check_what_is_asked(pool: Executor, console: Console) -> bool:
    """The first 200 nights with a habit rule, within 60 rollouts in all."""
    found = simulate_nights(pool, HABITS[0], EXAM_ROLLOUTS)[:ASKED_NIGHTS]
    certified, most = sum(night.certified for night in found), max(night.rollouts for night in found)
    kept = certified >= POWER * ASKED_NIGHTS and most <= EXAM_ROLLOUTS
    console.print(
        f"asked: {HABITS[0].name}, {EXAM} exam tasks: certified in {certified} of {ASKED_NIGHTS} nights (at least "
        f"{POWER:.0%}), with at most {most} rollouts in all (at most {EXAM_ROLLOUTS})",
        style=None if kept else "red",
        highlight=False,
    )
    return kept


def main() -> int:
    console = Console(width=150)
    console.print(
        f"{NIGHTS} nights each: {TRAIN} train and {EXAM} exam tasks, {SEARCH_ROLLOUTS} rollouts for audit and search; "
        f"level {ALPHA:g}, margin of the work {MARGIN * 100:g} points",
        highlight=False,
    )
    wanted = ((HABITS, "power"), (NULLS, "error"), (HARMS, "error"))
    # Fewer pairs than the margin takes when tests are noisy: shown, not promised.
    quiet, noisy = HABITS
    shown = (((quiet,), "power"), ((noisy,), ""))
    everything = SEARCH_ROLLOUTS + EXAM_ROLLOUTS
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        table, kept = tabulate(pool, f"{EXAM_ROLLOUTS} rollouts in the exam", everything, wanted)
        console.print(table)
        table, also = tabulate(pool, f"{EXAM_ROLLOUTS} rollouts in all", EXAM_ROLLOUTS, shown)
        console.print(table)
        asked = check_what_is_asked(pool, console)
    return 0 if kept and also and asked else 1


if __name__ == "__main__":
    sys.exit(main())
