"""Tasks of a band of difficulty: what was read is written as the same tasks, or it is said why it cannot be."""

import codecs
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.run_world import write_rows
from whet.errors import UserError
from whet.rollout.result import Result
from whet.runs.select_tasks import Band, filter_tasks
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Score
from whet.tasks import read_tasks

ROW = {"id": "a", "instruction": "2 + 2?", "answer": "4"}


def scored(run: Path, tasks: Path, *values: float) -> Path:
    """A run of the tasks of a file with these scores, in their order."""
    with Store.create(run) as store:
        store.set("tasks", str(tasks))
        for number, (task, value) in enumerate(zip(read_tasks(tasks), values, strict=True)):
            store.add_tasks([TaskRow(task.id, task.digest, task.origin, "{}")])
            store.add_rollouts([RolloutRow(f"r{number}", number, task.id, "chat", "m", None, 0)])
            body = Result(score=Score.of(value)).model_dump_json().encode()
            attempt = store.start_attempt(f"r{number}", 0.0)
            store.finish_attempt(attempt, body, value=value, cause=None, final=True, ended=1.0)
    return run


def test_both_ends_of_a_band_are_in_it(tmp_path: Path) -> None:
    rows = [{**ROW, "id": str(number)} for number in range(4)]
    run = scored(tmp_path / "run", write_rows(tmp_path, *rows), 0.25, 0.5, 0.75, 1.0)
    found = filter_tasks(run, Band(0.5, 0.75), tmp_path / "band.jsonl")
    assert (found.kept, found.too_hard, found.too_easy, found.unscored) == (2, 1, 1, 0)
    assert [task.id for task in read_tasks(tmp_path / "band.jsonl")] == ["1", "2"]


def test_a_byte_order_mark_is_not_written(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, ROW, {**ROW, "id": "b"})
    tasks.write_bytes(codecs.BOM_UTF8 + tasks.read_bytes())
    filter_tasks(scored(tmp_path / "run", tasks, 0.0, 1.0), Band(0, 1), tmp_path / "band.jsonl")
    assert (tmp_path / "band.jsonl").read_bytes() == tasks.read_bytes().removeprefix(codecs.BOM_UTF8)


def test_tasks_with_attachments_are_written_beside_them_only(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1\n")
    run = scored(tmp_path / "run", write_rows(tmp_path, {**ROW, "attachments": ["data.csv"]}), 1.0)
    with pytest.raises(UserError, match=r"tasks.jsonl:1: has attachments; expected `out` beside .*tasks.jsonl"):
        filter_tasks(run, Band(0, 1), tmp_path / "elsewhere" / "band.jsonl")
    assert filter_tasks(run, Band(0, 1), tmp_path / "band.jsonl").kept == 1


def test_what_json_cannot_hold_is_not_written_as_another_task(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.parquet"
    pq.write_table(pa.Table.from_pylist([{**ROW, "metadata": {"mark": b"\xff"}}]), tasks)
    run = scored(tmp_path / "run", tasks, 1.0)
    with pytest.raises(UserError, match="task 'a' cannot be written as a line of JSON"):
        filter_tasks(run, Band(0, 1), tmp_path / "band.jsonl")
    assert not (tmp_path / "band.jsonl").exists()
