"""Reads JSON transcripts: files that may be long, still growing, broken in places or compressed."""

import hashlib
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
import zstandard

from whet.ids import digest
from whet.text.plain import read_json

LINE_LIMIT = 16 << 20
"""Bytes of the longest line that is read. A longer one counts as broken."""
FILE_LIMIT = 64 << 20
"""Bytes of the largest file that is read as one JSON object. A larger one counts as broken."""
FIELD_LIMIT = 64 << 10
"""Characters that are kept of a text: its first half from the start, the other from the end."""

WORD_LIMIT = 1000
"""Characters of a word that are left out where a text is cut."""
_LAST_WORD = re.compile(r"[\w+/=.~%-]*\Z")
_FIRST_WORD = re.compile(rf"[\w+/=.~%-]{{0,{WORD_LIMIT}}}")
_END_OF_KEY = re.compile(r"[A-Za-z0-9+/=\s\\]*-----END [A-Z0-9 ]{0,40}-----")


class Lines:
    """The records of a file up to its last newline, each with the bytes before it. Iterate once, then ask for the
    counts. Lines end with a newline only: texts hold other characters that end a line for `str.splitlines`."""

    def __init__(self, path: Path, end: int | None = None) -> None:
        self.path = path
        self.broken = 0
        """Lines that could not be read. The last line is not counted: it may not be finished."""
        self.offset = 0
        self._end = end
        self._state = hashlib.blake2b(digest_size=16)
        self._last_is_broken = False

    @property
    def digest(self) -> str:
        """Of the bytes that were read."""
        return self._state.hexdigest()

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with open_plain(self.path) as file:
            while self._end is None or self.offset < self._end:
                start = self.offset
                try:
                    line = self._next_line(file)
                except zstandard.ZstdError:
                    self.broken += 1
                    return
                if line is None:
                    return
                if line.isspace():
                    continue
                record = read_record(line)
                self.broken += self._last_is_broken
                self._last_is_broken = record is None
                if record is not None:
                    yield start, record

    def _next_line(self, file: IO[bytes]) -> bytes | None:
        """The next line; empty if it is too long; None at the end, or if the file ends before the line does."""
        size, state = 0, self._state.copy()
        first = part = file.readline(LINE_LIMIT)
        while part:
            size += len(part)
            state.update(part)
            if part.endswith(b"\n"):
                self.offset += size
                self._state = state
                return first if part is first else b""
            part = file.readline(LINE_LIMIT)
        return None


class JsonFile:
    """A transcript that is one JSON object with a list of records: the object without its list, then the records.
    Iterate once, as `Lines`."""

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


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its name ends in .zst."""
    file = path.open("rb")
    if path.suffix != ".zst":
        return file
    plain = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=True)
    return io.BufferedReader(plain)


def read_record(line: bytes) -> dict[str, Any] | None:
    """Parse the line of a record; None if it is no JSON object."""
    try:
        value = msgspec.json.decode(line)
    except (ValueError, RecursionError):  # lone surrogates and invalid UTF-8 too
        try:
            value = read_json(line.decode(errors="replace"))
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def clip(value: object, limit: int = FIELD_LIMIT) -> str:
    """The first and last part of a text; empty if the value is no text.

    A word at a cut is left out, and so is the rest of a private key whose beginning is: nobody would know the half of a
    secret for what it is.

    >>> clip("one two three four", 12), clip(None)
    ('one \\n[9 characters left out]\\n four', '')
    """
    if not isinstance(value, str) or len(value) <= limit:
        return value if isinstance(value, str) else ""
    half = limit // 2
    head, tail = value[:half], value[-half:]
    head = head[: len(head) - _length(_LAST_WORD.search(head[-WORD_LIMIT:]))]
    tail = tail[_length(_FIRST_WORD.match(tail)) :]
    tail = tail[_length(_END_OF_KEY.match(tail)) :]
    return f"{head}\n[{len(value) - len(head) - len(tail)} characters left out]\n{tail}"


def _length(found: re.Match[str] | None) -> int:
    return len(found[0]) if found else 0


def read_time(value: object) -> datetime | None:
    """Read a time in ISO form, or in milliseconds since 1970; None if it is neither.

    >>> print(read_time("2026-11-16T15:20:57.791Z"), read_time(1794843476700), read_time("soon"))
    2026-11-16 15:20:57.791000+00:00 2026-11-16 15:37:56.700000+00:00 None
    """
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment
