"""Rows of JSONL and Parquet files: what they become, and what is said when they are wrong."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whet.errors import UserError
from whet.tasks import Task, TaskLimits, TaskTool, read_tasks
from whet.tasks.judges import NumberSpec, OutcomeSpec

GOOD: dict[str, Any] = {"id": "a", "instruction": "Say 4.", "answer": "4"}
KEYS = (
    "agent_logs, allow, answer, answer_schema, attachments, canary, copies, data, env, files, followups, id, "
    "instruction, judge, limits, metadata, read_only, setup, split, system, tags, tools, verify, workdir"
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*rows: dict[str, Any] | str | bytes) -> Path:
        lines = [json.dumps(row) if isinstance(row, dict) else row for row in rows]
        file = tmp_path / "rows.jsonl"
        file.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines) + b"\n")
        return file

    return write


def refusal(file: Path) -> str:
    """What the user reads, with the folder of the file left out."""
    with pytest.raises(UserError) as caught:
        read_tasks(file)
    return str(caught.value).replace(f"{file.parent}/", "")


def problem(file: Path) -> str:
    """What the user reads, or 'none' when all is well."""
    try:
        return "none" if read_tasks(file) else "no tasks"
    except UserError as error:
        return str(error)


def test_every_key_reaches_the_task(write: Write, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.csv").write_text("x\n1\n")
    row = {
        "id": "sum",
        "instruction": "Add up the column.",
        "files": {"src/a.py": "print()\n", "logo.png": {"base64": base64.b64encode(b"\x89PNG\xff").decode()}},
        "attachments": ["data/table.csv"],
        "env": {"MODE": "${MODE:-fast}"},
        "workdir": "/app",
        "setup": ["make"],
        "verify": ["make test"],
        "answer": "1",
        "judge": [{"kind": "number", "abs": 0.5, "weight": 2}, "outcome"],
        "canary": ["c4n4ry-0123456789"],
        "tools": [{"name": "weather", "description": "Tells it.", "answer": "sun"}],
        "split": "val",
        "tags": ["csv", "easy"],
        "metadata": {"level": 1, "from": {"page": None}},
        "limits": {"agent_sec": 60, "memory_mb": 512},
    }
    (task,) = read_tasks(write(row))
    assert task == Task(
        id="sum",
        instruction="Add up the column.",
        origin=f"{tmp_path}/rows.jsonl:1",
        digest=task.digest,
        files={"src/a.py": "print()\n", "logo.png": b"\x89PNG\xff"},
        attachments=(tmp_path / "data" / "table.csv",),
        env={"MODE": "${MODE:-fast}"},
        workdir="/app",
        setup=("make",),
        verify=("make test",),
        answer="1",
        judge=(NumberSpec(kind="number", abs=0.5, weight=2), OutcomeSpec(kind="outcome")),
        canary=("c4n4ry-0123456789",),
        tools=(TaskTool(name="weather", description="Tells it.", answer="sun"),),
        split="val",
        tags=("csv", "easy"),
        metadata={"level": 1, "from": {"page": None}},
        limits=TaskLimits(agent_sec=60, memory_mb=512),
    )
    assert len(task.digest) == 32


def test_a_task_survives_being_written_as_json(write: Write) -> None:
    (task,) = read_tasks(write({**GOOD, "files": {"a": {"base64": "//8="}, "b": "text"}, "metadata": {"n": [1]}}))
    assert Task.model_validate_json(task.model_dump_json()) == task


def test_a_row_without_id_is_named_after_its_line(write: Write) -> None:
    row = {"instruction": "Say 4.", "answer": "4"}
    tasks = read_tasks(write(row, "", "   \r", row))
    assert [task.id for task in tasks] == ["rows-1", "rows-4"]
    assert tasks[1].origin.endswith("rows.jsonl:4")


def test_a_null_key_is_absent_and_a_mark_is_skipped(write: Write) -> None:
    with_nulls = {**GOOD, "split": None, "limits": None, "files": None}
    (task,) = read_tasks(write(b"\xef\xbb\xbf" + json.dumps(with_nulls).encode()))
    assert (task.split, task.limits, task.files) == (None, TaskLimits(), {})


def test_an_empty_answer_is_an_answer(write: Write) -> None:
    assert read_tasks(write({**GOOD, "answer": ""}))[0].answer == ""


WRONG = json.loads((Path(__file__).parent / "golden" / "rows.json").read_text())


@pytest.mark.parametrize(("change", "said"), WRONG["a change of a good row, and what is said of it"])
def test_a_wrong_value_is_told_with_line_key_and_value(write: Write, change: dict[str, Any], said: str | None) -> None:
    said = said or "key 'tools[0].name' is 'Bad name'; expected text that matches ^[a-z][a-z0-9_-]{0,63}$"
    assert refusal(write(GOOD, {**GOOD, "id": "b", **change})) == f"rows.jsonl:2: {said}"


@pytest.mark.parametrize("path", ["", ".", "/a", "a/", "a/../../b", "a\0b"])
def test_a_file_that_would_not_lie_in_the_working_directory_is_refused(write: Write, path: str) -> None:
    assert refusal(write({**GOOD, "files": {path: "x"}})) == (
        f"rows.jsonl:1: key 'files' has the name {path!r}; "
        "expected a relative path of a file that stays inside the working directory"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "a"', "Input data was truncated; expected one JSON object per line"),
        ('{"id": NaN}', "JSON is malformed: invalid character (byte 7); expected one JSON object per line"),
        ("[1]", "the row is a list; expected an object with keys and values"),
        ("7", "the row is 7; expected an object with keys and values"),
        (b'{"id": "\xff"}', "the line is not UTF-8; expected UTF-8 text"),
        ("[" * 100_000, "the JSON is nested too deeply; expected one JSON object per line"),
        (
            json.dumps({**GOOD, "metadata": json.loads('{"a":' * 60 + "1" + "}" * 60)}),
            "key 'metadata' is nested too deeply; expected at most 50 levels",
        ),
    ],
)
def test_a_line_that_is_no_row_is_told(write: Write, line: str | bytes, said: str) -> None:
    assert refusal(write(line)) == f"rows.jsonl:1: {said}"


def test_attachments_stay_in_the_folder_of_the_rows_file(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "sub").mkdir(parents=True)
    for file in (tmp_path / "secret", folder / "a.csv", folder / "sub" / "a.csv"):
        file.write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    rows = folder / "rows.jsonl"
    names = ["../secret", "link", "/etc/hosts", "sub", "a.csv", "sub/a.csv"]
    rows.write_text(json.dumps({**GOOD, "attachments": names}))
    outside = "expected a file in the folder of the rows file"
    assert refusal(rows).splitlines() == [
        f"rows.jsonl:1: key 'attachments[0]' is '../secret'; {outside}",
        f"rows.jsonl:1: key 'attachments[1]' is 'link'; {outside}",
        f"rows.jsonl:1: key 'attachments[2]' is '/etc/hosts'; {outside}",
        f"rows.jsonl:1: key 'attachments[3]' is 'sub'; {outside}",
        "rows.jsonl:1: key 'attachments[5]' is 'sub/a.csv'; expected a name that no other attachment has",
    ]


def test_at_most_ten_problems_of_a_file_are_told(write: Write) -> None:
    lines = refusal(write(*({**GOOD, "id": n, "split": "x"} for n in range(1, 8)))).splitlines()
    assert len(lines) == 11
    assert lines[0] == "rows.jsonl:1: key 'id' is 1; expected text"
    assert lines[9] == "rows.jsonl:5: key 'split' is 'x'; expected one of: train, val, test"
    assert lines[10] == "... and 4 more"


def test_a_secret_in_a_misplaced_table_is_not_printed(write: Write) -> None:
    said = refusal(write({**GOOD, "instruction": {"env": {"TOKEN": "hunter2"}}, "tags": ["ok", {"TOKEN": "hunter2"}]}))
    assert "hunter2" not in said
    assert said.splitlines() == [
        "rows.jsonl:1: key 'instruction' is a table; expected text",
        "rows.jsonl:1: key 'tags[1]' is a table; expected text",
    ]


def test_two_rows_with_one_id_are_refused_with_both_places(write: Write) -> None:
    said = "rows.jsonl:3: id 'a' is taken by rows.jsonl:1; expected a different id for every task"
    assert refusal(write(GOOD, {**GOOD, "id": "b"}, GOOD)) == said


# Parquet


def as_parquet(file: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> Path:
    columns = dict.fromkeys(key for row in rows for key in row)
    pq.write_table(pa.Table.from_pylist([{key: row.get(key) for key in columns} for row in rows], schema), file)
    return file


def test_parquet_rows_are_told_by_number(tmp_path: Path) -> None:
    assert read_tasks(as_parquet(tmp_path / "good.parquet", [GOOD]))[0].origin == f"{tmp_path}/good.parquet: row 1"
    wrong = as_parquet(tmp_path / "rows.parquet", [GOOD, {**GOOD, "id": "b", "split": "tset"}])
    assert refusal(wrong) == "rows.parquet: row 2: key 'split' is 'tset'; expected one of: train, val, test"


def test_parquet_columns_that_are_null_are_absent_even_inside_structs(tmp_path: Path) -> None:
    rows = [
        {"instruction": "x", "answer": "1", "limits": {"agent_sec": 5, "memory_mb": None}},
        {"instruction": "y", "answer": "2", "limits": {"agent_sec": None, "memory_mb": 9}, "split": "test"},
    ]
    schema = pa.schema(
        [
            ("instruction", pa.string()),
            ("answer", pa.string()),
            ("split", pa.string()),
            ("limits", pa.struct([("agent_sec", pa.int64()), ("memory_mb", pa.float64())])),
        ]
    )
    tasks = read_tasks(as_parquet(tmp_path / "r.parquet", rows, schema))
    assert [task.id for task in tasks] == ["r-1", "r-2"]
    assert [task.limits for task in tasks] == [TaskLimits(agent_sec=5), TaskLimits(memory_mb=9)]
    assert [task.split for task in tasks] == [None, "test"]


def test_parquet_maps_bytes_and_dates_arrive_as_a_task_can_hold_them(tmp_path: Path) -> None:
    table = pa.table(
        {
            "instruction": ["x"],
            "answer": ["1"],
            "env": pa.array([[]], pa.map_(pa.string(), pa.string())),
            "files": pa.array([[("a.bin", b"\xff")]], pa.map_(pa.string(), pa.binary())),
            "metadata": pa.array([{"when": 0}], pa.struct([("when", pa.date32())])),
        }
    )
    pq.write_table(table, tmp_path / "r.parquet")
    (task,) = read_tasks(tmp_path / "r.parquet")
    assert (task.env, task.files, task.metadata) == ({}, {"a.bin": b"\xff"}, {"when": "1970-01-01"})


def test_more_rows_than_a_batch_are_all_read(tmp_path: Path) -> None:
    rows = [{"instruction": f"Say {n}.", "answer": str(n)} for n in range(600)]
    tasks = read_tasks(as_parquet(tmp_path / "r.parquet", rows))
    assert [task.answer for task in tasks] == [str(n) for n in range(600)]
    assert tasks[-1].id == "r-600"


def test_a_file_that_is_not_parquet_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "r.parquet"
    file.write_bytes(b"not parquet at all")
    said = refusal(file)
    assert said.startswith("r.parquet: Parquet magic bytes not found in footer.")
    assert said.endswith("; expected a readable Parquet file")
    assert "\n" not in said


# Properties

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
name = st.from_regex(r"[a-z]{1,4}", fullmatch=True)
content = st.one_of(
    st.dictionaries(name, text, min_size=1, max_size=2),
    st.dictionaries(name, st.binary(max_size=4).map(lambda b: {"base64": base64.b64encode(b).decode()}), min_size=1),
)
row = st.fixed_dictionaries(
    {"instruction": text.filter(bool), "answer": text},
    optional={
        "split": st.sampled_from(["train", "val", "test"]),
        "tags": st.lists(text, min_size=1, max_size=3),
        "setup": st.lists(text, min_size=1, max_size=3),
        "env": st.dictionaries(name, text, min_size=1, max_size=3),
        "limits": st.fixed_dictionaries({"agent_sec": st.integers(1, 9)}, optional={"memory_mb": st.integers(1, 9)}),
        "metadata": st.fixed_dictionaries({"n": st.integers(-9, 9), "list": st.lists(text, min_size=1)}),
        "tools": st.lists(st.fixed_dictionaries({"name": name, "answer": text}), min_size=1, max_size=1),
        "judge": st.just("outcome"),
        "files": content,
    },
)
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@given(rows=st.lists(row, min_size=1, max_size=4))
@in_one_folder
def test_jsonl_and_parquet_read_to_the_same_tasks(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    kinds = {type(value) for row in rows for value in row.get("files", {}).values()}
    if len(kinds) > 1:  # one Parquet column has one type
        rows = [row for row in rows if "files" not in row] or rows[:1]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    as_parquet(tmp_path / "r.parquet", rows)
    placeless = [
        [task.model_copy(update={"origin": ""}) for task in read_tasks(tmp_path / f"r.{kind}")]
        for kind in ("jsonl", "parquet")
    ]
    assert placeless[0] == placeless[1]


@given(one=row, other=row)
@in_one_folder
def test_rows_have_one_digest_exactly_when_they_say_the_same(
    one: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    shuffled = dict(reversed(one.items()))
    file = tmp_path / "r.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (one, shuffled, other)))
    first, again, different = read_tasks(file)
    assert first.digest == again.digest
    said = [
        task.model_copy(update={"id": "", "origin": "", "digest": "", "split": None}) for task in (first, different)
    ]
    assert (first.digest == different.digest) == (said[0] == said[1])


def test_a_task_that_is_moved_to_another_split_is_the_same_task(write: Write) -> None:
    before, moved, unsplit = read_tasks(write(*({**GOOD, "id": n, "split": n} for n in ("train", "val")), GOOD))
    assert before.digest == moved.digest == unsplit.digest


def test_the_digest_of_a_row_covers_its_attachments(write: Write, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    file = write({**GOOD, "attachments": ["a.csv"]}, {**GOOD, "id": "b", "attachments": ["a.csv"]})
    before, renamed = read_tasks(file)
    (tmp_path / "a.csv").write_text("2")
    after = read_tasks(file)[0]
    assert before.digest == renamed.digest != after.digest


@given(data=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
@in_one_folder
def test_any_bytes_give_tasks_or_a_user_error(data: bytes, tmp_path: Path) -> None:
    for kind in ("jsonl", "parquet"):
        file = tmp_path / f"r.{kind}"
        file.write_bytes(data)
        with pytest.raises(UserError):
            read_tasks(file)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
known_keys = st.sampled_from(KEYS.split(", "))


@given(values=st.dictionaries(known_keys | text, any_json, max_size=6))
@in_one_folder
def test_any_json_object_gives_a_task_or_a_user_error(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps({**GOOD, **values}))
    assert problem(file).startswith((f"{file}:1: ", "none"))


@given(at=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 10_000))
@in_one_folder
def test_damaged_parquet_gives_tasks_or_a_user_error(at: int, value: int, cut: int, tmp_path: Path) -> None:
    rows = [{**GOOD, "id": str(n), "tags": ["x"], "metadata": {"n": n}} for n in range(5)]
    data = bytearray(as_parquet(tmp_path / "r.parquet", rows).read_bytes())
    data[at % len(data)] = value
    (tmp_path / "r.parquet").write_bytes(data[: len(data) - cut % len(data)] if cut % 3 == 0 else data)
    assert problem(tmp_path / "r.parquet").startswith((f"{tmp_path}/r.parquet: ", "none"))


def test_the_digest_of_a_row_covers_the_function_that_judges_it(write: Write, tmp_path: Path) -> None:
    path = write(GOOD | {"judge": {"kind": "python", "function": "marks:grade"}})
    (tmp_path / "marks.py").write_text("def grade(work): return 1\n")
    (before,) = read_tasks(path)
    (tmp_path / "marks.py").write_text("def grade(work): return 0\n")
    (after,) = read_tasks(path)
    assert before.digest != after.digest
