"""E-processes: evidence, pair by pair, that the mean of differences in [-1, 1] is above or below a bound.

An e-process bets against the bound and starts at 1. If the bound holds, its expected value never grows, so it ever
reaches 1/a with a chance of at most a, however often one looks. Several stakes are bet at once, and their values are
averaged.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
_Number = TypeVar("_Number", float, FloatArray)

RISING = (0.10, 0.20, 0.30, 0.45, 0.60, 0.80, 0.95), (1, 2, 2, 2, 2, 1, 1)
"""Stakes, and their weights, of the bet that a lift is above a bound."""
FALLING = tuple(0.98 * stake for stake in (0.15, 0.30, 0.50, 0.80)), (1, 1, 1, 1)
"""The same for the bet that a lift is below a bound."""
_WIDEST = 0.999
_CLOSE = 1e-4
"""Precision of a bound."""
_ROUNDING = 1e-9
_PAIRS_AT_MARGIN = 2.7
_MOST_AT_STAKE = 0.8
"""The largest part of its value that a planned e-process may lose with one difference."""
_FIRST_COUNT, _FIRST_SQUARES = 3, 1.2
"""A planned e-process starts as if it had seen three differences with a mean square of 0.4."""


class EProcess:
    """One e-process. It keeps logarithms, because e-values overflow."""

    def __init__(self, bound: float, *, above: bool) -> None:
        self._sign = 1.0 if above else -1.0
        self._bound = self._sign * bound
        self._stakes, self._parts = _grid(above=above)
        self._logs = [0.0] * len(self._stakes)
        self._most = self._gains(1.0)

    def add(self, difference: float) -> None:
        self._logs = [log + one for log, one in zip(self._logs, self._gains(self._sign * difference), strict=True)]

    @property
    def log(self) -> float:
        return self._mean(self._logs)

    def has_reached(self, level: float) -> bool:
        """Whether the bound is rejected at this level."""
        return self.log >= -math.log(level)

    def fewest(self, level: float) -> int:
        """The fewest further differences that could reach this level: if all of them are the best possible."""
        target, number = -math.log(level), 0
        # The average grows no faster than the largest stake.
        while (missing := target - self._after(number)) > 0:
            number += max(1, math.ceil(missing / max(self._most) - _ROUNDING))
        return number

    def _after(self, won: int) -> float:
        return self._mean([log + won * gain for log, gain in zip(self._logs, self._most, strict=True)])

    def _gains(self, difference: float) -> list[float]:
        return [math.log(_factor(difference, self._bound, stake)) for stake in self._stakes]

    def _mean(self, logs: Sequence[float]) -> float:
        # For a handful of numbers plain Python is many times faster than arrays.
        top = max(logs)
        return top + math.log(sum(part * math.exp(log - top) for log, part in zip(logs, self._parts, strict=True)))


class PlannedEProcess:
    """An e-process against "the mean is below -margin" that is to reach its level within a planned number of pairs.

    Every stake is chosen before its difference is known, from the evidence that is still needed, the spread of the
    differences so far and the pairs that are left in the plan. So its expected value never grows if the mean is below
    -margin, as for fixed stakes. With few pairs it reaches its level more often than fixed stakes do: with 30 pairs, a
    margin of 30 points and scores that fail in one of ten rollouts, in 97 % of cases instead of 90 %."""

    def __init__(self, margin: float, level: float) -> None:
        self._margin, self._needed = margin, -math.log(level)
        self._planned = planned_pairs(margin)
        self._largest = _MOST_AT_STAKE / (1 - margin)
        self._count, self._squares = 0, _FIRST_SQUARES
        self.log = 0.0

    @property
    def has_reached(self) -> bool:
        return self.log >= self._needed

    def add(self, difference: float) -> None:
        """Bet on the next difference. Nothing is bet any more once the level is reached."""
        if self.has_reached:
            return
        self.log += math.log(1 + self._stake() * (difference + self._margin))
        self._count += 1
        self._squares += difference**2

    @property
    def fewest(self) -> int:
        """A number of further differences that it takes at least to reach the level."""
        most = math.log(1 + self._largest * (1 + self._margin))
        return max(0, math.ceil((self._needed - self.log) / most - _ROUNDING))

    def _stake(self) -> float:
        """The stake that would reach the level with the smallest sum of differences, if this spread were normal."""
        spread = self._squares / (_FIRST_COUNT + self._count)
        left = self._planned - self._count % self._planned
        return min(self._largest, math.sqrt(2 * (self._needed - self.log) / (spread * left)))


def planned_pairs(margin: float) -> int:
    """The number of pairs that a planned e-process is planned for. It follows from the margin alone, so nobody can
    choose it after the fact.

    >>> [planned_pairs(margin) for margin in (0.3, 0.2, 0.1)]
    [30, 68, 270]
    """
    return math.ceil(_PAIRS_AT_MARGIN / margin**2 - _ROUNDING)


def log_e_value(differences: ArrayLike, bound: ArrayLike, *, above: bool) -> FloatArray:
    """The logarithm of the e-value after every difference; differences lie along the last axis. Each of several
    sequences may have its own bound.

    >>> float(np.exp(log_e_value([1.0] * 7, 0.0, above=True)[-1]).round(6))
    24.612594
    """
    sign = 1.0 if above else -1.0
    stakes, parts = _grid(above=above)
    seen = sign * np.asarray(differences, dtype=float)[..., None]
    bounds = sign * np.asarray(bound, dtype=float)[..., None, None]
    logs = np.log(_factor(seen, bounds, np.array(stakes))).cumsum(axis=-2)
    top: FloatArray = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]) @ np.array(parts)))


def log_e_value_of_counts(counts: tuple[ArrayLike, ArrayLike, ArrayLike], bound: float, *, above: bool) -> FloatArray:
    """The logarithm of the e-value after these numbers of differences of 1, -1 and 0, in any order.

    >>> float(np.exp(log_e_value_of_counts(([7], [0], [0]), 0.0, above=True)[0]).round(6))
    24.612594
    """
    sign = 1.0 if above else -1.0
    stakes, parts = _grid(above=above)
    logs: FloatArray = np.zeros((*np.shape(counts[0]), len(stakes)))
    for count, difference in zip(counts, (1.0, -1.0, 0.0), strict=True):
        gains = np.log([_factor(sign * difference, sign * bound, stake) for stake in stakes])
        logs += np.asarray(count, dtype=float)[..., None] * gains
    top: FloatArray = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]) @ np.array(parts)))


def lower_bound(differences: Sequence[float], level: float) -> float:
    """The largest bound that the differences reject at this level, at their end or at any time before.

    The chance that it is ever above the true mean is at most the level.

    >>> round(lower_bound([1.0] * 8, 0.05), 3)
    0.121
    """
    return _extreme(differences, level, above=True)


def upper_bound(differences: Sequence[float], level: float) -> float:
    """The smallest bound that the mean is below, at all times as for `lower_bound`."""
    return _extreme(differences, level, above=False)


def _extreme(differences: Sequence[float], level: float, *, above: bool) -> float:
    sign = 1.0 if above else -1.0

    def is_rejected(bound: float) -> bool:
        logs = log_e_value(differences, sign * bound, above=above)
        return bool(logs.size) and float(logs.max()) >= -math.log(level)

    low, high = -_WIDEST, _WIDEST
    if not is_rejected(low):
        return sign * -1.0
    while high - low > _CLOSE / 2:
        middle = (low + high) / 2
        low, high = (middle, high) if is_rejected(middle) else (low, middle)
    return sign * low


def _grid(*, above: bool) -> tuple[list[float], list[float]]:
    stakes, parts = RISING if above else FALLING
    return list(stakes), [part / sum(parts) for part in parts]


def _factor(difference: _Number, bound: _Number, stake: _Number) -> _Number:
    """The factor by which a difference multiplies the value of a stake. Its expectation is at most 1 while the mean is
    at most the bound. A falling bet is a rising bet on the opposite differences and bounds.
    """
    return 1 - stake + stake * (1 + difference) / (1 + bound)
