"""The held-out test: taken once, with one pair of skills; a part of it that is missing can be completed, no more."""

import json
from collections import Counter
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.scoring import Cause
from whet.skills.measurement import Outcome, RolloutKey
from whet.skills.rollouts import final_test
from whet.skills.rollouts.final_test import SEAL, run_final_test, tasks_to_test
from whet.tasks import read_tasks

TASKS = ["a", "b", "c"]


class BrokenOffError(Exception):
    pass


class Recorded:
    """Rollouts that answer a key once, and from then on from the record. They stop after so many."""

    def __init__(self, folder: Path, most: int = 100) -> None:
        self.folder, self.most = folder, most
        self.record: dict[RolloutKey, float] = {}
        self.paid: Counter[RolloutKey] = Counter()

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        assert (self.folder / SEAL).is_file(), "the seal comes before the first rollout"
        if key not in self.record:
            if len(self.record) >= self.most:
                raise BrokenOffError
            self.paid[key] += 1
            self.record[key] = float(skill == "new")
        return self.record[key]


async def test_it_is_sealed_before_the_first_rollout(tmp_path: Path) -> None:
    found = await run_final_test(tmp_path, "old", "new", TASKS, Recorded(tmp_path))
    assert found.differences == [1.0, 1.0, 1.0]
    assert json.loads((tmp_path / SEAL).read_text()) == {"before": "old", "after": "new", "tasks": TASKS}


async def test_another_final_skill_cannot_be_tested_in_the_same_run(tmp_path: Path) -> None:
    rollouts = Recorded(tmp_path, most=2)
    with pytest.raises(BrokenOffError):
        await run_final_test(tmp_path, "old", "new", TASKS, rollouts)
    seal = (tmp_path / SEAL).read_text()
    for before, after, tasks in (("old", "newer", TASKS), ("older", "new", TASKS), ("old", "new", TASKS[:2])):
        with pytest.raises(UserError, match="the test tasks were already used to test other skills"):
            await run_final_test(tmp_path, before, after, tasks, rollouts)
    assert (tmp_path / SEAL).read_text() == seal
    assert len(rollouts.record) == 2


async def test_a_test_that_was_broken_off_is_completed(tmp_path: Path) -> None:
    rollouts = Recorded(tmp_path, most=4)
    with pytest.raises(BrokenOffError):
        await run_final_test(tmp_path, "old", "new", TASKS, rollouts)
    rollouts.most = 100
    found = await run_final_test(tmp_path, "old", "new", TASKS, rollouts)
    assert len(found.before) == len(found.after) == 3
    assert set(rollouts.paid.values()) == {1}
    assert len(rollouts.paid) == 6


def test_both_pass_rates_are_told_with_intervals() -> None:
    before = {str(n): float(n < 2) for n in range(10)} | {"lost": Cause.AGENT}
    after = {str(n): float(n < 8) for n in range(10)} | {"lost": 1.0}
    tested = final_test.FinalTest(before=dict(before), after=dict(after))
    assert tested.table()[2:] == [
        "| before | 2 of 10, 20.0% [5.7, 51.0] | 20.0% | 1 of 11 |",
        "| after | 9 of 11, 81.8% [52.3, 94.9] | 81.8% | 0 of 11 |",
    ]
    assert str(tested).startswith("+60.0 points on 10 tasks, 95 % interval ")
    assert "; 6 better, 4 alike, 0 worse; scores missing: 1 of 11 before, 0 of 11 after; with these at 0" in str(tested)
    assert "the difference is between +54.5 and +63.6 points, 95 % interval " in str(tested)
    assert "unevenly" not in str(tested)


def test_tasks_that_one_side_lost_are_not_left_out_silently() -> None:
    before = {str(n): float(n < 10) for n in range(20)}
    after = {str(n): 1.0 if n < 10 else Cause.MODEL for n in range(20)}
    tested = final_test.FinalTest(before=dict(before), after=dict(after))
    assert str(tested).startswith("+0.0 points on 10 tasks, ")
    worst, best = tested.extremes()
    assert (sum(worst), sum(best)) == (0.0, 10.0)
    assert "the difference is between +0.0 and +50.0 points" in str(tested)
    assert "; the two skills miss scores at different rates (p = 0.0004" in str(tested)
    harmed = final_test.FinalTest(before=dict.fromkeys(before, 0.5), after=after)
    assert str(harmed).startswith("+50.0 points on 10 tasks, 95 % interval ")
    assert "the difference is between +0.0 and +50.0 points" in str(harmed), "the ten that were lost may be failures"


def test_a_test_of_which_all_is_missing_says_nothing() -> None:
    tested = final_test.FinalTest(before={"a": Cause.MODEL}, after={"a": 1.0})
    assert str(tested) == "nothing was measured on 1 tasks"
    assert tested.table()[2] == "| before | - | - | 1 of 1 |"


def test_the_tasks_of_the_test_are_chosen_by_chance(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(f'{{"id": "t{n}", "instruction": "Do.", "answer": "1"}}\n' for n in range(30)))
    tasks = read_tasks(file)
    chosen = [tuple(task.id for task in tasks_to_test(tasks, seed, 5)) for seed in range(4)]
    assert len(set(chosen)) == 4
    assert len(set().union(*chosen)) > 10, "not always the first"
    assert chosen[0] == tuple(task.id for task in tasks_to_test(tasks[::-1], 0, 5))
    assert len(tasks_to_test(tasks, 0, 100)) == 30
