"""Ticks of axes, and labels that would lie on each other."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from whet.look.plots.scales import spread, ticks


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_in_range(low: float, size: float) -> None:
    found = ticks(low, low + size)
    assert 2 <= len(found) <= 12
    assert all(low - size * 1e-6 <= tick <= low + size * (1 + 1e-6) for tick in found)


@given(st.lists(st.floats(0, 1000), max_size=6))
def test_labels_never_lie_on_each_other_and_keep_their_order(places: list[float]) -> None:
    moved = spread(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    assert all(moved[b] - moved[a] >= 14.99 for a, b in pairwise(order))
    assert all(after >= before - 1e-9 for before, after in zip(places, moved, strict=True))
