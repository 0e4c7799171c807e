"""Reads the rows of a Parquet file as plain Python values, one batch at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.installers import require_parquet

_BATCH = 256


def parquet_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Every row as a dict by column name, without the columns that are null in it."""
    require_parquet()
    # Importing pyarrow takes longer than reading most task sets, and only Parquet needs it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(batch_size=_BATCH):
                schema = pa.struct(list(batch.schema))
                for row in batch.to_pylist():
                    yield _plain(row, schema)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UserError(f"{file}: {_first_line(error)}; expected a readable Parquet file") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _plain(value: Any, kind: Any) -> Any:
    """Convert to a JSON value: maps and structs become dicts, and types that JSON lacks become text."""
    from pyarrow import types

    if value is None or isinstance(value, str | int | float | bytes):
        return value
    kind = getattr(kind, "storage_type", kind)
    if types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if types.is_struct(kind):
        # A struct column gives every row every key, so a null there means that the row lacks the key.
        return {field.name: _plain(value[field.name], field.type) for field in kind if value[field.name] is not None}
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    return str(value)
