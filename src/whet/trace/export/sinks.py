"""Writes exports record by record. A file gets its name only when it is complete."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from whet.errors import UserError
from whet.installers import require_parquet
from whet.trace.export.tables import arrow_schemas

BATCH = 1000
"""Rows of a table that are buffered before they are written."""


class Sink(Protocol):
    def write(self, record: Any) -> None: ...

    def close(self) -> None: ...


class JsonLinesSink:
    """A file with a JSON document on each line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, record: Any) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")

    def close(self) -> None:
        self._file.close()


class DocumentsSink:
    """A folder with a JSON document in each file. Records are pairs of a file name and its document."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self._folder = path

    def write(self, record: Any) -> None:
        name, document = record
        text = msgspec.json.format(msgspec.json.encode(document), indent=1)
        (self._folder / name).write_bytes(text + b"\n")

    def close(self) -> None: ...


class TablesSink:
    """A folder with Parquet files. Records are pairs of a table name and a row."""

    def __init__(self, path: Path) -> None:
        require_parquet()
        import pyarrow.parquet as pq

        path.mkdir()
        self._schemas = arrow_schemas()
        self._writers = {
            name: pq.ParquetWriter(path / f"{name}.parquet", schema, compression="zstd")
            for name, schema in self._schemas.items()
        }
        self._rows: dict[str, list[Any]] = {name: [] for name in self._schemas}

    def write(self, record: Any) -> None:
        name, row = record
        self._rows[name].append(row)
        if len(self._rows[name]) >= BATCH:
            self._flush(name)

    def close(self) -> None:
        for name, writer in self._writers.items():
            self._flush(name)
            writer.close()

    def _flush(self, name: str) -> None:
        import pyarrow as pa

        self._writers[name].write_table(pa.Table.from_pylist(self._rows[name], self._schemas[name]))
        self._rows[name] = []


@contextmanager
def open_sink(path: Path, sink: Callable[[Path], Sink]) -> Iterator[Sink]:
    """Open a sink. The export gets its name if everything succeeds, and is removed otherwise."""
    if path.exists():
        raise UserError(f"{path}: exists already; `out` needs a new name")
    part = path.with_name(f".{path.name}.part")
    _remove(part)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = sink(part)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        try:
            yield opened
        finally:
            opened.close()
        part.rename(path)
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
