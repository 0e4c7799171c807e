"""Many attempts at once, in arrays: worlds of many tasks, rollouts of both arms, and the verdicts that they come to."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from whet.skills.gate.eprocess import log_e_value
from whet.skills.gate.sequential_test import ExamTerms

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
Arms = tuple[Floats, Floats]
"""Chances of the incumbent and of the candidate: one row for each repetition, one column for each task."""

SEED = 20251115
_AT_ONCE = 1000
_EDGE = 0.005


def chances(random: np.random.Generator, runs: int, tasks: int, shape: float = 0.8) -> Floats:
    """New tasks in every repetition."""
    return np.clip(random.beta(shape, shape, (runs, tasks)), _EDGE, 1 - _EDGE)


def population(
    random: np.random.Generator, runs: int, tasks: int, lift: float, spread: float = 0.5, shape: float = 0.8
) -> Arms:
    """A candidate with exactly this lift, which it has from some tasks more than from others."""
    first = chances(random, runs, tasks, shape)
    moved = logit(first) + spread * random.standard_normal(first.shape)
    return first, expit(moved + common_shift(moved, first.mean(axis=1) + lift)[:, None])


def common_shift(logits: Floats, means: Floats) -> Floats:
    """What is to be added to the logits of each repetition so that its chances have this mean."""
    target = np.clip(means, 0.004, 0.996)
    low, high = np.full(len(logits), -12.0), np.full(len(logits), 12.0)
    for _ in range(40):
        middle = (low + high) / 2
        above = expit(logits + middle[:, None]).mean(axis=1) > target
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)


def thrown(random: np.random.Generator, odds: Floats) -> Floats:
    """One rollout at each of these chances."""
    return (random.random(odds.shape) < odds).astype(float)


def paired(random: np.random.Generator, arms: Arms) -> Floats:
    """Differences of one rollout of each arm on every task."""
    return thrown(random, arms[1]) - thrown(random, arms[0])


def drawn(random: np.random.Generator, runs: int, tasks: int, positions: int) -> Counts:
    """The tasks of an exam, drawn with replacement."""
    return random.integers(0, tasks, (runs, positions))


def exam_on(random: np.random.Generator, odds: Floats, positions: int) -> Counts:
    """The same, on tasks with these chances."""
    runs, tasks = odds.shape
    return drawn(random, runs, tasks, positions)


def streamed(random: np.random.Generator, arms: Arms, positions: int, repeats: int = 1) -> Floats:
    """Differences at the positions of an exam, both arms rolled out afresh."""
    exam = exam_on(random, arms[0], positions)
    return differences(random, arms[1], incumbent_means(random, arms[0], exam, repeats), exam)


def incumbent_means(random: np.random.Generator, first: Floats, exam: Counts, repeats: int = 1) -> Floats:
    at = np.take_along_axis(first, exam, axis=1)
    return np.asarray(np.mean([thrown(random, at) for _ in range(repeats)], axis=0))


def differences(random: np.random.Generator, second: Floats, before: Floats, exam: Counts) -> Floats:
    """A candidate's rollouts at the positions of an exam, less what the incumbent had there."""
    return thrown(random, np.take_along_axis(second, exam, axis=1)) - before


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What many attempts came to."""

    certified: Flags
    futile: Flags
    positions: Counts

    @property
    def undecided(self) -> Flags:
        return ~(self.certified | self.futile)


def verdicts(worst: Floats, terms: ExamTerms, best: Floats | None = None, floor: float = 0.0) -> Verdicts:
    """Of attempts to show a lift above the floor; the differences may be others when it comes to giving up."""
    best = worst if best is None else best
    end = worst.shape[1]
    accept = first_crossing(worst, floor, terms.level, above=True)
    give_up = first_crossing(best, terms.minimum_effect, terms.beta, above=False)
    certified = (accept <= give_up) & (accept < end)
    return Verdicts(certified, give_up < accept, np.minimum(np.minimum(accept, give_up) + 1, end))


def first_crossing(seen: Floats, bound: float, level: float, *, above: bool) -> Counts:
    """The position, counted from 0, at which each sequence refutes the bound; the number of positions if none."""
    return np.concatenate([_first(log_e_value(part, bound, above=above), level) for part in _parts(seen)])


def pace(seen: Floats) -> Counts:
    """The same for one bet of a half, as in PACE."""
    return _first(np.log1p(0.5 * seen).cumsum(axis=1), 0.05)


def _first(logs: Floats, level: float) -> Counts:
    crossed = logs >= -math.log(level)
    return np.asarray(np.where(crossed.any(axis=1), crossed.argmax(axis=1), logs.shape[1]))


def _parts(seen: Floats) -> Iterator[Floats]:
    """In pieces: all stakes of all positions at once would not fit the caches."""
    return (seen[start : start + _AT_ONCE] for start in range(0, len(seen), _AT_ONCE))
