"""Splits hold still, and no task is on two sides."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.skills.rollouts.splits import SHARES, split_tasks
from whet.tasks import Task


def task(name: str, **more: object) -> Task:
    return Task(id=name, instruction=f"do {name}", answer="x", **more)


TASKS = [task(f"t{n}") for n in range(60)]


@given(st.integers(0, 5), st.sets(st.integers(0, 59)))
def test_a_task_that_is_added_moves_no_other(seed: int, kept: set[int]) -> None:
    whole = split_tasks(TASKS, seed)
    some = [one for number, one in enumerate(TASKS) if number in kept or number < 40]
    part = split_tasks(some, seed)
    for side, all_of_it in ((part.train, whole.train), (part.validation, whole.validation), (part.test, whole.test)):
        assert {one.id for one in side} <= {one.id for one in all_of_it}
    assert len({one.id for one in (*part.train, *part.validation, *part.test)}) == len(some)


def test_shares_are_about_what_they_should_be_and_seeds_differ() -> None:
    many = [task(f"t{n}") for n in range(1000)]
    one = split_tasks(many, 1)
    shares = [len(side) / 1000 for side in (one.train, one.validation, one.test)]
    assert shares == pytest.approx(SHARES, abs=0.05)
    assert split_tasks(many, 2) != one


def test_what_a_task_says_itself_goes_first() -> None:
    own = [task(f"o{n}", split=side) for n, side in enumerate(["train"] * 3 + ["val"] * 5 + ["test"])]
    splits = split_tasks(own, 0)
    assert [len(side) for side in (splits.train, splits.validation, splits.test)] == [3, 5, 1]


def test_too_few_tasks_are_told_with_their_numbers() -> None:
    with pytest.raises(UserError, match=r"there are 4 training, 0 validation and 0 test tasks; expected at least 5"):
        split_tasks([task(f"t{n}", split="train") for n in range(4)], 0)
    with pytest.raises(UserError, match=r"2 training, .* expected at least 3 with split 'train'"):
        split_tasks([task(f"t{n}", split="train" if n < 2 else "val") for n in range(9)], 0)


SIDES = [task(f"t{n}", split="train") for n in range(5)] + [task(f"v{n}", split="val") for n in range(5)]


@pytest.mark.parametrize(("side", "as_in"), [("val", "t0"), ("test", "t0"), ("test", "v0"), ("train", "v0")])
def test_the_same_question_on_two_sides_is_refused(side: str, as_in: str) -> None:
    copy = Task.model_validate({"id": "copy", "instruction": f"do {as_in}", "answer": "x", "split": side})
    names = (
        f"'{as_in}' with split 'val' is the same as task 'copy'"
        if side == "train"
        else (f"'copy' with split '{side}' is the same as task '{as_in}'")
    )
    with pytest.raises(UserError, match=f"task {names} in another split"):
        split_tasks([*SIDES, copy], 0)


def test_the_same_question_of_other_files_is_another_task() -> None:
    asks: dict[str, Any] = {"instruction": "Fix it.", "split": "train"}
    given: list[dict[str, Any]] = [
        {"files": {"a": "1"}},
        {"files": {"a": "2"}},
        {"setup": ("true",)},
        {"workspace": Path("one"), "digest": "1"},
        {"workspace": Path("two"), "digest": "2"},
        {"attachments": (Path("one"),), "digest": "3"},
    ]
    for number, (one, other) in enumerate(permutations(given, 2)):
        pair = Task(id="one", **asks, **one), Task(id="other", **{**asks, "split": "test"}, **other)
        assert len(split_tasks([*SIDES, *pair], number).test) == 1
    with pytest.raises(UserError, match="task 'other' with split 'test' is the same as task 'one'"):
        split_tasks(
            [*SIDES, Task(id="one", **asks, **given[0]), Task(id="other", **{**asks, "split": "test"}, **given[0])], 0
        )


def test_one_id_twice_is_refused() -> None:
    with pytest.raises(UserError, match="two tasks have the id 't0'"):
        split_tasks([*SIDES, Task(id="t0", instruction="other", answer="x", split="train")], 0)
