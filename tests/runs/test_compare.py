"""Arms held against each other: what is paired with what, and that equal arms are seldom told apart."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from whet.rollout.result import Result, Spending
from whet.runs.stats.compare import ComparedArm, Verdict, compare
from whet.runs.stats.summary import Tally
from whet.scoring import Cause, Score

WORLDS = 100


def side(name: str, scores: Mapping[str, Sequence[float | None]], **spending: object) -> ComparedArm:
    """An arm with these samples of each task; None is a missing score."""
    cells = {}
    for task, values in scores.items():
        cells[task] = Tally(planned=len(values))
        for value in values:
            score = Score.missing(Cause.MODEL, "") if value is None else Score.of(value)
            result = Result(score=score, spending=Spending.model_validate(spending), seconds={"agent": 3.0})
            cells[task].spend(result)
            cells[task].conclude(task, result)
    return ComparedArm(name, cells, dict.fromkeys(scores, "d"))


def test_equal_arms_of_uneven_samples_are_seldom_called_different() -> None:
    """Rare passes and uneven samples make lopsided differences, whose signs may not simply be flipped."""
    rng = np.random.default_rng(1)
    claims = 0
    for _ in range(WORLDS):
        arms = [
            side(name, {str(task): values for task, values in enumerate(rng.binomial(1, 0.05, (20, number)).tolist())})
            for name, number in (("a", 1), ("b", 8))
        ]
        claims += compare(*arms).verdict is not Verdict.UNDECIDED
    assert claims <= stats.binom.isf(1e-3, WORLDS, 0.05)


def test_of_many_comparisons_the_corrected_p_decides() -> None:
    found = compare(
        side("a", {str(task): [0.0] for task in range(12)}), side("b", {str(task): [1.0] for task in range(12)})
    )
    assert found.verdict is Verdict.BETTER
    assert replace(found, corrected_p=0.06).verdict is Verdict.UNDECIDED


def test_a_missing_sample_leaves_the_others_of_its_task() -> None:
    found = compare(side("a", {"x": [0.0, None, 1.0], "y": [0.0]}), side("b", {"x": [1.0, 1.0], "y": [1.0]}))
    assert found.difference is not None
    assert found.difference.mean == pytest.approx((0.5 + 1) / 2)
    assert (found.wins, found.ties, found.losses) == (2, 0, 0)
    assert [(gone.lost, gone.planned) for gone in found.missing] == [(1, 4), (0, 3)]
    assert found.extremes == pytest.approx(((1 / 3 + 1) / 2, (2 / 3 + 1) / 2))
    assert found.samples == 1


def test_effort_counts_all_attempts_at_paired_tasks_for_each_that_passed() -> None:
    first = side("a", {"x": [1.0, 0.0, None], "y": [0.5]}, calls=1, cost=2.0)
    second = side("b", {"x": [1.0, 1.0], "y": [0.0], "z": [1.0] * 9}, calls=1)
    mine, other = compare(first, second).effort
    assert (mine.solved, mine.cost, mine.seconds) == (1, 8.0, 12.0)
    assert (other.solved, other.cost, other.seconds) == (2, None, 4.5)
    assert compare(second, side("c", {"x": [0.0], "y": [0.0]})).effort[1].seconds is None


def test_passes_compare_the_same_tasks_for_every_k() -> None:
    found = compare(
        side("a", {"x": [1.0, 0.0, 0.0], "y": [0.0, 0.0]}), side("b", {"x": [1.0, 1.0, 0.5], "y": [1.0, 0.0]})
    )
    assert [(point.k, point.any_of_k.tasks) for point in found.passes] == [(1, 2), (2, 2)]
    assert found.passes[1].any_of_k.mean == pytest.approx(((1 - 2 / 3) + 1) / 2)
    assert found.passes[1].all_of_k.mean == pytest.approx((1 / 3 + 0) / 2)


def test_nothing_is_claimed_where_samples_point_both_ways() -> None:
    first = side("a", {str(task): [1.0] + [0.0] * 9 for task in range(12)})
    found = compare(first, side("b", {str(task): [0.5] for task in range(12)}))
    assert found.difference is not None
    assert found.difference.mean > 0
    assert (found.p, found.verdict) == (1.0, Verdict.UNDECIDED)


def test_intervals_of_many_comparisons_are_wider_so_that_they_hold_together() -> None:
    arms = [side(name, {str(task): [value] for task in range(12)}) for name, value in (("a", 0.0), ("b", 1.0))]
    alone, one_of_ten = compare(*arms).difference, compare(*arms, comparisons=10).difference
    assert alone is not None
    assert one_of_ten is not None
    assert one_of_ten.low < alone.low - 0.1, "95 % for all ten is 99.5 % for each (Bonferroni)"
