"""Reads tasks from rows: one JSON object per line, or one row of a Parquet or CSV file, for each task."""

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from whet.errors import UserError, did_you_mean
from whet.ids import digest
from whet.tasks.folder import folder_digest, list_entries
from whet.tasks.judges import AnyJudge, PythonSpec, judge_warnings, locate_modules
from whet.tasks.parquet import parquet_rows
from whet.tasks.task import Task
from whet.tasks.task_set import SUFFIX, csv_rows, read_task_set
from whet.validation_errors import explain, format_value, key_path

_KEYS = frozenset(
    {"id", "instruction", "system", "followups", "files", "attachments", "copies", "data", "read_only", "env"}
    | {"workdir", "setup", "tools", "verify", "judge", "answer", "answer_schema", "canary", "split", "tags"}
    | {"metadata", "limits", "allow", "agent_logs"}
)
_NOT_CONTENT = {"id", "origin", "digest", "files", "attachments", "copies", "data", "split", "keep"}
_PLACED = ("copies", "data")


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    """Line or row number, from 1."""
    where: str
    data: bytes | Mapping[str, Any]


def read_rows(file: Path) -> Iterator[Task | UserError]:
    """The task of each row of a rows file or a task set, or what is wrong with it."""
    chosen = read_task_set(file) if file.name.endswith(SUFFIX) else None
    data = chosen.rows if chosen else file
    for row in _rows(data):
        try:
            values = _values(row)
            wanted = chosen.make_row(values, row.where) if chosen else values
            if wanted is not None:
                yield _task(row, wanted, file)
        except UserError as error:
            yield error


def _rows(file: Path) -> Iterator[_Row]:
    match file.suffix.lower():
        case ".parquet":
            found: Iterable[dict[str, Any]] = parquet_rows(file)
        case ".csv":
            found = csv_rows(file)
        case ".jsonl":
            yield from _jsonl(file)
            return
        case _:
            raise UserError(f"{file}: is not a data set; expected a .jsonl, .parquet or .csv file")
    for number, values in enumerate(found, 1):
        yield _Row(number, f"{file}: row {number}", values)


def _jsonl(file: Path) -> Iterator[_Row]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if text.strip():
                yield _Row(number, f"{file}:{number}", text)


def _task(row: _Row, values: Mapping[str, Any], file: Path) -> Task:
    attachments, problems = _attachments(values.get("attachments", []), file.parent, row.where)
    placed = {key: _find_placed(key, values.get(key, {}), file.parent, row.where, problems) for key in _PLACED}
    problems += [
        f"{row.where}: unknown key '{key_path([key])}'; {did_you_mean(key, _KEYS)}"
        for key in values
        if key not in _KEYS
    ]
    known = {key: value for key, value in values.items() if key in _KEYS}
    try:
        task = Task.model_validate(
            {"id": f"{_stem(file)}-{row.number}", **known, **placed, "attachments": attachments, "origin": row.where}
        )
    except ValidationError as error:
        raise UserError("\n".join([*problems, *explain(error, row.where, Task)])) from error
    if not (task.verify or task.judge or task.answer is not None):
        problems.append(f"{row.where}: none of the keys 'verify', 'answer', 'judge' is given; expected at least one")
    if problems:
        raise UserError("\n".join(problems))
    judge = locate_modules(task.judge, file.parent)
    warnings = tuple(f"{row.where}: {warning}" for warning in judge_warnings(task.judge))
    return task.model_copy(update={"digest": _digest(task, judge), "judge": judge, "warnings": warnings})


def _stem(file: Path) -> str:
    return file.name.removesuffix(SUFFIX) if file.name.endswith(SUFFIX) else file.stem


def _values(row: _Row) -> dict[str, Any]:
    """The keys and values of the row. A null means that the key is absent."""
    values = _decode(row.data, row.where) if isinstance(row.data, bytes) else row.data
    if not isinstance(values, Mapping):
        raise UserError(f"{row.where}: the row is {format_value(values)}; expected an object with keys and values")
    return {key: value for key, value in values.items() if value is not None}


def _decode(line: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: the line is not UTF-8; expected UTF-8 text") from error
    except msgspec.DecodeError as error:
        raise UserError(f"{where}: {error}; expected one JSON object per line") from error
    except RecursionError as error:
        raise UserError(f"{where}: the JSON is nested too deeply; expected one JSON object per line") from error


def _attachments(names: Any, folder: Path, where: str) -> tuple[list[Path], list[str]]:
    """The attached files, and the problems with the others."""
    if not isinstance(names, list):
        return [], [f"{where}: key 'attachments' is {format_value(names)}; expected a list of files"]
    paths: dict[str, Path] = {}
    problems: list[str] = []
    for index, name in enumerate(names):
        path = _attachment(name, folder)
        if path is not None and paths.setdefault(path.name, path) is path:
            continue
        expected = "a file in the folder of the rows file" if path is None else "a name that no other attachment has"
        problems.append(f"{where}: key 'attachments[{index}]' is {format_value(name)}; expected {expected}")
    return list(paths.values()), problems


def _attachment(name: Any, folder: Path) -> Path | None:
    path = find_beside(name, folder)
    return path if path is not None and path.is_file() else None


def find_beside(name: Any, folder: Path) -> Path | None:
    """What is called so in the folder of a task; None when it is not there, or a link leads elsewhere."""
    if not isinstance(name, str) or "\0" in name:
        return None
    root = folder.resolve()
    path = root / name
    return path if Path(os.path.realpath(path)).is_relative_to(root) and path.exists() else None


def _find_placed(key: str, given: Any, folder: Path, where: str, problems: list[str]) -> dict[str, Path]:
    """The files and folders of `copies` and `data`, by their places in the box. Problems are added to the others."""
    if not isinstance(given, Mapping):
        problems.append(f"{where}: key '{key}' is {format_value(given)}; expected a table of places and paths")
        return {}
    found = {}
    for place, name in given.items():
        path = find_beside(name, folder)
        if path is None or (key == "data" and not path.is_dir()):
            expected = f"a {'folder' if key == 'data' else 'file or folder'} in the folder of the rows file"
            problems.append(f"{where}: key '{key_path([key, place])}' is {format_value(name)}; expected {expected}")
        else:
            found[place] = path
    return found


def with_digest(task: Task) -> Task:
    """Add the fields that a file reader sets to a task from Python."""
    if task.digest:
        return task
    return task.model_copy(update={"digest": _digest(task, task.judge), "origin": task.origin or f"task '{task.id}'"})


def _digest(task: Task, judges: Iterable[AnyJudge]) -> str:
    """Digest of the row's values, its attached files and the functions that judge it. Its id and its location do not
    count."""
    # Without defaults, so that a future field of whet does not change the digest of every task.
    values = json.dumps(task.model_dump(mode="json", exclude=_NOT_CONTENT, exclude_defaults=True), sort_keys=True)
    parts = [values.encode()]
    for name, content in sorted(task.files.items()):
        parts += [b"file", name.encode(), content.encode() if isinstance(content, str) else content]
    for path in task.attachments:
        parts += [b"attachment", path.name.encode(), path.read_bytes()]
    for place, path in sorted(task.copies.items()):
        content = folder_digest(path, list_entries(path)).encode() if path.is_dir() else path.read_bytes()
        parts += [b"copy", place.encode(), content]
    for place, path in sorted(task.data.items()):
        # Data can be large, so names and sizes must do.
        files = sorted(file for file in path.rglob("*") if file.is_file())
        sizes = [(file.relative_to(path).as_posix(), file.stat().st_size) for file in files]
        parts += [b"data", place.encode(), json.dumps(sizes).encode()]
    for judge in judges:
        if isinstance(judge, PythonSpec) and judge.source is not None:
            parts += [b"function", judge.source.read_bytes()]
    return digest(*parts)
