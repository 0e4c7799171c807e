"""The tasks of a night: of sessions, of commits and of faults; copies of them ask for a rule."""

from pathlib import Path

import pytest

from support.sleep_world import Repository, corrected
from whet.sleep.bank import BankTask, TaskKind
from whet.sleep.night.tasks import TooFewTasksError, find_tasks, write_carriers
from whet.sleep.redaction import Redaction
from whet.sleep.rules.find import find_rules
from whet.sleep.session import Session
from whet.sleep.store import SleepStore
from whet.tasks import read_tasks

CODE = "def clamp(value, low):\n    if value < low:\n        return low\n    return value\n"
TEST = (
    "import unittest\nfrom {name} import clamp\n\n\nclass T(unittest.TestCase):\n"
    "    def test_clamp(self):\n        self.assertEqual([clamp(n, 2) for n in (1, 2, 3)], [2, 2, 3])\n"
)


async def test_faults_make_up_for_a_short_history_and_families_are_split_by_age(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "shop")
    names = ("one", "two")
    files = {f"{name}.py": CODE for name in names} | {f"test_{name}.py": TEST.format(name=name) for name in names}
    repository.commit(files)
    redaction = Redaction({}, tmp_path, [repository.folder])
    with SleepStore(tmp_path / "store") as store:
        found = await find_tasks(store, repository.folder, redaction, tmp_path)
    assert {task.kind for task in found.tasks} == {TaskKind.FAULT}
    assert len({task.family for task in found.tasks}) == len(names)
    (rule, *_) = (await find_rules([_said("a"), _said("b")], str(repository.folder))).rules
    with pytest.raises(TooFewTasksError, match="expected at least 3 and 5"):
        write_carriers(found.tasks, rule, tmp_path / "few")
    # Older families are for the search, newer ones for the exam.
    write_carriers([_as_old_as(found.tasks[0], number) for number in range(10)], rule, tmp_path / "tasks")
    splits = {task.id: task.split for task in read_tasks(tmp_path / "tasks")}
    assert [splits[f"t{number}-{rule.id}"] for number in range(10)] == ["train"] * 5 + ["val"] * 5


def _said(name: str) -> Session:
    return corrected(name, ["edit one.py"], "Always run `make lint` before you finish.", ["make lint"])


def _as_old_as(task: BankTask, number: int) -> BankTask:
    later = task.at.replace(year=2000 + number)
    return task.model_copy(update={"id": f"t{number}", "family": f"f{number}", "at": later})
