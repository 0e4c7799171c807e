"""Where many scores are missing, every summary shows what that leaves open, and which arms lose unevenly."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import fisher_exact

from whet.cli.summary import summary_table
from whet.rollout.result import Result
from whet.runs.stats.arms import arm_fields
from whet.runs.stats.losses import uneven
from whet.runs.stats.summary import Arm, Tally, total, uneven_losses
from whet.scoring import Cause, Score


def arm_with(scored: int, lost: int, value: float = 1.0) -> Tally:
    arm = Tally(planned=scored + lost)
    for number in range(scored):
        arm.conclude(f"t{number}", Result(score=Score.of(value)))
    for number in range(lost):
        arm.conclude(f"t{scored + number}", Result(score=Score.missing(Cause.MODEL, "down")))
    return arm


def shown(arms: dict[Arm, Tally]) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary_table(arms, {None: "-"}))
    return console.export_text()


def test_more_than_two_percent_missing_is_shown_with_its_bounds() -> None:
    assert arm_with(98, 2).bounds() is None
    assert arm_with(97, 3).bounds() == pytest.approx((0.97, 1.0))
    assert arm_with(6, 6).bounds() == pytest.approx((0.5, 1.0))
    assert arm_with(0, 4).bounds() == (0.0, 1.0)
    assert total([arm_with(6, 6), arm_with(0, 0)]).bounds() == pytest.approx((0.5, 1.0))


def test_a_task_with_samples_that_are_partly_missing_counts_once() -> None:
    arm = Tally(planned=4)
    for score in (Score.of(1.0), Score.missing(Cause.JUDGE, "-")):
        arm.conclude("a", Result(score=score))
    for _ in range(2):
        arm.conclude("b", Result(score=Score.of(0.0)))
    assert arm.bounds() == pytest.approx((0.25, 0.5))


def test_the_terminal_and_json_show_bounds_and_uneven_losses() -> None:
    arms: dict[Arm, Tally] = {("cheat", "m", None): arm_with(6, 6), ("honest", "m", None): arm_with(12, 0, 0.5)}
    text = shown(arms)
    assert "cheat / m: the mean is 50.0% if all that is missing is 0, and 100.0% if all is 1" in text
    assert (
        "cheat / m is missing 6 of 12 scores, honest / m is missing 0 of 12 scores (Fisher's exact test, p = 0.014)"
        in text
    )
    fields = arm_fields(("cheat", "m", None), arms["cheat", "m", None])
    assert (fields["mean"], fields["mean_with_missing_at_0"], fields["mean_with_missing_at_1"]) == (1.0, 0.5, 1.0)
    (found,) = uneven_losses(arms)
    assert (found.more, found.less) == (("cheat", "m", None), ("honest", "m", None))


def test_arms_that_lose_alike_are_not_warned_of() -> None:
    arms: dict[Arm, Tally] = {
        ("a", "m", None): arm_with(9, 3),
        ("b", "m", None): arm_with(10, 2),
        ("c", "m", None): Tally(planned=12),
    }
    assert uneven_losses(arms) == []
    assert "unevenly" not in shown(arms)


ARM = st.integers(0, 60).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))


@given(ARM, ARM)
def test_the_p_value_is_that_of_scipy(one: tuple[int, int], other: tuple[int, int]) -> None:
    (lost, of), (other_lost, other_of) = one, other
    expected = fisher_exact(np.array([[lost, of - lost], [other_lost, other_of - other_lost]])).pvalue
    assert uneven(lost, of, other_lost, other_of) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_large_arms_are_exact_too() -> None:
    assert uneven(100, 20_000, 160, 20_000) < 0.001
    assert uneven(100, 20_000, 100, 20_000) == 1.0


def test_more_losses_than_rollouts_are_refused() -> None:
    with pytest.raises(ValueError, match="lost 3 of 2"):
        uneven(3, 2, 0, 2)
