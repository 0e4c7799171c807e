"""The tasks of a run within a band of difficulty, written so that they can be run again."""

import codecs
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from whet.errors import UserError
from whet.runs.run import read_task_paths
from whet.runs.stats.summary import tally, total
from whet.runs.store.store import Store
from whet.tasks import Task, read_tasks
from whet.tasks.parquet import parquet_rows

ROWS = "tasks.jsonl"
"""What rows are called in a folder that holds task folders too."""


@dataclass(frozen=True, slots=True)
class Band:
    """Mean scores, both ends included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Filtered:
    """How many tasks were written, and why the others were not."""

    kept: int
    too_hard: int
    too_easy: int
    unscored: int


def filter_tasks(run: Path, band: Band, out: Path) -> Filtered:
    """Write the tasks whose mean score over all samples and arms lies in the band: rows to a .jsonl file, or task
    folders as links, and rows beside them, in a new folder. `whet run` reads either."""
    if out.exists():
        raise UserError(f"{out}: exists already; `out` needs a new file or folder")
    with Store.open_read(run) as store:
        values = total(tally(store).values()).values
        rows = {row.id: row.digest for row in store.tasks()}
        paths = read_task_paths(store)
    means = {task: math.fsum(scores) / len(scores) for task, scores in values.items()}
    kept = [task for task in rows if task in means and band.low <= means[task] <= band.high]
    if kept:
        tasks = _read_unchanged(run, paths, {task: rows[task] for task in kept})
        _write(tasks, out)
        _prove(tasks, out)
    return Filtered(
        kept=len(kept),
        too_hard=sum(mean < band.low for mean in means.values()),
        too_easy=sum(mean > band.high for mean in means.values()),
        unscored=len(rows) - len(means),
    )


def _read_unchanged(run: Path, paths: Sequence[Path], digests: Mapping[str, str]) -> list[Task]:
    """The tasks as they are at their source, which must be as they were."""
    if not paths:
        raise UserError(f"{run}: does not say where its tasks are")
    found = {task.id: task for task in read_tasks(paths)}
    for task, digest in digests.items():
        if task not in found or found[task].digest != digest:
            what = "has been changed" if task in found else "is gone"
            raise UserError(f"{paths[0]}: task '{task}' {what} since {run} was made; expected the same task")
    return [found[task] for task in digests]


def _write(tasks: list[Task], out: Path) -> None:
    folders = [task for task in tasks if Path(task.origin).is_dir()]
    rows = [task for task in tasks if not Path(task.origin).is_dir()]
    if out.suffix.lower() != ".jsonl":
        out.mkdir(parents=True)
        for task in folders:
            source = Path(task.origin).resolve()
            (out / source.name).symlink_to(source, target_is_directory=True)
        if rows:
            _write_rows(rows, out / ROWS)
    elif folders:
        raise UserError(f"{out}: {folders[0].origin} is a task folder; expected a folder as `out`, to link to it")
    else:
        _write_rows(rows, out)


def _prove(tasks: list[Task], out: Path) -> None:
    """What was written must read as the same tasks; a Parquet file can hold what a line of JSON cannot."""
    digests = {task.id: task.digest for task in tasks}
    differ = [task.id for task in read_tasks(out) if digests[task.id] != task.digest]
    if differ:
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        raise UserError(f"{tasks[0].origin}: task '{differ[0]}' cannot be written as a line of JSON")


def _write_rows(tasks: list[Task], file: Path) -> None:
    for task in tasks:
        if task.attachments and file.resolve().parent != _source(task)[0].resolve().parent:
            raise UserError(f"{task.origin}: has attachments; expected `out` beside {_source(task)[0]}")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as lines:
        for line in _lines(tasks):
            lines.write(line + b"\n")


def _lines(tasks: list[Task]) -> Iterator[bytes]:
    """The rows as they were read, each source read once."""
    sources: dict[Path, list[Any]] = {}
    for task in tasks:
        file, number = _source(task)
        if file not in sources:
            is_parquet = file.suffix.lower() == ".parquet"
            sources[file] = (
                list(parquet_rows(file)) if is_parquet else file.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
            )
        row = sources[file][number - 1]
        values = row if isinstance(row, Mapping) else json.loads(row)
        # A row without an id is named after its file and line, which are others now.
        same = isinstance(row, bytes) and values.get("id") is not None
        yield row.strip() if same else msgspec.json.encode({**values, "id": task.id})


def _source(task: Task) -> tuple[Path, int]:
    """File and number of a row: `file.jsonl:3` or `file.parquet: row 3`."""
    file, _, number = task.origin.rpartition(":")
    return Path(file), int(number.removeprefix(" row "))
