"""Differences between arms: intervals hold the truth as often as they promise, and equal arms are seldom told apart."""

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whet.runs.stats import paired as paired

REPETITIONS = 2000
FALSE_ALARM = 1e-3
"""The chance that a test of a rate fails although the true rate is the promised one (over the choice of seed)."""
FEWEST_HITS = int(stats.binom.ppf(FALSE_ALARM, REPETITIONS, 0.95))
MOST_CLAIMS = int(stats.binom.isf(FALSE_ALARM, REPETITIONS, 0.05))

Effect = Callable[[np.random.Generator, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""The chances of both arms on tasks, made from the chances of the first."""


def nothing(rng: np.random.Generator, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return chances, chances


def everywhere(rng: np.random.Generator, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return chances, chances + 0.4 * (1 - chances)


def in_a_few(rng: np.random.Generator, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One task of eight goes from never to always."""
    few = rng.random(chances.shape) < 0.125
    return np.where(few, 0, chances), np.where(few, 1, chances)


TRUTH: dict[Effect, float] = {nothing: 0.0, everywhere: 0.2, in_a_few: 0.125}


def worlds(effect: Effect, tasks: int, samples: tuple[int, int], graded: bool) -> list[tuple[float, ...]]:
    """The differences of task means in many worlds, in ascending order."""
    rng = np.random.default_rng([len(effect.__name__), tasks, *samples, graded])
    chances = effect(rng, rng.beta(0.8, 0.8, (REPETITIONS, tasks)))
    checks = 4 if graded else 1  # a graded score is the share of four checks that pass
    first, second = (
        rng.binomial(checks, chance[..., None], (REPETITIONS, tasks, number)).mean(axis=2) / checks
        for chance, number in zip(chances, samples, strict=True)
    )
    return [tuple(row) for row in np.sort((second - first).round(9), axis=1).tolist()]


@cache
def interval(differences: tuple[float, ...]) -> paired.Difference:
    found = paired.difference_interval(differences)
    assert found is not None
    return found


cached_test = cache(paired.sign_flip_test)


@pytest.mark.parametrize("graded", [False, True], ids=["pass-fail", "graded"])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize(("effect", "tasks"), [(everywhere, 8), (everywhere, 60), (in_a_few, 8)])
def test_interval_holds_the_true_difference_as_often_as_promised(
    effect: Effect, tasks: int, samples: int, graded: bool
) -> None:
    found = map(interval, worlds(effect, tasks, (samples, samples), graded))
    assert sum(one.low <= TRUTH[effect] <= one.high for one in found) >= FEWEST_HITS


@pytest.mark.parametrize("tasks", [8, 30])
def test_interval_holds_where_few_tasks_go_from_0_to_1(tasks: int) -> None:
    """None of the few is seen in 29 % of cases, with 30 tasks."""
    rng = np.random.default_rng(tasks)
    rare = rng.random((500, tasks)) < 0.04
    noise = rng.normal(0, 0.01, (500, tasks)).round(3)
    found = [interval(tuple(row)) for row in np.sort(np.where(rare, 1.0, noise)).tolist()]
    assert np.mean([one.low <= 0.04 <= one.high for one in found]) >= 0.95


@pytest.mark.parametrize("graded", [False, True], ids=["pass-fail", "graded"])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("tasks", [8, 60])
def test_equal_arms_are_told_apart_at_most_as_often_as_promised(tasks: int, samples: int, graded: bool) -> None:
    claims = sum(cached_test(one) <= 0.05 for one in worlds(nothing, tasks, (samples, samples), graded))
    assert claims <= MOST_CLAIMS


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_interval_and_test_agree_on_single_samples_that_pass_or_fail(wins: int, losses: int, ties: int) -> None:
    differences = (1.0,) * wins + (-1.0,) * losses + (0.0,) * ties
    if not differences:
        return
    p = paired.sign_flip_test(differences)
    exact = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert p == pytest.approx(exact, rel=1e-9)
    if abs(p - 0.05) > 1e-4:
        assert interval(differences).excludes_zero == (p < 0.05)


@pytest.mark.parametrize(("ones", "zeros"), [(0, 8), (0, 1000), (3, 5), (8, 0), (40, 160)])
def test_bound_of_all_or_nothing_is_the_exact_binomial_one(ones: int, zeros: int) -> None:
    found = interval((1.0,) * ones + (0.0,) * zeros)
    exact = stats.binomtest(ones, ones + zeros).proportion_ci(0.95, "exact")
    assert found.high == pytest.approx(exact.high, abs=2e-5)


def test_bound_equals_a_drawn_one() -> None:
    differences = np.random.default_rng(5).normal(0.05, 0.3, 30).clip(-0.6, 0.6).round(4)
    weights = np.random.default_rng(6).dirichlet(np.ones(31), 400_000)
    drawn = np.quantile(weights @ np.append(differences, 1.0), 0.975)
    assert interval(tuple(differences.tolist())).high == pytest.approx(drawn, abs=1e-3)


def test_interval_nears_the_t_interval_as_tasks_grow_many() -> None:
    differences = np.random.default_rng(7).normal(0.05, 0.2, 500).clip(-1, 1).round(2)
    found = interval(tuple(differences.tolist()))
    half = stats.t.ppf(0.975, 499) * differences.std(ddof=1) / math.sqrt(500)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.15)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9))
def test_interval_surrounds_its_mean_mirrors_its_arms_and_has_a_width(differences: list[float]) -> None:
    found, mirrored = paired.difference_interval(differences), paired.difference_interval([-one for one in differences])
    assert found is not None
    assert mirrored is not None
    assert -1 <= found.low <= found.mean <= found.high <= 1
    assert found.low < found.high
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low), abs=1e-4)


@given(st.lists(st.sampled_from([-1, -0.5, -1 / 3, 0, 0.25, 1 / 3, 0.7]), min_size=1, max_size=9))
def test_sign_flip_test_counts_all_choices_of_signs(differences: list[float]) -> None:
    flips = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    expected = sum(flip >= abs(sum(differences)) - 1e-6 for flip in flips) / len(flips)
    assert paired.sign_flip_test(differences) == pytest.approx(expected)


def test_sign_flips_are_drawn_when_they_are_too_many_to_count() -> None:
    differences = np.random.default_rng(1).normal(0.06, 0.2, 60).tolist()
    assert paired.sign_flip_test(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)
    assert paired.sign_flip_test([abs(one) for one in differences]) == 1 / 20_001


@given(st.lists(st.floats(0, 1), max_size=6))
def test_corrected_p_values_keep_their_order_and_are_never_smaller(p_values: list[float]) -> None:
    corrected = paired.holm(p_values)
    assert all(p <= more <= 1 for p, more in zip(p_values, corrected, strict=True))
    ranks = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [corrected[rank] for rank in ranks] == sorted(corrected)
    if p_values:
        assert min(corrected) == pytest.approx(min(1, min(p_values) * len(p_values)))


@pytest.mark.parametrize(("tasks", "samples"), [(30, 1), (60, 1), (60, 4)])
def test_a_detectable_difference_is_detected_about_as_often_as_promised(tasks: int, samples: int) -> None:
    rng = np.random.default_rng(tasks * samples)

    def world(gain: float) -> list[float]:
        chances = rng.uniform(0.2, 0.4, tasks)
        means = [rng.binomial(samples, chance) / samples for chance in (chances, chances + gain)]
        return [round(float(after - before), 9) for before, after in zip(*means, strict=True)]

    typical = paired.detectable(world(0.25))
    assert typical is not None
    found = [(sum(one) > 0 and paired.sign_flip_test(one) <= 0.05) for one in (world(typical) for _ in range(200))]
    assert 0.7 <= np.mean(found) <= 0.95


def test_more_tasks_show_smaller_differences_and_the_forecast_says_how_many() -> None:
    differences = [1.0] * 5 + [-1.0] * 2 + [0.0] * 23
    needed = paired.tasks_needed(differences)
    assert needed is not None
    assert 60 < needed < 400
    at_needed, before = paired.detectable(differences, needed), paired.detectable(differences, needed * 9 // 10)
    assert at_needed is not None
    assert before is not None
    assert at_needed <= 0.1 < before


def test_more_samples_help_only_against_noise() -> None:
    differences = np.random.default_rng(2).normal(0.1, 0.3, 40).round(2).tolist()
    noise = float(np.var(differences, ddof=1))
    assert paired.samples_needed(differences, 0.0, 2) is None
    enough = paired.samples_needed(differences, noise, 2)
    assert enough is not None
    assert 2 < enough <= 64


def test_where_nothing_differs_no_number_of_tasks_is_named() -> None:
    assert paired.difference_interval([]) is None
    assert (
        paired.detectable([0.5]),
        paired.tasks_needed([0.5]),
        paired.tasks_needed([0.0] * 9),
        paired.tasks_needed([1.0, -1.0]),
    ) == (None,) * 4
