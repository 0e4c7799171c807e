"""`make bench-gate`: how often the gate, and the acceptance rules of other optimizers, take what does nothing.

Every figure is simulated in worlds with known truth, side by side in one run, with fixed seeds.
"""

import asyncio
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import expit, logit
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).parents[1] / "skills"))
from test_engine import whole

from whet.skills.attempt import Terms, Verdict
from whet.skills.rules import RULES, Rule
from whet.skills.wealth import log_wealth

Floats = NDArray[np.float64]

TAIL = 1e-4
LIFTS = (-0.10, -0.05, 0.0, 0.05, 0.10, 0.20, 0.30)
TASKS = (20, 30, 50)


def main(runs: int) -> int:
    console = Console(width=140)
    started = time.monotonic()
    failures = [*one_decision(console, 4000), *nothing_helps(console, 1500), *whole_runs(console, runs)]
    console.print(f"\n{time.monotonic() - started:.0f} s")
    console.print("\n".join(failures) or "every guarantee holds")
    return 1 if failures else 0


# Worlds of many tasks, new ones in every repetition


def population(random: np.random.Generator, runs: int, tasks: int, lift: float, spread: float) -> tuple[Floats, Floats]:
    """Chances of both arms: Beta(.8, .8), and the same with a common shift and a spread of its own on every task."""
    first = np.clip(random.beta(0.8, 0.8, (runs, tasks)), 0.005, 0.995)
    moved = logit(first) + spread * random.standard_normal(first.shape)
    target = np.clip(first.mean(axis=1) + lift, 0.004, 0.996)
    low, high = np.full(runs, -12.0), np.full(runs, 12.0)
    for _ in range(50):
        middle = (low + high) / 2
        above = expit(moved + middle[:, None]).mean(axis=1) > target
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return first, expit(moved + ((low + high) / 2)[:, None])


def thrown(random: np.random.Generator, chances: Floats) -> Floats:
    return (random.random(chances.shape) < chances).astype(float)


def streamed(random: np.random.Generator, arms: tuple[Floats, Floats], positions: int, repeats: int = 1) -> Floats:
    """Differences at positions of an exam: tasks drawn with replacement, both arms rolled out afresh."""
    drawn = random.integers(0, arms[0].shape[1], (arms[0].shape[0], positions))
    first, second = (np.take_along_axis(arm, drawn, axis=1) for arm in arms)
    incumbent = np.mean([thrown(random, first) for _ in range(repeats)], axis=0)
    return np.asarray(thrown(random, second) - incumbent)


def certified(differences: Floats, terms: Terms) -> tuple[Floats, Floats]:
    """Whether each run is certified, and how many positions it took."""
    end = differences.shape[1]
    accept = first_crossing(log_wealth(differences, 0.0, above=True), terms.level)
    give_up = first_crossing(log_wealth(differences, terms.worth, above=False), terms.giving_up)
    taken = np.minimum(np.minimum(accept, give_up) + 1, end)
    return ((accept <= give_up) & (accept < end)).astype(float), taken.astype(float)


def first_crossing(logs: Floats, level: float) -> NDArray[np.int64]:
    crossed = logs >= -math.log(level)
    return np.asarray(np.where(crossed.any(axis=1), crossed.argmax(axis=1), logs.shape[1]))


# Tables


def one_decision(console: Console, runs: int) -> Iterator[str]:
    """How likely one candidate is taken, by its true lift."""
    table = Table(title=f"P(taken) by true lift; each cell for 20, 30 and 50 tasks, {runs:,} repetitions")
    for heading in ("rule", *(f"{lift:+.2f}" for lift in LIFTS)):
        table.add_column(heading)
    cells = {(lift, tasks): _one_cell(lift, tasks, runs) for lift in LIFTS for tasks in TASKS}
    for rule in (*RULES, "whet .05", "whet .005"):
        rows = [" ".join(f"{cells[lift, tasks][rule]:.3f}" for tasks in TASKS) for lift in LIFTS]
        table.add_row(rule, *rows)
    console.print(table)
    for (lift, tasks), cell in cells.items():
        if lift <= 0 and cell["whet .05"] * runs > binom.isf(TAIL, runs, 0.05):
            yield f"one decision at lift {lift}, {tasks} tasks: {cell['whet .05']:.3f} taken at level .05"


def _one_cell(lift: float, tasks: int, runs: int) -> dict[str, float]:
    random = np.random.default_rng([20251115, tasks, round(100 * lift) + 100])
    arms = population(random, runs, tasks, lift, 0.5)
    pairs = thrown(random, arms[1]) - thrown(random, arms[0])
    found = {name: float(rule(pairs).mean()) for name, rule in RULES.items()}
    stream = streamed(random, arms, 6 * tasks)
    for level in (0.05, 0.005):
        found[f"whet {level:g}".replace("0.", ".")] = float(
            certified(stream, Terms(level, 6 * tasks, worth=0.10))[0].mean()
        )
    return found


def nothing_helps(console: Console, runs: int) -> Iterator[str]:
    """Runs of 20 proposals that do nothing: how many accept any, and how much too high their best score stands."""
    table = Table(title=f"20 proposals that do nothing, 30 tasks, {runs:,} runs")
    for heading in ("rule", "taken per run", "runs that take any", "shown too high by"):
        table.add_column(heading, justify="left" if heading == "rule" else "right")
    for name, (taken, any_, phantom) in {
        "strict, cached (SkillOpt)": _ratchet(runs, 30, 20),
        "3 train tasks, then strict (GEPA)": _minibatch(runs, 30, 20),
        **{name: _fresh(rule, runs, 30, 20) for name, rule in RULES.items() if name != "strict"},
    }.items():
        table.add_row(name, f"{taken:.2f}", f"{any_:.1%}", f"{100 * phantom:+.1f} points")
    random = np.random.default_rng(7)
    arms = population(random, runs, 30, 0.0, 0.0)
    takes = np.array([certified(streamed(random, arms, 120), Terms(0.10 / 20, 120, worth=0.10))[0] for _ in range(20)])
    any_ = float((takes.sum(axis=0) > 0).mean())
    table.add_row("whet, level .10 for the run", f"{takes.sum(axis=0).mean():.2f}", f"{any_:.1%}", "")
    console.print(table)
    if any_ * runs > binom.isf(TAIL, runs, 0.10):
        yield f"runs that take what does nothing: {any_:.3f}, promised .10"


def _ratchet(runs: int, tasks: int, proposals: int) -> tuple[float, float, float]:
    random = np.random.default_rng(11)
    chances = np.clip(random.beta(0.8, 0.8, (runs, tasks)), 0.005, 0.995)
    bar, taken = thrown(random, chances).mean(axis=1), np.zeros(runs)
    for _ in range(proposals):
        mean = thrown(random, chances).mean(axis=1)
        taken += mean > bar
        bar = np.maximum(bar, mean)
    return float(taken.mean()), float((taken > 0).mean()), float((bar - chances.mean(axis=1)).mean())


def _minibatch(runs: int, tasks: int, proposals: int) -> tuple[float, float, float]:
    random = np.random.default_rng(12)
    chances = np.clip(random.beta(0.8, 0.8, (runs, tasks)), 0.005, 0.995)
    train = np.clip(random.beta(0.8, 0.8, (runs, 3)), 0.005, 0.995)
    bar, taken = thrown(random, chances).mean(axis=1), np.zeros(runs)
    for _ in range(proposals):
        passes = (thrown(random, train) - thrown(random, train)).sum(axis=1) > 0
        mean = thrown(random, chances).mean(axis=1)
        better = passes & (mean > bar)
        taken += better
        bar = np.where(better, mean, bar)
    return float(taken.mean()), float((taken > 0).mean()), float((bar - chances.mean(axis=1)).mean())


def _fresh(rule: Rule, runs: int, tasks: int, proposals: int) -> tuple[float, float, float]:
    """Both arms are rolled out afresh for every decision."""
    random = np.random.default_rng(13)
    chances = np.clip(random.beta(0.8, 0.8, (runs, tasks)), 0.005, 0.995)
    taken, shown = np.zeros(runs), thrown(random, chances).mean(axis=1)
    for _ in range(proposals):
        before, after = thrown(random, chances), thrown(random, chances)
        takes = rule(after - before)
        taken += takes
        shown = np.where(takes, after.mean(axis=1), shown)
    return float(taken.mean()), float((taken > 0).mean()), float((shown - chances.mean(axis=1)).mean())


def whole_runs(console: Console, runs: int) -> Iterator[str]:
    """The engine itself, both tiers, all defaults."""
    table = Table(title=f"whole runs of the engine, all defaults, {runs:,} runs each")
    headings = (
        "proposals",
        "budget",
        "runs with a certificate",
        "lift returned",
        "lift of the leader",
        "returned worse",
    )
    for heading in (*headings, "leader worse", "false certificates"):
        table.add_column(heading, justify="right")
    for kind, budget in (("null", 1500), ("harm", 1500), ("rich", 1500), ("rich", 3000)):
        found = asyncio.run(_whole_runs(kind, budget, runs))
        certificates, lift, leader, worse, leader_worse, false = found
        table.add_row(
            kind,
            str(budget),
            f"{certificates:.3f}",
            f"{lift:+.3f}",
            f"{leader:+.3f}",
            f"{worse:.3f}",
            f"{leader_worse:.3f}",
            f"{false:.3f}",
        )
        if false * runs > binom.isf(TAIL, runs, 0.10):
            yield f"{kind}, {budget}: {false:.3f} of runs certify what is no better, promised .10"
        if worse * runs > binom.isf(TAIL, runs, 0.01):
            yield f"{kind}, {budget}: {worse:.3f} of runs return a skill worse than the start"
    console.print(table)


async def _whole_runs(kind: str, budget: int, runs: int) -> tuple[float, ...]:
    totals = np.zeros(6)
    for seed in range(runs):
        done, world = await whole(kind, seed, budget)
        got = [held for held in done.held if held.attempt.verdict is Verdict.CERTIFIED]
        returned, leader = (world.lift(skill, split="test") for skill in (done.certified, done.leader))
        false = any(world.lift(held.candidate, held.exam.incumbent) <= 0 for held in got)
        totals += (bool(got), returned, leader, returned < -1e-9, leader < -1e-9, false)
    return tuple(totals / runs)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
