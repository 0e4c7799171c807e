"""The queue: by priority, in turn between callers, in order; nothing lost and nothing twice."""

import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from whet.runs.store.served import WaitingRow
from whet.serve.queue import RolloutQueue

Place = tuple[str, str, int]
"""A caller, a model and a priority."""
PLACES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"), st.integers(-1, 1)), max_size=40)


def fill(places: Sequence[Place]) -> RolloutQueue:
    queue = RolloutQueue()
    for ordinal, (owner, model, priority) in enumerate(places):
        queue.add(WaitingRow(f"r{ordinal}", "g", owner, model, priority, ordinal))
    return queue


def take_all(queue: RolloutQueue) -> list[WaitingRow]:
    taken = []
    while (row := queue.take(lambda _owner, _model: True)) is not None:
        taken.append(row)
    return taken


@given(PLACES)
def test_everything_is_taken_once_by_priority_and_in_the_order_of_each_caller(places: Sequence[Place]) -> None:
    taken = take_all(fill(places))
    assert sorted(row.ordinal for row in taken) == list(range(len(places)))
    assert [row.priority for row in taken] == sorted((row.priority for row in taken), reverse=True)
    for owner in "abc":
        for priority in (-1, 0, 1):
            own = [row.ordinal for row in taken if (row.owner, row.priority) == (owner, priority)]
            assert own == sorted(own)


@given(PLACES)
def test_callers_of_the_same_priority_take_turns(places: Sequence[Place]) -> None:
    taken = take_all(fill([(owner, model, 0) for owner, model, _ in places]))
    for place, row in enumerate(taken):
        waiting = {other.owner for other in taken[place:]}
        since = [other.owner for other in taken[:place]][::-1]
        # Nobody who waits was served longer ago than the one who is.
        ages = {owner: since.index(owner) if owner in since else len(since) for owner in waiting}
        assert ages[row.owner] == max(ages.values())


@given(PLACES, st.sets(st.integers(0, 39)), st.sampled_from("mn"), st.sampled_from("abc"))
def test_what_is_held_back_holds_back_nothing_else(
    places: Sequence[Place], removed: set[int], paused: str, full: str
) -> None:
    queue = fill(places)
    gone = {f"r{ordinal}" for ordinal in removed if queue.remove(f"r{ordinal}") is not None}
    taken = []
    while (row := queue.take(lambda owner, model: model != paused and owner != full)) is not None:
        taken.append(row)
    expected = {
        f"r{ordinal}" for ordinal, (owner, model, _) in enumerate(places) if model != paused and owner != full
    } - gone
    assert {row.rollout for row in taken} == expected
    assert len(queue) == len(places) - len(gone) - len(taken)
    assert sum(queue.count(owner) for owner in "abc") == sum(queue.count_on(model) for model in "mn") == len(queue)


@given(PLACES)
def test_places_count_what_comes_before(places: Sequence[Place]) -> None:
    queue = fill(places)
    order = sorted(range(len(places)), key=lambda ordinal: (-places[ordinal][2], ordinal))
    assert [queue.place(f"r{ordinal}") for ordinal in order] == list(range(len(places)))


def test_one_that_waits_again_gets_its_place_back() -> None:
    queue = fill([("a", "m", 0), ("a", "m", 0)])
    first = queue.take(lambda _owner, _model: True)
    assert first is not None
    queue.add(first)
    assert [row.rollout for row in take_all(queue)] == ["r0", "r1"]


def test_ten_thousand_are_added_placed_and_taken_in_a_moment() -> None:
    began = time.process_time()
    queue = fill([(f"caller-{n % 20}", f"model-{n % 5}", n % 3) for n in range(10_000)])
    for n in range(10_000):
        queue.place(f"r{n}")
    assert len(take_all(queue)) == 10_000
    assert time.process_time() - began < 10  # it takes under one second; squared, it would take minutes
