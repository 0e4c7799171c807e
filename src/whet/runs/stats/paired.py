"""Differences between two arms on the tasks that both did. Pure functions of measured values; missing scores are not
among them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri, stdtrit

from whet.runs.stats.means import LEVEL

Floats = NDArray[np.float64]

POWER = 0.8
"""How often a difference that counts as detectable is detected."""
MOST_TASKS = 100_000
MOST_SAMPLES = 64
"""Plans beyond these are not worth naming."""

_UTMOST = 1.0
"""How far a further task may differ: scores lie in [0, 1]."""
_EXACT_SUMS = 1 << 17
"""Sums of differences up to which all choices of signs are counted."""
_DRAWS = 20_000
_PRECISE = 1e-5
"""How close a bound is to the true one."""
_START = -7.0
"""Logarithm before which the integrand is a straight line."""
_FAINT = 1e-9
"""Size from which on the integrand is left out."""
_STEP = 0.2
"""How far its points lie apart, on the logarithmic axis."""
_TURN = 0.8
"""Radians that it may turn from one point to the next."""
_FAR = 9.0
"""Standard deviations beyond which no sum of exponential variables strays but once in ten thousand times."""
_EQUAL = 1e-6
"""Sums of differences that are closer than this are equal but for rounding."""
_NO_VARIANCE = 1e-12
"""Below this, a variance between tasks is rounding."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference with the range in which the true one lies."""

    mean: float
    low: float
    high: float
    tasks: int

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def difference_interval(differences: Sequence[float], level: float = LEVEL) -> Difference | None:
    """The mean difference, with an interval for the mean over all tasks of this kind; None without tasks.

    Tasks are what is sampled, so a task counts once however many samples it has. A t interval promises too much here:
    differences are mostly ties with a few large ones among them, and where all are ties it has no width at all. So each
    bound is Gaffke's: one further task is assumed that speaks for the bound, and the tasks are weighted at random, all
    weightings being as likely (a Dirichlet distribution). For single samples that pass or fail, the interval then
    leaves out 0 exactly if the sign-flip test (there McNemar's) gives p below 1 - level. Nothing is drawn here; the
    weightings are integrated over.

    How far the further task may differ is what no data tell, so it differs by 1, as far as scores can. That costs
    width: where scores hardly vary, the interval of 30 tasks is some 3 times as wide as a t interval. A shorter one
    would be wrong where the rare task counts: if 4 % of the tasks go from 0 to 1 and the others hardly vary, 30 tasks
    show none of them in 29 % of cases. Simulated, the interval holds the truth in 95 % or more of cases in all worlds
    of tests/runs/test_paired.py, this one among them.

    >>> even = difference_interval([0.0] * 41)
    >>> even.mean, round(even.low, 3), round(even.high, 3)
    (0.0, -0.086, 0.086)
    """
    if not differences:
        return None
    seen = np.asarray(differences, dtype=float)
    mean = math.fsum(differences) / len(differences)
    low, high = _bounds(seen, level)
    return Difference(mean, min(low, mean), max(high, mean), len(seen))


def _bounds(differences: Floats, level: float) -> tuple[float, float]:
    values, counts = np.unique(differences.round(4), return_counts=True)
    weights: Floats = counts.astype(float)
    return -_upper_bound(-values, weights, level), _upper_bound(values, weights, level)


def _upper_bound(values: Floats, weights: Floats, level: float) -> float:
    return _quantile((1 + level) / 2, np.append(values, _UTMOST), np.append(weights, 1.0))


def _quantile(share: float, values: Floats, weights: Floats) -> float:
    """What the weighted mean is below in this share of all weightings.

    On the scale of normal deviates the share is almost a straight line, which the secants follow from a first guess.
    """
    number = float(weights.sum())
    mean = float(weights @ values) / number
    spread = math.sqrt(float(weights @ (values - mean) ** 2) / number / (number + 1))
    if spread < _PRECISE:
        return mean
    target = float(ndtri(share))
    low, high = float(values.min()), float(values.max())
    slope, point = 1 / spread, min(mean + target * spread, (mean + high) / 2)
    before: tuple[float, float] | None = None
    while True:
        miss = float(ndtri(np.clip(_share_below(point, values, weights), 1e-12, 1 - 1e-12))) - target
        low, high = (point, high) if miss < 0 else (low, point)
        if before is not None and before[1] != miss:
            slope = (miss - before[1]) / (point - before[0])
        before = point, miss
        following = point - miss / slope
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - point) < _PRECISE:
            return following
        point = following


def _share_below(bound: float, values: Floats, weights: Floats) -> float:
    """In what share of all weightings the weighted mean is below the bound.

    A weighting is a set of exponential variables over their sum, so this is the chance that a sum of gamma variables,
    scaled by value minus bound, is negative. It is found from the characteristic function (Gil-Pelaez), with the
    trapezoid rule on a logarithmic axis, which converges fast for functions as smooth as this one.
    """
    scales = values - bound
    size = math.sqrt(float(weights @ scales**2))
    if size == 0:
        return 0.5
    scales = scales / size
    drift = float(weights @ scales)
    if abs(drift) > _FAR:
        return 0.0 if drift > 0 else 1.0
    # As a product of its parts it is damped at least as if all of them were as strong as the strongest.
    strongest = float(np.abs(scales).max()) ** 2
    end = min(18.0, 0.5 * math.log(math.expm1(-2 * math.log(_FAINT) * strongest) / strongest))
    step = _STEP
    angle, damping = _characteristic(scales, weights, end, step)
    heard = int((damping > _FAINT).sum())
    turn = float(np.abs(np.diff(angle[:heard])).max())
    if turn > _TURN:
        end, step = _START + heard * step, step * _TURN / turn
        angle, damping = _characteristic(scales, weights, end, step)
    before = drift * math.exp(_START) / math.expm1(step)
    return 0.5 - step / math.pi * (before + float(np.sin(angle) @ damping))


def _characteristic(scales: Floats, weights: Floats, end: float, step: float) -> tuple[Floats, Floats]:
    """The angle of the characteristic function, but for its sign, and its size, which falls from 1."""
    points = np.outer(np.exp(np.arange(_START, end, step)), scales)
    return np.arctan(points) @ weights, np.exp(-0.5 * (np.log1p(points**2) @ weights))


def sign_flip_test(differences: Sequence[float]) -> float:
    """How often chance alone gives a mean difference as large as this, in either direction, if both arms are the same.

    If they are, each difference might as well have had the other sign. All choices of signs are counted as long as
    their sums are not too many (always up to 16 tasks, and for any number of tasks whose scores have few values);
    beyond that 20,000 of them are drawn, always the same ones, which keeps the test valid. For single samples that
    pass or fail this is McNemar's exact test. It holds if a task has as many samples in both arms: `differences`
    must be of that kind.

    >>> math.isclose(sign_flip_test([0.1] * 8), 2 / 2**8)
    True
    """
    sizes, counts = np.unique(np.abs(differences).round(9), return_counts=True)
    observed = abs(math.fsum(differences)) - _EQUAL
    sums, chances = np.zeros(1), np.ones(1)
    for size, count in zip(sizes, counts, strict=True):
        if len(sums) * (count + 1) > _EXACT_SUMS:
            return _draw_sign_flips(np.asarray(differences, dtype=float), observed)
        ups = np.arange(count + 1)
        all_sums = np.add.outer(sums, size * (2 * ups - count)).ravel().round(7)
        sums, places = np.unique(all_sums, return_inverse=True)
        chances = np.bincount(places.ravel(), np.outer(chances, _fair_coins(int(count))).ravel()).astype(float)
    return min(1.0, float(chances[np.abs(sums) >= observed].sum()))


def _fair_coins(count: int) -> Floats:
    """The chance of every number of heads."""
    heads = np.arange(count + 1)
    logs: Floats = gammaln(count + 1) - gammaln(heads + 1) - gammaln(count - heads + 1) - count * math.log(2)
    return np.exp(logs)


def _draw_sign_flips(differences: Floats, observed: float) -> float:
    random = np.random.default_rng(0)
    batch, whole = 1000, float(differences.sum())
    hits = 0
    for _ in range(_DRAWS // batch):
        kept = random.integers(0, 2, (batch, len(differences)), dtype=np.int8) @ differences
        hits += int((np.abs(2 * kept - whole) >= observed).sum())
    # The differences as they are count as one of the draws.
    return (1 + hits) / (1 + _DRAWS)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number: all that are below a level are right together with that certainty (Holm).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = highest
    return corrected


def detectable(differences: Sequence[float], tasks: int | None = None) -> float | None:
    """The smallest true difference that as many tasks like these detect in 80 % of cases."""
    seen = np.asarray(differences, dtype=float)
    return _detectable(seen, tasks or len(seen)) if len(seen) > 1 else None


def _detectable(differences: Floats, tasks: int) -> float:
    """What a t test of so many tasks shows, and one step of the sign-flip test more: it is as good but for its steps.

    One further task is assumed that differs by as much as any of them, or by 1 if they all tie: otherwise these would
    be thought to show the smallest difference.
    """
    sizes = np.abs(differences[np.abs(differences) > _EQUAL])
    step, largest = (float(sizes.mean()), float(sizes.max())) if len(sizes) else (_UTMOST, _UTMOST)
    variance = float(differences.var()) + largest**2 / len(differences)
    deviates = float(stdtrit(tasks - 1, (1 + LEVEL) / 2)) + float(stdtrit(tasks - 1, POWER))
    return min(1.0, deviates * math.sqrt(variance / tasks) + step / tasks)


def tasks_needed(differences: Sequence[float]) -> int | None:
    """How many tasks like these would show a difference of this size; None if more than is worth naming."""
    seen = np.asarray(differences, dtype=float)
    if len(seen) < 2 or abs(float(seen.mean())) < _EQUAL:
        return None
    size = abs(float(seen.mean()))
    return _smallest(lambda tasks: _detectable(seen, tasks) <= size, len(seen), MOST_TASKS)


def samples_needed(differences: Sequence[float], noise: float, samples: int) -> int | None:
    """How many samples of each of these tasks would show a difference of this size; None if no number would.

    `noise` is the part of the variance between the differences that comes from having only so many samples: it
    shrinks with their number, and the rest, by which the tasks themselves differ, does not.
    """
    seen = np.asarray(differences, dtype=float)
    if len(seen) < 2 or abs(float(seen.mean())) < _EQUAL or seen.var() < _NO_VARIANCE:
        return None
    mean, variance = float(seen.mean()), float(seen.var(ddof=1))

    def shows(number: int) -> bool:
        left = max(0.0, variance - noise) + min(noise, variance) * samples / number
        return _detectable(mean + (seen - mean) * math.sqrt(left / variance), len(seen)) <= abs(mean)

    return _smallest(shows, samples, MOST_SAMPLES)


def _smallest(enough: Callable[[int], bool], too_few: int, most: int) -> int | None:
    """The smallest number that is enough; None if it is above `most`."""
    high = too_few
    while not enough(high := high * 2):
        too_few = high
        if high >= most:
            return None
    while high - too_few > max(1, high // 100):  # two digits are all that such a forecast is good for
        middle = (too_few + high) // 2
        too_few, high = (too_few, middle) if enough(middle) else (middle, high)
    return high
