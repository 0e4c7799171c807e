"""What an exam can show: the smallest lift that it certifies in 80 % of cases, by noise and number of positions."""

import math
from bisect import bisect_left

import numpy as np

from whet.skills.gate.eprocess import Floats, log_e_value_of_counts
from whet.skills.gate.sequential_test import ExamTerms, SequentialTest

POWER = 0.80
ENOUGH_POSITIONS = 200
"""With fewer, exams are simulated: the formula promises too much where few tasks are discordant, by up to 8 points at
50 positions, and too little where many are, by up to 7."""
_RUNS = 500
_SEED = 20_250
_STEPS = 100
"""A simulated lift is found to a hundredth."""


def smallest_lift(variance: float, terms: ExamTerms) -> float | None:
    """The smallest lift that an attempt on these terms certifies in 80 % of cases; None when it can certify nothing.

    `variance` is that of a rollout's score on one task, from the audit: half the mean square between two measurements.

    >>> round(smallest_lift(0.154, ExamTerms(0.05, 120)), 3), smallest_lift(0.154, ExamTerms(0.05, 40))
    (0.18, 0.33)
    """
    if terms.positions < SequentialTest(terms).fewest:
        return None
    if terms.positions >= ENOUGH_POSITIONS:
        # Smaller lifts than the one worth finding are given up, however many positions there are.
        return min(1.0, max(terms.worth, _by_formula(variance, terms)))
    chance = np.random.default_rng(_SEED).random((_RUNS, terms.positions))
    steps = range(1, _STEPS + 1)
    found = bisect_left(steps, POWER, key=lambda step: _power(step / _STEPS, variance, terms, chance))
    return (1 + min(found, _STEPS - 1)) / _STEPS


def _by_formula(variance: float, terms: ExamTerms) -> float:
    return (math.sqrt(2 * math.log(1 / terms.level)) + 1.5) * math.sqrt(2 * variance / terms.positions)


def _power(lift: float, variance: float, terms: ExamTerms, chance: Floats) -> float:
    """How often a lift is certified when scores are 0 or 1: the candidate wins some positions, and loses some by noise.
    A lift brings differences of its own."""
    differ = min(1.0, math.hypot(lift, 2 * variance))
    won, lost = (differ + lift) / 2, (differ - lift) / 2
    wins, losses = (chance < won).cumsum(axis=1), ((chance >= won) & (chance < won + lost)).cumsum(axis=1)
    ties = np.arange(1, terms.positions + 1) - wins - losses
    better = log_e_value_of_counts((wins, losses, ties), -terms.margin, above=True) >= -math.log(terms.level)
    worse = log_e_value_of_counts((wins, losses, ties), terms.worth, above=False) >= -math.log(terms.giving_up)
    end = terms.positions
    certified = np.where(better.any(axis=1), better.argmax(axis=1), end)
    given_up = np.where(worse.any(axis=1), worse.argmax(axis=1), end)
    return float(((certified < end) & (certified <= given_up)).mean())
