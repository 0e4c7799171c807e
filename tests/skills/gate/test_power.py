"""The smallest lift that an exam is said to show is certified in about 80 % of cases, and in no fewer by far."""

import numpy as np
import pytest

from many_exams import population, streamed, verdicts
from whet.skills.gate.power import MANY_PAIRS, _by_formula, smallest_lift
from whet.skills.gate.sequential_test import ExamTerms


@pytest.mark.parametrize("positions", [20, 40, 76, 144])
@pytest.mark.parametrize(("tasks", "shape"), [(30, 0.8), (12, 0.2), (24, 0.8)])
def test_a_lift_that_is_said_to_be_shown_is_shown(positions: int, tasks: int, shape: float) -> None:
    random, terms = np.random.default_rng(1), ExamTerms(0.05, positions)
    first, _ = population(random, 400, tasks, 0.0, spread=0.5, shape=shape)
    lift = smallest_lift(float((first * (1 - first)).mean()), terms)
    assert lift is not None
    arms = population(random, 400, tasks, lift, spread=0.5, shape=shape)
    # Where chances are near 0 or 1, not every set of tasks has room for the lift.
    has_room = np.abs((arms[1] - arms[0]).mean(axis=1) - lift) < 0.01
    certified = verdicts(streamed(random, arms, positions), terms).certified
    assert certified[has_room].mean() >= 0.72
    assert certified[has_room].mean() <= 0.99, "nor is it said of lifts alone that are far larger"


def test_the_formula_takes_over_where_it_agrees_with_simulation() -> None:
    for variance in (0.154, 0.25):
        few, many = (ExamTerms(0.05, positions) for positions in (MANY_PAIRS - 1, MANY_PAIRS))
        simulated = smallest_lift(variance, few)
        assert simulated == pytest.approx(_by_formula(variance, many), abs=0.03)
        assert smallest_lift(variance, many) == pytest.approx(_by_formula(variance, many))


def test_what_is_not_worth_finding_is_never_said_to_be_shown() -> None:
    assert smallest_lift(0.0001, ExamTerms(0.05, 10_000)) == 0.12


def test_an_exam_that_can_certify_nothing_shows_nothing() -> None:
    assert smallest_lift(0.1, ExamTerms(0.05, 6)) is None
    assert smallest_lift(0.1, ExamTerms(0.05, 7)) is not None
    assert smallest_lift(0.1, ExamTerms(0.0125, 7)) is None
