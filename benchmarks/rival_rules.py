"""The acceptance rules of other optimizers, exactly, for comparison: what each would say of the same paired scores.

None of them bounds how often a run accepts what does nothing. `make bench-gate` prints how often they do.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, t

Floats = NDArray[np.float64]
Accepts = NDArray[np.bool_]
_ROUNDING = 1e-12
"""A mean of exactly one error is frequent, and is not above it."""
Rule = Callable[[Floats], Accepts]
"""Differences of paired tasks, along the last axis, to whether the candidate is taken."""


def strict(differences: Floats) -> Accepts:
    """SkillOpt, and the end of a GEPA run: the mean is larger; a tie is rejected."""
    return np.asarray(differences.mean(axis=-1) > 0)


def one_error(differences: Floats) -> Accepts:
    """cap-evolve: the mean is larger by one standard error."""
    return np.asarray(differences.mean(axis=-1) > _error(differences) + _ROUNDING)


def t_interval(differences: Floats) -> Accepts:
    """dotnet/skills, formerly: the 95 % interval of Student's t is above 0. Passes trivially without variance."""
    half = float(t.ppf(0.975, differences.shape[-1] - 1)) * _error(differences)
    return np.asarray(differences.mean(axis=-1) > half)


def bootstrap(differences: Floats) -> Accepts:
    """oh-my-knowledge: among resampled wins, ties and losses, losses prevail in less than 5 %; exactly."""
    wins, losses = _counts(differences)
    count = differences.shape[-1]
    # So many of the resampled tasks are no ties, and of these so many are wins.
    decided = np.arange(count + 1)
    chances = binom.pmf(decided, count, ((wins + losses) / count)[..., None])
    share = (wins / np.maximum(wins + losses, 1))[..., None]
    return np.asarray((chances * binom.cdf(decided // 2, decided, share)).sum(axis=-1) < 0.05)


def mcnemar(differences: Floats) -> Accepts:
    """dotnet/skills, now: a one-sided exact sign test at 5 %."""
    wins, losses = _counts(differences)
    return np.asarray(binom.sf(wins - 1, wins + losses, 0.5) <= 0.05)


def _error(differences: Floats) -> Floats:
    error: Floats = differences.std(axis=-1, ddof=1) / math.sqrt(differences.shape[-1])
    return error


def _counts(differences: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.asarray((differences > 0).sum(axis=-1)), np.asarray((differences < 0).sum(axis=-1))


RULES: Mapping[str, Rule] = MappingProxyType(
    {"strict": strict, "1·SE": one_error, "t-interval": t_interval, "bootstrap": bootstrap, "McNemar": mcnemar}
)
