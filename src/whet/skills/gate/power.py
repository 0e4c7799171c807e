"""The power of an exam: how often it certifies, and the smallest lift that it certifies in 80 % of cases, by noise and
number of pairs."""

import math
from bisect import bisect_left
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whet.skills.gate.eprocess import log_e_value_of_counts
from whet.skills.gate.sequential_test import ExamTerms, SequentialTest

POWER = 0.80
MANY_PAIRS = 200
"""With fewer pairs, exams are simulated: at 50 pairs the formula is up to 8 points too low where few tasks are
discordant, and up to 7 points too high where many are."""
MOST_PAIRS = 2000
"""No larger number of pairs is suggested."""
_RUNS = 500
_SEED = 20_250
_STEPS = 100
"""Resolution of a simulated lift."""


def smallest_lift(variance: float, terms: ExamTerms) -> float | None:
    """The smallest lift that an exam on these terms certifies in 80 % of cases; None when it can certify nothing.

    `variance` is that of a rollout's score on one task, from the audit: half the mean square between two measurements.

    >>> round(smallest_lift(0.154, ExamTerms(0.05, 120)), 3), smallest_lift(0.154, ExamTerms(0.05, 40))
    (0.18, 0.33)
    """
    if terms.max_pairs < SequentialTest(terms).fewest:
        return None
    if terms.max_pairs >= MANY_PAIRS:
        lift = _by_formula(variance, terms)
    else:
        steps = range(1, _STEPS + 1)
        found = bisect_left(steps, POWER, key=lambda step: chance_to_certify(step / _STEPS, variance, terms))
        lift = (1 + min(found, _STEPS - 1)) / _STEPS
    # The test gives up on lifts below the minimum effect, however many pairs there are.
    return min(1.0, max(terms.minimum_effect, lift))


def enough_pairs(lift: float, variance: float, terms: ExamTerms) -> int | None:
    """The fewest pairs with which an exam certifies this lift in 80 % of cases; None when that is more than
    `MOST_PAIRS`."""
    certified = np.sort(_find_certified_at(lift, variance, replace(terms, max_pairs=MOST_PAIRS)))
    pairs = int(certified[math.ceil(POWER * _RUNS) - 1])
    return pairs if pairs <= MOST_PAIRS else None


def _by_formula(variance: float, terms: ExamTerms) -> float:
    return (math.sqrt(2 * math.log(1 / terms.level)) + 1.5) * math.sqrt(2 * variance / terms.max_pairs)


def chance_to_certify(lift: float, variance: float, terms: ExamTerms) -> float:
    """How often a lift is certified when scores are 0 or 1, by simulation."""
    return float((_find_certified_at(lift, variance, terms) <= terms.max_pairs).mean())


def _find_certified_at(lift: float, variance: float, terms: ExamTerms) -> NDArray[np.int64]:
    """After how many pairs each simulated exam certifies; more than its pairs when it does not. The candidate wins some
    pairs and loses some by noise; the lift adds differences of its own."""
    chance = np.random.default_rng(_SEED).random((_RUNS, terms.max_pairs))
    differ = min(1.0, math.hypot(lift, 2 * variance))
    won, lost = (differ + lift) / 2, (differ - lift) / 2
    wins, losses = (chance < won).cumsum(axis=1), ((chance >= won) & (chance < won + lost)).cumsum(axis=1)
    ties = np.arange(1, terms.max_pairs + 1) - wins - losses
    better = log_e_value_of_counts((wins, losses, ties), -terms.margin, above=True) >= -math.log(terms.level)
    worse = log_e_value_of_counts((wins, losses, ties), terms.minimum_effect, above=False) >= -math.log(terms.beta)
    never = terms.max_pairs + 1
    certified = np.where(better.any(axis=1), 1 + better.argmax(axis=1), never)
    given_up = np.where(worse.any(axis=1), 1 + worse.argmax(axis=1), never)
    return np.where(certified <= given_up, certified, never)
