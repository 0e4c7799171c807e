"""How often `compare` claims a difference: seldom where there is none, also where losses depend on the outcome, and
often enough where there is one."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy import stats

from whet.runs.stats.compare import ComparedArm, Comparison, Verdict, compare
from whet.runs.stats.summary import Tally
from whet.scoring import Cause

WORLDS = 150
MOST_CLAIMS = stats.binom.isf(1e-3, WORLDS, 0.05)
CLAIMS = (Verdict.BETTER, Verdict.WORSE)

Loss = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""Which of these scores are lost."""


def nothing(_: np.random.Generator, scores: np.ndarray) -> np.ndarray:
    return np.zeros(scores.shape, bool)


def at_random(rng: np.random.Generator, scores: np.ndarray) -> np.ndarray:
    return rng.random(scores.shape) < 0.15


def failures(rng: np.random.Generator, scores: np.ndarray) -> np.ndarray:
    """30 % of the failures."""
    return (rng.random(scores.shape) < 0.3) & (scores < 1)


def side(name: str, scores: np.ndarray, lost: np.ndarray, rescued: int = 0) -> ComparedArm:
    tasks = {}
    for number, (row, gone) in enumerate(zip(scores.tolist(), lost, strict=True)):
        kept = [value for value, missing in zip(row, gone, strict=True) if not missing]
        tasks[str(number)] = Tally(
            planned=len(row),
            values={str(number): kept} if kept else {},
            missing=Counter({Cause.MODEL: int(gone.sum())}),
        )
    tasks["0"].rescued = rescued
    return ComparedArm(name, tasks, dict.fromkeys(tasks, "d"))


def worlds(
    tasks: int, samples: int, lift: float = 0.0, mean: float = 0.5, losses: tuple[Loss, Loss] = (nothing, nothing)
) -> Iterator[Comparison]:
    """Tasks whose chances differ widely, done by two arms; the second is better by the same lift on all of them."""
    rng = np.random.default_rng([tasks, samples, int(100 * lift), int(100 * mean)])
    for _ in range(WORLDS):
        chances = (1 - lift) * rng.beta(1.6 * mean, 1.6 * (1 - mean), tasks)[:, None]
        arms = [rng.binomial(1, chances + gain, (tasks, samples)) * 1.0 for gain in (0, lift)]
        yield compare(*(side(n, arm, loss(rng, arm)) for n, arm, loss in zip("ab", arms, losses, strict=True)))


def claims(found: list[Comparison]) -> int:
    return sum(one.verdict in CLAIMS for one in found)


@pytest.mark.parametrize(("tasks", "samples", "mean"), [(10, 4, 0.5), (30, 4, 0.5), (30, 4, 0.95), (100, 1, 0.05)])
def test_equal_arms_are_told_apart_in_at_most_5_percent(tasks: int, samples: int, mean: float) -> None:
    assert claims(list(worlds(tasks, samples, mean=mean))) <= MOST_CLAIMS


@pytest.mark.parametrize(("tasks", "samples", "withheld"), [(10, 4, 0.4), (30, 1, 0.15), (30, 4, 0.95), (100, 1, 0.95)])
def test_arms_that_lose_unevenly_get_no_verdict(tasks: int, samples: int, withheld: float) -> None:
    """30 % of the failures of the second arm are lost. Without withholding, 100 tasks give 14 % of false claims."""
    found = list(worlds(tasks, samples, losses=(nothing, failures)))
    assert claims(found) <= MOST_CLAIMS
    assert sum(one.verdict is Verdict.WITHHELD for one in found) >= withheld * WORLDS


def test_losses_at_the_same_rate_seldom_withhold_a_verdict() -> None:
    found = list(worlds(30, 4, losses=(at_random, at_random)))
    assert claims(found) <= MOST_CLAIMS
    assert sum(one.verdict is Verdict.WITHHELD for one in found) <= 2 * MOST_CLAIMS


@pytest.mark.parametrize(("tasks", "lift", "power"), [(30, 0.15, 0.65), (10, 0.3, 0.65)])
def test_a_lift_is_found_as_often_as_the_test_alone_finds_it(tasks: int, lift: float, power: float) -> None:
    """With the interval as a veto it was .37 and .03."""
    found = sum(one.verdict is Verdict.BETTER for one in worlds(tasks, 4, lift))
    assert found >= stats.binom.ppf(1e-3, WORLDS, power)


def arms(rescued: int, lost: int) -> Comparison:
    none = np.zeros((30, 1), bool)
    gone = none.copy()
    gone[:lost] = True
    return compare(side("a", np.zeros((30, 1)), gone), side("b", np.ones((30, 1)), none, rescued))


def test_losses_that_a_later_try_hid_withhold_a_verdict_too() -> None:
    assert arms(rescued=5, lost=0).verdict is Verdict.BETTER
    hidden = arms(rescued=6, lost=0)
    assert hidden.verdict is Verdict.WITHHELD
    assert [(one.what, one.first, one.second) for one in hidden.uneven] == [
        ("rollouts lost a score in some try", (0, 30), (6, 30))
    ]
    final = arms(rescued=8, lost=8)
    assert [one.what for one in final.uneven] == ["scores were lost"], "tried equally often, and lost by one alone"


def test_calls_that_were_sent_again_on_one_side_withhold_a_verdict() -> None:
    none = np.zeros((30, 1), bool)
    first, second = side("a", np.zeros((30, 1)), none), side("b", np.ones((30, 1)), none)
    for one in (first, second):
        one.tasks["0"].sent = 300
    assert compare(first, second).verdict is Verdict.BETTER
    second.tasks["0"].resent = 14
    found = compare(first, second)
    assert found.verdict is Verdict.WITHHELD
    assert [(one.what, one.second) for one in found.uneven] == [("calls were sent again after a failure", (14, 300))]
