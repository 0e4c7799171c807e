"""Reads transcripts that are one JSON object with a list of records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.ids import digest
from whet.sleep.readers.jsonl import read_record

FILE_LIMIT = 64 << 20
"""Bytes of the largest file that is read. A larger one counts as broken."""


class JsonFile:
    """The object without its list, then the records of the list. Iterate once, as `Lines`."""

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.broken = 0
        self.offset = 0
        self.digest = ""
        self._key = key

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self.path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
        self.digest = digest(content)
        whole = read_record(content) if len(content) <= FILE_LIMIT else None
        if whole is None:
            self.broken = 1
            return
        self.offset = len(content)
        records = whole.pop(self._key, None)
        yield 0, whole
        for record in records if isinstance(records, list) else ():
            if isinstance(record, dict):
                yield 0, record
