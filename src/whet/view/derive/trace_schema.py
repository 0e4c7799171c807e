"""The tables of a trace file, and how the parts of a step are packed into a row. A file is written once and then only
read; one of another format is not read but made anew."""

import sqlite3
from pathlib import Path

import msgspec
import zstandard

from whet.errors import UserError
from whet.trace.steps.summary import Summary

FORMAT = 3
"""Of trace files. Files of another format are left to be deleted."""
APPLICATION_ID = int.from_bytes(b"whtr", "big")
PIECE = 1 << 16
"""Characters of a long text that are kept, and read, together."""
_LEVEL = 1
_SMALL = 200
"""Bytes that are not worth compressing."""

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE about (facts BLOB NOT NULL);
CREATE TABLE thread (
  place INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, parent TEXT, spawned_by TEXT,
  turns INTEGER NOT NULL, steps INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, errors INTEGER NOT NULL
);
-- `shown` and `lines` are the bytes of HTML and the lines of a step with each block cut at its head.
CREATE TABLE step (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, head TEXT NOT NULL, tool TEXT NOT NULL,
  tools INTEGER NOT NULL, call INTEGER, error INTEGER NOT NULL, failed INTEGER NOT NULL, depth INTEGER NOT NULL,
  thread INTEGER NOT NULL, exchange INTEGER, anchor TEXT NOT NULL, shown INTEGER NOT NULL, lines INTEGER NOT NULL,
  length INTEGER NOT NULL
);
CREATE TABLE body (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
-- The whole text of a block that is longer than its head.
CREATE TABLE piece (
  step INTEGER NOT NULL, block INTEGER NOT NULL, place INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (step, block, place)
) WITHOUT ROWID;
CREATE TABLE call (
  exchange INTEGER PRIMARY KEY, status INTEGER, error TEXT, attempts INTEGER NOT NULL, started REAL NOT NULL,
  first_byte REAL, ended REAL NOT NULL, input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER,
  cache_write_tokens INTEGER, reasoning_tokens INTEGER
);
CREATE TABLE image (digest TEXT PRIMARY KEY, media_type TEXT NOT NULL, data BLOB NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize='unicode61 remove_diacritics 0');
"""


class DamagedTraceError(UserError):
    """A trace file that cannot be read. It has been deleted, so the next request makes it anew."""


class TraceFacts(msgspec.Struct, frozen=True):
    """What is true of a whole trace file."""

    exchanges: int
    """Model calls that were in the store."""
    read: int
    """Model calls that it is made of."""
    steps: int
    incomplete: str = ""
    """Why it is not made of all calls; empty when it is."""
    summary: Summary | None = None
    """It in a line; files that are known to have changed are not in it."""


class PackedBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block as it is stored, with the beginning of its text."""

    kind: str
    head: str
    length: int
    name: str = ""
    call_id: str = ""
    media_type: str = ""
    size: int = 0
    digest: str = ""
    hidden: bool = False


class PackedStep(msgspec.Struct, frozen=True, array_like=True):
    """What of a step only a reader of the step needs."""

    note: str
    rewritten: tuple[str, ...]
    source: tuple[str, int, int] | None
    blocks: tuple[PackedBlock, ...]


class Packer:
    """Packs and unpacks. It belongs to one thread."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()
        self._decoder = msgspec.msgpack.Decoder(PackedStep)
        self._encoder = msgspec.msgpack.Encoder()

    def pack_step(self, step: PackedStep) -> bytes:
        """A step as bytes."""
        return self._squeeze(self._encoder.encode(step))

    def unpack_step(self, data: bytes) -> PackedStep:
        """What `pack_step` packed."""
        return self._decoder.decode(self._expand(data))

    def pack_text(self, text: str) -> bytes:
        """A text as bytes."""
        return self._squeeze(text.encode())

    def unpack_text(self, data: bytes) -> str:
        """What `pack_text` packed."""
        return self._expand(data).decode()

    def _squeeze(self, data: bytes) -> bytes:
        return b"\0" + data if len(data) < _SMALL else b"\1" + self._compressor.compress(data)

    def _expand(self, data: bytes) -> bytes:
        return self._decompressor.decompress(data[1:]) if data.startswith(b"\1") else data[1:]


def open_trace(path: Path) -> sqlite3.Connection:
    """Open a trace file for reading. sqlite3.Error when it is none."""
    # Immutable: a file is whole when it gets its name, and is never changed after that.
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    try:
        marks = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if marks != [APPLICATION_ID, FORMAT]:
            raise sqlite3.DatabaseError(f"{path}: not a trace file of format {FORMAT}")
    except BaseException:
        db.close()
        raise
    return db
