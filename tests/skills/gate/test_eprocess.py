"""Wealth processes: the published vectors, agreement of both forms, and bounds that hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whet.skills.gate.eprocess import EProcess, log_e_value, lower_bound, upper_bound

MIXED = [1.0, 0, 1, 1, -1, 1, 0, 0, 1, 1]
GRADED = [0.5, -0.25, 1, 0, 0.125, -1, 0.75]
WEALTH_VECTORS: list[tuple[list[float], float, bool, float]] = [
    ([1] * 7, 0, True, 24.612594),
    ([1, -1] * 5, 0, True, 0.426890),
    (MIXED, 0, True, 4.211479),
    (MIXED, 0.10, False, 0.173914),
    (MIXED, -0.05, True, 5.607115),
    (MIXED, 0.05, True, 3.248805),
    (MIXED, 0, False, 0.157117),
    (GRADED, 0, True, 1.045722),
    (GRADED, 0.10, False, 0.581446),
]
CROSSING_VECTORS = [
    (1, 0, True, 20, 7),
    (1, 0, True, 80, 10),
    (1, 0, True, 200, 11),
    (0, 0.10, False, 5, 29),
    (0, 0.12, False, 5, 24),
    (0, 0.20, False, 5, 14),
    (-1, 0.10, False, 5, 4),
]
BOUND_VECTORS = [(8, 0.121282), (12, 0.351713), (20, 0.576254)]
differences = st.lists(st.floats(-1, 1), min_size=1, max_size=40)


def value(seen: list[float], bound: float, *, above: bool) -> float:
    return float(np.exp(log_e_value(seen, bound, above=above)[-1]))


@pytest.mark.parametrize(("seen", "bound", "above", "wealth"), WEALTH_VECTORS)
def test_wealth_is_what_the_reference_says(seen: list[float], bound: float, above: bool, wealth: float) -> None:
    assert value(seen, bound, above=above) == pytest.approx(wealth, abs=1e-6)


@pytest.mark.parametrize(("difference", "bound", "above", "threshold", "first"), CROSSING_VECTORS)
def test_thresholds_are_crossed_where_the_reference_says(
    difference: float, bound: float, above: bool, threshold: float, first: int
) -> None:
    logs = log_e_value([difference] * 60, bound, above=above)
    assert int(np.argmax(logs >= math.log(threshold))) + 1 == first


@pytest.mark.parametrize(("positions", "bound"), BOUND_VECTORS)
def test_lower_bounds_are_what_the_reference_says(positions: int, bound: float) -> None:
    assert lower_bound([1.0] * positions, 0.05) == pytest.approx(bound, abs=1e-4)


@given(differences, st.floats(-0.9, 0.9), st.booleans())
def test_one_position_at_a_time_gives_the_same_wealth(seen: list[float], bound: float, above: bool) -> None:
    wealth = EProcess(bound, above=above)
    for difference, log in zip(seen, log_e_value(seen, bound, above=above), strict=True):
        wealth.add(difference)
        assert wealth.log == pytest.approx(log, abs=1e-9)


@given(differences, st.floats(-0.9, 0.9), st.sampled_from([1.0, -1.0]), st.floats(1e-4, 1))
def test_the_fewest_pairs_are_as_many_as_wins_take(seen: list[float], bound: float, win: float, level: float) -> None:
    wealth = EProcess(bound, above=win > 0)
    for difference in seen:
        wealth.add(difference)
    fewest, taken = wealth.fewest(level), 0
    while not wealth.has_reached(level):
        wealth.add(win)
        taken += 1
    # Rounding may put a level that is met exactly on either side.
    assert taken == fewest or abs(wealth.log + math.log(level)) < 1e-9


@given(differences, st.sampled_from([0.01, 0.05, 0.2]))
def test_bounds_are_on_either_side_mirror_each_other_and_tighten_with_time(seen: list[float], level: float) -> None:
    low, high = lower_bound(seen, level), upper_bound(seen, level)
    assert -1 <= low <= high <= 1
    assert low == pytest.approx(lower_bound([*seen, -1.0], level), abs=1e-3) or low < lower_bound([*seen, -1.0], level)
    assert lower_bound(seen, level) <= lower_bound([*seen, 1.0], level) + 1e-4


def test_a_bound_is_refuted_just_when_it_lies_beyond_the_confidence_bound() -> None:
    random = np.random.default_rng(3)
    for lift in (0.0, 0.3):
        seen = np.clip(random.normal(lift, 0.5, 150), -1, 1).tolist()
        low = lower_bound(seen, 0.05)
        for bound in (low - 0.01, low + 0.01):
            ever = log_e_value(seen, bound, above=True).max() >= -math.log(0.05)
            assert ever == (bound < low)


def test_equal_arms_seldom_reach_the_level() -> None:
    """Identical arms, 300 positions, level 0.05; the reference gives 0.034."""
    runs, positions, tasks = 20_000, 300, 30
    random = np.random.default_rng(20251115)
    crossed = 0
    for _ in range(10):
        chances = np.clip(random.beta(0.8, 0.8, (runs // 10, tasks)), 0.005, 0.995)
        drawn = np.take_along_axis(chances, random.integers(0, tasks, (runs // 10, positions)), axis=1)
        seen = (random.random(drawn.shape) < drawn).astype(float) - (random.random(drawn.shape) < drawn)
        crossed += int((log_e_value(seen, 0.0, above=True).max(axis=1) >= math.log(20)).sum())
    assert crossed <= 777
    assert crossed >= stats.binom.ppf(1e-4, runs, 0.030), "a process that never crosses would prove nothing"


def test_confidence_bounds_hold_at_all_times() -> None:
    random = np.random.default_rng(5)
    for lift in (0.0, 0.157):
        draws = random.choice([-1.0, 0.0, 1.0], (1000, 120), p=[(0.3 - lift) / 2, 0.7, (0.3 + lift) / 2])
        above = log_e_value(draws, lift, above=True).max(axis=1) >= math.log(20)
        below = log_e_value(draws, lift, above=False).max(axis=1) >= math.log(20)
        assert int(above.sum()) <= 77
        assert int(below.sum()) <= 77
