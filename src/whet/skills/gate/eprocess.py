"""Betting on lifts: evidence, position by position, that the mean of differences in [-1, 1] is above or below a bound.

The wealth of a gambler who bets against the bound starts at 1. Were the bound true, it would be expected never to grow,
whenever one looks; so it reaches 1/a with a chance of at most a. Several stakes are played at once and averaged.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)

RISING = (0.10, 0.20, 0.30, 0.45, 0.60, 0.80, 0.95), (1, 2, 2, 2, 2, 1, 1)
"""Stakes, and their parts, of the bet that a lift is above a bound."""
FALLING = tuple(0.98 * stake for stake in (0.15, 0.30, 0.50, 0.80)), (1, 1, 1, 1)
"""Of the bet that it is below."""
_UTMOST = 0.999
_CLOSE = 1e-4
"""How closely a bound is found."""
_ROUNDING = 1e-9


class EProcess:
    """One gambler. Kept as logarithms: raw wealth overflows."""

    def __init__(self, bound: float, *, above: bool) -> None:
        self._sign = 1.0 if above else -1.0
        self._bound = self._sign * bound
        self._stakes, self._parts = _grid(above=above)
        self._logs = [0.0] * len(self._stakes)
        self._most = self._gains(1.0)

    def take(self, difference: float) -> None:
        """The difference at the next position."""
        self._logs = [log + one for log, one in zip(self._logs, self._gains(self._sign * difference), strict=True)]

    @property
    def log(self) -> float:
        return self._mean(self._logs)

    def has_reached(self, level: float) -> bool:
        """Whether the bound is refuted at this level."""
        return self.log >= -math.log(level)

    def fewest(self, level: float) -> int:
        """How many positions it takes at least until this level is reached: if all of them are won."""
        wanted, number = -math.log(level), 0
        # Together they grow no faster than the largest stake alone.
        while (missing := wanted - self._after(number)) > 0:
            number += max(1, math.ceil(missing / max(self._most) - _ROUNDING))
        return number

    def _after(self, won: int) -> float:
        return self._mean([log + won * gain for log, gain in zip(self._logs, self._most, strict=True)])

    def _gains(self, difference: float) -> list[float]:
        return [math.log(_factor(difference, self._bound, stake)) for stake in self._stakes]

    def _mean(self, logs: Sequence[float]) -> float:
        # In plain Python: for so few numbers it is many times faster than in arrays.
        top = max(logs)
        return top + math.log(sum(part * math.exp(log - top) for log, part in zip(logs, self._parts, strict=True)))


def log_e_value(differences: ArrayLike, bound: ArrayLike, *, above: bool) -> Floats:
    """The logarithm of the wealth after every position; positions lie along the last axis. Each of several sequences
    may have a bound of its own.

    >>> float(np.exp(log_e_value([1.0] * 7, 0.0, above=True)[-1]).round(6))
    24.612594
    """
    sign = 1.0 if above else -1.0
    stakes, parts = _grid(above=above)
    seen = sign * np.asarray(differences, dtype=float)[..., None]
    bounds = sign * np.asarray(bound, dtype=float)[..., None, None]
    logs = np.log(_factor(seen, bounds, np.array(stakes))).cumsum(axis=-2)
    top: Floats = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]) @ np.array(parts)))


def log_e_value_of_counts(counts: tuple[ArrayLike, ArrayLike, ArrayLike], bound: float, *, above: bool) -> Floats:
    """The same after so many differences of 1, of -1 and of 0, in whatever order they came.

    >>> float(np.exp(log_e_value_of_counts(([7], [0], [0]), 0.0, above=True)[0]).round(6))
    24.612594
    """
    sign = 1.0 if above else -1.0
    stakes, parts = _grid(above=above)
    logs: Floats = np.zeros((*np.shape(counts[0]), len(stakes)))
    for count, difference in zip(counts, (1.0, -1.0, 0.0), strict=True):
        gains = np.log([_factor(sign * difference, sign * bound, stake) for stake in stakes])
        logs += np.asarray(count, dtype=float)[..., None] * gains
    top: Floats = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]) @ np.array(parts)))


def lower_bound(differences: Sequence[float], level: float) -> float:
    """The largest bound that the differences refute at this level, at their end or at any time before.

    It holds at all times at once: the chance that it is ever above the true mean is at most the level.

    >>> round(lower_bound([1.0] * 8, 0.05), 3)
    0.121
    """
    return _extreme(differences, level, above=True)


def upper_bound(differences: Sequence[float], level: float) -> float:
    """The smallest bound that the mean is below, in the sense of `lower_bound`."""
    return _extreme(differences, level, above=False)


def _extreme(differences: Sequence[float], level: float, *, above: bool) -> float:
    sign = 1.0 if above else -1.0

    def refuted(bound: float) -> bool:
        logs = log_e_value(differences, sign * bound, above=above)
        return bool(logs.size) and float(logs.max()) >= -math.log(level)

    low, high = -_UTMOST, _UTMOST
    if not refuted(low):
        return sign * -1.0
    while high - low > _CLOSE / 2:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return sign * low


def _grid(*, above: bool) -> tuple[list[float], list[float]]:
    stakes, parts = RISING if above else FALLING
    return list(stakes), [part / sum(parts) for part in parts]


def _factor(difference: Number, bound: Number, stake: Number) -> Number:
    """What a position multiplies a stake's wealth by. Expected to be 1 at most while the mean is at most the bound.

    Falling bets are rising ones on the opposite differences and bounds.
    """
    return 1 - stake + stake * (1 + difference) / (1 + bound)
