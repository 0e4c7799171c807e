"""Intervals hold the truth as often as they promise in worlds whose truth is known; pass rates equal enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whet.runs.stats.means import is_pass, mean_interval, pass_at_k, pass_curve, pass_hat_k, wilson

REPLICATIONS = 1000
PROMISE = 0.93
FALSE_ALARM = 1e-6
"""The chance that one of the coverage tests fails although its true coverage is PROMISE (over the choice of seed)."""
FEWEST_HITS = int(stats.binom.ppf(FALSE_ALARM, REPLICATIONS, PROMISE))


def task_means(rng: np.random.Generator, tasks: int, mean: float, spread: str) -> np.ndarray:
    if spread == "none":
        return np.full(tasks, mean)
    return rng.beta(mean, 1 - mean, tasks)  # half of the variance that a mean in [0, 1] can have


def coverage(tasks: int, samples: int, mean: float, spread: str, fractional: bool) -> int:
    rng = np.random.default_rng([tasks, samples, int(mean * 100), len(spread), fractional])
    hits = 0
    for _ in range(REPLICATIONS):
        means = task_means(rng, tasks, mean, spread)
        trials = 4 if fractional else 1  # a fractional score is the share of four checks that pass
        values = rng.binomial(trials, means[:, None], (tasks, samples)) / trials
        interval = mean_interval(dict(enumerate_tasks(values)))
        assert interval is not None
        hits += interval.low <= mean <= interval.high
    return hits


def enumerate_tasks(values: np.ndarray) -> list[tuple[str, list[float]]]:
    return [(str(task), row) for task, row in enumerate(values.tolist())]


@pytest.mark.parametrize("fractional", [False, True], ids=["pass-fail", "fractional"])
@pytest.mark.parametrize("spread", ["none", "large"])
@pytest.mark.parametrize("mean", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("tasks", [5, 20, 60])
def test_interval_holds_the_true_mean_as_often_as_promised(
    tasks: int, samples: int, mean: float, spread: str, fractional: bool
) -> None:
    assert coverage(tasks, samples, mean, spread, fractional) >= FEWEST_HITS


@pytest.mark.parametrize(("tasks", "samples"), [(20, 1), (20, 4), (60, 4)])
@pytest.mark.parametrize("spread", ["none", "large"])
def test_interval_is_not_much_wider_than_the_t_interval_in_the_middle(tasks: int, samples: int, spread: str) -> None:
    rng = np.random.default_rng(tasks * samples)
    widths, t_widths = [], []
    for _ in range(200):
        means = task_means(rng, tasks, 0.5, spread)
        values = rng.binomial(1, means[:, None], (tasks, samples)).astype(float)
        interval = mean_interval(dict(enumerate_tasks(values)))
        assert interval is not None
        widths.append(interval.high - interval.low)
        error = values.mean(axis=1).std(ddof=1) / math.sqrt(tasks)
        t_widths.append(2 * stats.t.ppf(0.975, tasks - 1) * error)
    assert np.mean(widths) < 1.3 * np.mean(t_widths)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_scores_at_the_edge_count_once_for_each_task(value: float) -> None:
    interval = mean_interval({str(task): [value] * 8 for task in range(10)})
    exact = stats.binomtest(round(10 * value), 10).proportion_ci(0.95, "exact")
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high))
    assert (interval.mean, interval.tasks, interval.rollouts) == (value, 10, 80)


def test_equal_fractional_scores_do_not_give_certainty() -> None:
    interval = mean_interval({str(task): [0.1] * 3 for task in range(5)})
    assert interval is not None
    assert interval.low < 0.05
    assert interval.high > 0.5


def test_single_task_says_almost_nothing_however_many_samples_it_has() -> None:
    interval = mean_interval({"only": [1.0, 0.0] * 50})
    assert interval is not None
    assert interval.high - interval.low > 0.9


def test_tasks_without_measured_samples_are_left_out() -> None:
    assert mean_interval({}) is None
    assert mean_interval({"a": []}) is None
    assert mean_interval({"a": [], "b": [1.0], "c": [0.0]}) == mean_interval({"b": [1.0], "c": [0.0]})


@given(
    st.dictionaries(st.text(max_size=3), st.lists(st.floats(0, 1), max_size=5), max_size=8),
    st.sampled_from([0.5, 0.95]),
)
def test_interval_surrounds_its_mean_and_stays_in_range(values: dict[str, list[float]], level: float) -> None:
    interval = mean_interval(values, level)
    if interval is not None:
        assert 0 <= interval.low <= interval.mean + 1e-9
        assert interval.mean - 1e-9 <= interval.high <= 1
        assert interval.low < interval.high


def test_the_interval_of_independent_trials_holds_what_was_seen() -> None:
    found = [wilson(passes, trials) for trials in range(1, 30) for passes in range(trials + 1)]
    assert all(one.low <= one.mean <= one.high for one in found)


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_rates_equal_enumeration_of_all_draws(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-15)
        assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws), abs=1e-15)


def test_pass_rates_are_exact_for_large_counts() -> None:
    assert pass_at_k(10_000, 1, 5_000) == 0.5
    assert pass_hat_k(10_000, 9_999, 5_000) == 0.5


@pytest.mark.parametrize(("n", "c", "k"), [(2, 3, 1), (2, -1, 1), (2, 1, 3), (2, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    for rate in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match=f"k={k}"):
            rate(n, c, k)


def test_pass_curve_has_the_same_tasks_for_every_k() -> None:
    curve = pass_curve({"a": [True, False, False], "b": [True, True], "c": []})
    assert [(point.k, point.tasks) for point in curve] == [(1, 2), (2, 2)]
    assert [point.any_of_k for point in curve] == pytest.approx([2 / 3, 5 / 6])
    assert [point.all_of_k for point in curve] == pytest.approx([2 / 3, 1 / 2])
    assert pass_curve({}) == pass_curve({"c": []}) == []


def test_hard_tasks_that_lose_scores_do_not_raise_the_mean() -> None:
    """30 tasks x 4 samples; a sample of a task that passes with chance p is lost with chance .5 (1 - p)."""
    rng, means, worst = np.random.default_rng(4), [], 0.0
    for _ in range(200):
        chances = rng.beta(0.8, 0.8, 30)
        values = {
            str(task): [float(rng.random() < chance) for _ in range(4) if rng.random() >= 0.5 * (1 - chance)]
            for task, chance in enumerate(chances)
        }
        found, measured = mean_interval(values), [chances[int(task)] for task, scores in values.items() if scores]
        assert found is not None
        means.append(found.mean - np.mean(measured))
        curve = pass_curve({task: [is_pass(one) for one in scores] for task, scores in values.items()})
        worst = max(worst, abs(curve[0].any_of_k - found.mean))
    # Over rollouts instead of tasks it would be about .06 too high.
    assert abs(np.mean(means)) < 4 * np.std(means) / math.sqrt(len(means)) + 1e-9
    assert worst < 1e-9


def test_only_a_full_score_passes() -> None:
    assert is_pass(1.0)
    assert is_pass(sum([0.1] * 10))
    assert not is_pass(0.999)
