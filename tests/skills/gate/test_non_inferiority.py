"""An exam with a margin, as `whet certify --non-inferior` holds it: how often it errs, and how often it says anything.

Seeds are fixed. A rate that is promised to be at most 5 % fails only beyond the exact binomial limit with tail 1e-4.
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from many_exams import Arms, Floats, chances, population, streamed, verdicts
from whet.skills.gate.power import MOST_PAIRS, chance_to_certify, enough_pairs
from whet.skills.gate.sequential_test import ExamTerms, Pair, replay
from whet.skills.measurement import Verdict

LEVEL = 0.05
RUNS = 1000
TASKS = 30


def terms(margin: float, pairs: int) -> ExamTerms:
    return ExamTerms(LEVEL, pairs, LEVEL, 0.0, margin=margin)


def noisy(shape: float, spread: float) -> Callable[[np.random.Generator, float], Arms]:
    return lambda random, lift: population(random, RUNS, TASKS, lift, spread, shape)


def sure(_: np.random.Generator, lift: float) -> Arms:
    """An agent without chance: the new skill fixes one task, and breaks as many as the loss takes."""
    broken = 1 - round(lift * TASKS)
    first = np.tile(np.repeat([1.0, 0.0], TASKS // 2), (RUNS, 1))
    second = first.copy()
    second[:, :broken], second[:, -1] = 0.0, 1.0
    return first, second


def rarely(random: np.random.Generator, lift: float) -> Arms:
    """Tasks that nearly always pass, and fail a little more often with the new skill, all alike."""
    first = np.clip(chances(random, RUNS, TASKS), 0.9, 0.99)
    return first, first + lift


WORLDS = {"Beta(.8, .8)": noisy(0.8, 0.25), "Beta(.3, .3)": noisy(0.3, 1.0), "sure": sure, "rarely": rarely}


@pytest.mark.parametrize("world", WORLDS)
def test_a_change_that_costs_its_margin_passes_in_at_most_five_of_a_hundred_exams(world: str) -> None:
    margin = 0.1
    random, on = np.random.default_rng(7), terms(margin, 200)
    arms = WORLDS[world](random, -margin)
    assert np.allclose((arms[1] - arms[0]).mean(axis=1), -margin, atol=0.002), "the world is on the boundary"
    passed = verdicts(streamed(random, arms, on.max_pairs), on, floor=-margin).certified
    assert passed.sum() <= stats.binom.isf(1e-4, RUNS, LEVEL)
    assert passed.any(), "a test that passes nothing would prove nothing"


def test_a_change_without_effect_is_seldom_called_harmful_and_real_harm_mostly_is() -> None:
    random, on = np.random.default_rng(8), terms(0.1, 200)
    nothing = verdicts(streamed(random, population(random, RUNS, TASKS, 0.0, 0.25), 200), on, floor=-0.1)
    assert nothing.futile.sum() <= stats.binom.isf(1e-4, RUNS, LEVEL)
    harm = verdicts(streamed(random, population(random, RUNS, TASKS, -0.2, 0.25), 200), on, floor=-0.1)
    assert harm.futile.sum() >= stats.binom.ppf(1e-4, RUNS, 0.97), "docs/ci.md says 99 %"
    assert harm.certified.mean() <= 0.01


@pytest.mark.parametrize(("margin", "pairs"), [(0.05, 200), (0.1, 100), (0.15, 100)])
def test_the_chance_that_is_printed_before_an_exam_is_the_chance_that_it_has(margin: float, pairs: int) -> None:
    random, on = np.random.default_rng(9), terms(margin, pairs)
    first = chances(random, RUNS, TASKS)
    passed = verdicts(streamed(random, (first, first), pairs), on, floor=-margin).certified
    assert chance_to_certify(0.0, 0.154, on) == pytest.approx(passed.mean(), abs=0.06)


def test_the_rollouts_that_are_said_to_be_enough_are_enough_and_not_far_too_many() -> None:
    on = terms(0.1, 1)
    pairs = enough_pairs(0.0, 0.154, on)
    assert pairs is not None
    random = np.random.default_rng(10)
    first = chances(random, RUNS, TASKS)
    passed = verdicts(streamed(random, (first, first), pairs), terms(0.1, pairs), floor=-0.1).certified
    assert 0.74 <= passed.mean() <= 0.92
    assert enough_pairs(0.0, 0.154, terms(0.01, 1)) is None, f"more than {MOST_PAIRS} pairs"
    assert enough_pairs(0.0, 0.0, on) is not None, "scores that never vary still take some pairs"


def test_the_verdicts_of_many_exams_at_once_are_those_of_single_exams() -> None:
    random, on = np.random.default_rng(11), terms(0.15, 80)
    seen: Floats = streamed(random, population(random, 60, TASKS, -0.02, 0.25), 80)
    at_once = verdicts(seen, on, floor=-0.15)
    for number, row in enumerate(seen):
        single = replay(on, [Pair(max(0.0, -one), max(0.0, one)) for one in row])
        expected = Verdict.CERTIFIED if at_once.certified[number] else None
        expected = Verdict.FUTILE if at_once.futile[number] else expected
        assert single.verdict is (expected or Verdict.UNDECIDED)
        assert single.decided_at == at_once.positions[number]
