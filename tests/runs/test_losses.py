"""Fisher's exact test of losses, compared with scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from whet.runs.stats.losses import uneven

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
