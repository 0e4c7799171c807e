"""Where tasks are found, and how host variables get into them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.tasks import read_tasks, resolve_env

LOOKED_FOR = "a task folder (with task.toml), a .jsonl, .parquet, .csv or .tasks.toml file, or a folder of these"


def put_folder(folder: Path) -> None:
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").touch()
    (folder / "tests" / "test.sh").touch()
    (folder / "instruction.md").write_text("Do it.")


def put_rows(file: Path, *ids: str) -> None:
    file.write_text("".join(json.dumps({"id": name, "instruction": "x", "answer": "1"}) + "\n" for name in ids))


def test_a_folder_of_tasks_is_read_by_name(tmp_path: Path) -> None:
    put_folder(tmp_path / "c-task")
    put_folder(tmp_path / ".hidden")
    put_folder(tmp_path / "a-folder" / "too-deep")
    put_rows(tmp_path / "d.jsonl", "d1", "d2")
    put_rows(tmp_path / ".d.jsonl", "hidden")
    pq.write_table(pa.table({"id": ["b"], "instruction": ["x"], "answer": ["1"]}), tmp_path / "b.parquet")
    (tmp_path / "notes.md").write_text("Notes")
    (tmp_path / "e.jsonl").mkdir()
    assert [task.id for task in read_tasks(tmp_path)] == ["b", "c-task", "d1", "d2"]


def test_a_task_folder_is_named_after_itself_however_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_folder(tmp_path / "sort")
    monkeypatch.chdir(tmp_path / "sort")
    (task,) = read_tasks(Path())
    assert (task.id, task.origin, task.tests) == ("sort", ".", tmp_path / "sort" / "tests")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "No such file or directory"),
        ("empty", "holds no tasks"),
        ("empty.jsonl", "holds no tasks"),
        ("notes.md", "is not a file of tasks"),
    ],
)
def test_where_nothing_is_found_it_is_told_what_was_looked_for(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "notes.md").touch()
    with pytest.raises(UserError) as caught:
        read_tasks(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {said}; expected {LOOKED_FOR}"


def test_an_instruction_without_a_manifest_is_refused(tmp_path: Path) -> None:
    put_folder(tmp_path / "sort")
    (tmp_path / "sort" / "task.toml").unlink()
    for path in (tmp_path, tmp_path / "sort"):
        with pytest.raises(UserError) as caught:
            read_tasks(path)
        assert str(caught.value) == (
            f"{tmp_path}/sort: has instruction.md but no task.toml; expected both in a task folder"
        )


def test_one_id_in_two_places_of_a_set_is_refused(tmp_path: Path) -> None:
    put_folder(tmp_path / "a")
    put_rows(tmp_path / "b.jsonl", "x", "a")
    with pytest.raises(UserError) as caught:
        read_tasks(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/b.jsonl:2: id 'a' is taken by {tmp_path}/a; expected a different id for every task"
    )


# Host variables


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("${NAME}", "host"),
        ("${NAME:-default}", "host"),
        ("${EMPTY}", ""),
        ("${EMPTY:-default}", ""),
        ("${GONE:-}", ""),
        ("${GONE:-a default: {1}}", "a default: {1}"),
        ("${GONE:-${NAME}}", "${NAME}"),
        ("x${NAME}", "x${NAME}"),
        ("$NAME", "$NAME"),
        ("${NAME} ", "${NAME} "),
        ("${NAME-default}", "${NAME-default}"),
    ],
)
def test_only_a_whole_value_is_a_template(value: str, resolved: str) -> None:
    assert resolve_env({"KEY": value}, {"NAME": "host", "EMPTY": ""}, "task 'a'") == {"KEY": resolved}


def test_a_variable_that_the_host_lacks_is_named_with_its_task() -> None:
    with pytest.raises(UserError) as caught:
        resolve_env({"KEY": "${TOKEN}"}, {}, "task 'a'")
    assert str(caught.value) == (
        "task 'a': variable 'KEY' is '${TOKEN}', but TOKEN is not set; "
        "expected TOKEN in the environment, or a default: ${TOKEN:-default}"
    )


@given(value=st.text(), host=st.dictionaries(st.sampled_from("AB"), st.text()))
def test_what_comes_from_the_host_is_never_resolved_again(value: str, host: dict[str, str]) -> None:
    assert resolve_env({"KEY": "${A}"}, {**host, "A": value}, "task 'a'") == {"KEY": value}
