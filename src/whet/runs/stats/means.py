"""Means, intervals and pass rates. Pure functions of measured values; missing scores are not among them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import betaincinv, ndtri, stdtrit

LEVEL = 0.95
_NO_VARIANCE = 1e-12
"""Below this, a variance between tasks is rounding."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the range in which the true one lies."""

    mean: float
    low: float
    high: float
    tasks: int
    rollouts: int

    def __str__(self) -> str:
        return f"{self.mean:.1%} [{self.low * 100:.1f}, {self.high * 100:.1f}]"


@dataclass(frozen=True, slots=True)
class PassPoint:
    """How likely k samples of a task pass."""

    k: int
    any_of_k: float
    """pass@k: at least one of k samples passes."""
    all_of_k: float
    """pass^k: all of k samples pass."""
    tasks: int
    """Tasks in the averages: the same for every k."""


def is_pass(value: float) -> bool:
    """Whether a score counts as a pass: it is 1, but for rounding."""
    return value >= 1 - 1e-9


def mean_interval(values_by_task: Mapping[str, Sequence[float]], level: float = LEVEL) -> Interval | None:
    """The mean over tasks of their mean scores, with an interval for the mean over all tasks of this kind; None
    without rollouts.

    Every task counts once, however many of its samples were scored: where hard tasks lose more scores than easy ones,
    the mean over all rollouts is too high. Rollouts of one task are alike, so they are worth less than as many
    independent ones. The interval is the exact binomial one (Clopper-Pearson) for the number of independent rollouts
    that would vary as much as the tasks do, with a correction for few tasks (Korn and Graubard). It is valid for any
    scores in [0, 1] and has a width even if all scores are equal: then each task counts once. A single task counts as
    a single independent rollout. It falls short where few tasks tell little of the others: with 20 tasks of which a
    rare one passes, and 16 samples of each, an interval of level 0.95 holds the true mean in 88 % of cases.

    >>> interval = mean_interval({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [1.0, 1.0]})
    >>> interval.mean, round(interval.low, 3), interval.high
    (1.0, 0.292, 1.0)
    """
    clusters = [values for values in values_by_task.values() if values]
    if not clusters:
        return None
    rollouts = sum(map(len, clusters))
    task_means = [math.fsum(values) / len(values) for values in clusters]
    mean = math.fsum(task_means) / len(task_means)
    low, high = _clopper_pearson(mean, _effective_rollouts(task_means, rollouts, mean, level), level)
    return Interval(mean, low, high, tasks=len(clusters), rollouts=rollouts)


def _effective_rollouts(task_means: Sequence[float], rollouts: int, mean: float, level: float) -> float:
    tasks = len(task_means)
    if tasks == 1:
        return 1.0
    variance = math.fsum((one - mean) ** 2 for one in task_means) / (tasks - 1) / tasks
    if variance < _NO_VARIANCE:
        return tasks
    tail = (1 + level) / 2
    few_tasks = (stdtrit(rollouts - 1, tail) / stdtrit(tasks - 1, tail)) ** 2
    return float(min(mean * (1 - mean) / variance * few_tasks, rollouts))


def _clopper_pearson(mean: float, n: float, level: float) -> tuple[float, float]:
    """The exact binomial interval, continued to numbers of trials and of successes that are not whole."""
    successes, failures = mean * n, (1 - mean) * n
    tail = (1 - level) / 2
    low = float(betaincinv(successes, failures + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - tail)) if failures > 0 else 1.0
    return low, high


def wilson(passes: int, trials: int, level: float = LEVEL) -> Interval:
    """The share of independent trials that passed, with Wilson's interval.

    >>> str(wilson(8, 10))
    '80.0% [49.0, 94.3]'
    """
    z = float(ndtri((1 + level) / 2))
    share = passes / trials
    middle = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    # Rounding must not leave out what was seen.
    return Interval(share, min(share, middle - half), max(share, middle + half), tasks=trials, rollouts=trials)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k samples passes, when c of n did: unbiased.

    >>> pass_at_k(4, 2, 2) == 5 / 6
    True
    """
    _check_counts(n, c, k)
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k samples pass, when c of n did: unbiased.

    >>> pass_hat_k(4, 2, 2) == 1 / 6
    True
    """
    _check_counts(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def _check_counts(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"n={n}, c={c}, k={k}: expected 0 <= c <= n and 1 <= k <= n")


def pass_curve(outcomes_by_task: Mapping[str, Sequence[bool]]) -> list[PassPoint]:
    """pass@k and pass^k for k from 1 to the fewest samples that any measured task has.

    All measured tasks are in all averages. Taking for each k the tasks that have k samples would let the loss of
    scores choose the tasks: where hard tasks lose more, pass@k would be too high.

    >>> [(point.k, point.any_of_k, point.all_of_k) for point in pass_curve({"a": [True, False]})]
    [(1, 0.5, 0.5), (2, 1.0, 0.0)]
    """
    counts = [(len(outcomes), sum(outcomes)) for outcomes in outcomes_by_task.values() if outcomes]
    fewest = min((n for n, _ in counts), default=0)
    return [_pass_point(counts, k) for k in range(1, fewest + 1)]


def _pass_point(counts: Sequence[tuple[int, int]], k: int) -> PassPoint:
    return PassPoint(
        k=k,
        any_of_k=math.fsum(pass_at_k(n, c, k) for n, c in counts) / len(counts),
        all_of_k=math.fsum(pass_hat_k(n, c, k) for n, c in counts) / len(counts),
        tasks=len(counts),
    )
