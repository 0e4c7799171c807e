"""What .harborignore keeps out of tests/ and solution/."""

from pathlib import Path

import pytest

from whet.errors import UserError
from whet.tasks import Task, read_tasks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    for name in ("tests/test.sh", "tests/data/a.log", "tests/data/keep.log", "solution/solve.sh", "solution/a.log"):
        put(folder, name, "x")
    put(folder, "task.toml", "")
    put(folder, "instruction.md", "Do it.")
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def read(folder: Path) -> Task:
    (task,) = read_tasks(folder)
    return task


def test_nothing_is_omitted_without_an_ignore_file(folder: Path) -> None:
    assert read(folder).omitted == ()


def test_rules_hold_below_their_folder_only(folder: Path) -> None:
    put(folder, "tests/.harborignore", "*.log\n")
    task = read(folder)
    assert task.omissions_in("tests") == [".harborignore", "data/a.log", "data/keep.log"]
    assert task.omissions_in("solution") == []


def test_a_deeper_rule_wins(folder: Path) -> None:
    put(folder, ".harborignore", "*.log\n")
    put(folder, "tests/data/.harborignore", "!keep.log\n")
    task = read(folder)
    assert task.omissions_in("tests") == ["data/.harborignore", "data/a.log"]
    assert task.omissions_in("solution") == ["a.log"]


def test_what_is_ignored_does_not_change_the_digest(folder: Path) -> None:
    put(folder, "tests/.harborignore", "*.log\n")
    before = read(folder).digest
    put(folder, "tests/data/a.log", "changed")
    assert read(folder).digest == before
    put(folder, "tests/test.sh", "changed")
    assert read(folder).digest != before


def test_an_ignored_script_is_a_missing_script(folder: Path) -> None:
    put(folder, "tests/.harborignore", "test.sh\n")
    with pytest.raises(UserError, match=r"has no tests/test\.sh"):
        read_tasks(folder)
