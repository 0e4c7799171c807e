"""Choosing tasks: several paths, patterns, a split and a number; errors list what there is."""

import json
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.runs.options import RunOptions
from whet.tasks import Task, select_tasks


def rows(file: Path, *names: str, **fields: str) -> Path:
    lines = (json.dumps({"id": name, "instruction": "Do it.", "answer": "4", **fields}) + "\n" for name in names)
    file.write_text("".join(lines))
    return file


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


def test_tasks_are_read_from_several_paths_in_their_order(tmp_path: Path) -> None:
    paths = (rows(tmp_path / "b.jsonl", "b1", "b2"), rows(tmp_path / "a.jsonl", "a1"))
    assert ids(RunOptions(tasks=paths).read_tasks()) == ["b1", "b2", "a1"]
    assert ids(RunOptions(tasks=paths, task=("b*",), limit=1).read_tasks()) == ["b1"]


def test_patterns_split_and_limit_select_together(tmp_path: Path) -> None:
    train = rows(tmp_path / "t.jsonl", "fix-1", "fix-2", "add-1", split="train")
    val = rows(tmp_path / "v.jsonl", "fix-3", "fix-4", split="val")
    chosen = RunOptions(tasks=(train, val), task=("add-1", "fix-[24]"))
    assert ids(chosen.read_tasks()) == ["fix-2", "add-1", "fix-4"], "in the order of the files"
    assert ids(RunOptions(tasks=(train, val), task="fix-*", split="val", limit=1).read_tasks()) == ["fix-3"]


def test_what_matches_nothing_is_an_error_that_lists_what_there_is(tmp_path: Path) -> None:
    tasks = RunOptions(tasks=rows(tmp_path / "t.jsonl", "fix-1", "add-1", split="train")).read_tasks()
    with pytest.raises(UserError, match=r"`task` is 'fxi-1', .*did you mean 'fix-1'\? \(the tasks are: fix-1, add-1\)"):
        select_tasks(tasks, ["add-*", "fxi-1"])
    with pytest.raises(UserError, match=r"`split` is 'val', which no task has; .*: train \(2\)"):
        select_tasks(tasks, split="val")


def test_the_same_id_in_two_files_is_an_error(tmp_path: Path) -> None:
    one, other = rows(tmp_path / "a.jsonl", "x"), rows(tmp_path / "b.jsonl", "x")
    with pytest.raises(UserError, match=r"b\.jsonl:1: id 'x' is taken by .*a\.jsonl:1"):
        RunOptions(tasks=(one, other)).read_tasks()


def test_the_file_of_a_skill_stands_for_its_folder(tmp_path: Path) -> None:
    document = tmp_path / "rules" / "SKILL.md"
    document.parent.mkdir()
    document.write_text("# Rules")
    assert RunOptions(skills=(document, None)).skills == (document.parent, None)
