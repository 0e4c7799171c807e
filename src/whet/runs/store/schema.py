"""The tables of a run's database and their rows; how they are opened, and brought up to date from earlier versions."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from whet.errors import UserError
from whet.scoring.score import Cause

APPLICATION_ID = int.from_bytes(b"whet", "big")
"""Marks an SQLite file as a run of whet."""

BUSY_SEC = 10.0
"""How long a connection waits while another one opens or closes the run."""

LARGEST_VALUE = 512 << 20
"""Bytes of the largest value that is read from a database, or written to it."""

_FIRST = f"""
PRAGMA application_id = {APPLICATION_ID};

CREATE TABLE blob (
  id INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  data BLOB NOT NULL
);

-- A body is a list of pieces; a row is its last piece, and `parent` is the list before it. Bodies that begin
-- alike share rows. `prefix` is the hash of the `prefix` of the parent, if any, and the `hash` of the blob. Earlier
-- versions of whet wrote the hash of all bytes up to the end of the piece; nothing but the sharing depends on it.
CREATE TABLE piece (
  id INTEGER PRIMARY KEY,
  parent INTEGER REFERENCES piece,
  blob INTEGER NOT NULL REFERENCES blob,
  prefix BLOB NOT NULL UNIQUE
);

CREATE TABLE run (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE task (
  id TEXT PRIMARY KEY,
  digest TEXT NOT NULL,
  origin TEXT NOT NULL,
  spec TEXT NOT NULL
);

CREATE TABLE skill (
  digest TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  body INTEGER NOT NULL REFERENCES blob
);

CREATE TABLE rollout (
  id TEXT PRIMARY KEY,
  ordinal INTEGER NOT NULL,
  task TEXT NOT NULL REFERENCES task,
  agent TEXT NOT NULL,
  model TEXT NOT NULL,
  skill TEXT NOT NULL,
  sample INTEGER NOT NULL,
  UNIQUE (task, agent, model, skill, sample)
);

-- An attempt that has ended has a value or the cause of its absence, never both and never neither.
CREATE TABLE attempt (
  id INTEGER PRIMARY KEY,
  rollout TEXT NOT NULL REFERENCES rollout,
  number INTEGER NOT NULL,
  started REAL NOT NULL,
  ended REAL,
  value REAL CHECK (value BETWEEN 0 AND 1),
  cause TEXT,
  final INTEGER NOT NULL DEFAULT 0 CHECK (final IN (0, 1)),
  result INTEGER REFERENCES blob,
  UNIQUE (rollout, number),
  CHECK (CASE WHEN ended IS NULL THEN value IS NULL AND cause IS NULL AND NOT final
         ELSE (value IS NULL) <> (cause IS NULL) END)
);
CREATE UNIQUE INDEX attempt_final ON attempt (rollout) WHERE final;

-- A small request is in its row, compressed as `response` is; a larger one is the id of its last piece.
CREATE TABLE exchange (
  id INTEGER PRIMARY KEY,
  attempt INTEGER NOT NULL REFERENCES attempt,
  idx INTEGER NOT NULL,
  dialect TEXT NOT NULL,
  path TEXT NOT NULL,
  request_headers TEXT NOT NULL,
  request NOT NULL,
  upstream TEXT NOT NULL,
  status INTEGER,
  response_headers TEXT NOT NULL,
  response BLOB NOT NULL,
  attempts INTEGER NOT NULL,
  error TEXT,
  started REAL NOT NULL,
  first_byte REAL,
  ended REAL NOT NULL,
  input_tokens INTEGER,
  output_tokens INTEGER,
  cache_read_tokens INTEGER,
  cache_write_tokens INTEGER,
  reasoning_tokens INTEGER,
  sent,
  delivered BLOB,
  warnings TEXT NOT NULL,
  speaker TEXT,
  arrivals BLOB NOT NULL,
  tokens TEXT,
  UNIQUE (attempt, idx)
);

CREATE TABLE log (
  attempt INTEGER NOT NULL REFERENCES attempt,
  name TEXT NOT NULL,
  blob INTEGER NOT NULL REFERENCES blob,
  PRIMARY KEY (attempt, name)
) WITHOUT ROWID;
"""

# The ids of a prompt, which a reply repeats, are taken out of it at this place and kept in pieces.
_PROMPT_IDS = """
ALTER TABLE exchange ADD COLUMN prompt_ids INTEGER REFERENCES piece;
ALTER TABLE exchange ADD COLUMN prompt_ids_at INTEGER;
"""

# What clients of `whet serve` requested, what became of their rollouts, and the log of the weights of its models. A
# request's body is JSON without keys; `terms` are the small parts of it that views need. A rollout is done when it has
# an outcome. In `policy`, `addresses` are those that served the version; `given` is JSON of what the update itself
# named. An update that is repeated for other addresses has the same number.
_SERVED = """
CREATE TABLE request (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  key TEXT,
  digest TEXT NOT NULL,
  created REAL NOT NULL,
  priority INTEGER NOT NULL,
  terms TEXT NOT NULL,
  body INTEGER NOT NULL REFERENCES blob,
  UNIQUE (owner, key)
);
CREATE INDEX request_owner ON request (owner);

CREATE TABLE served (
  rollout TEXT PRIMARY KEY REFERENCES rollout,
  request TEXT NOT NULL REFERENCES request,
  place INTEGER NOT NULL,
  ended REAL,
  outcome TEXT,
  cause TEXT,
  reason TEXT NOT NULL,
  UNIQUE (request, place),
  CHECK ((ended IS NULL) = (outcome IS NULL))
);
CREATE INDEX served_open ON served (rollout) WHERE outcome IS NULL;

CREATE TABLE policy (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  number INTEGER NOT NULL,
  version TEXT NOT NULL,
  at REAL NOT NULL,
  addresses TEXT NOT NULL,
  given TEXT NOT NULL
);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _PROMPT_IDS, _SERVED)
"""Script n brings a database from version n to version n + 1. What has been released is never changed."""

VERSION = len(MIGRATIONS)
OLDEST_READ = 2
"""The oldest version that is read as it is. It has all but what `whet serve` keeps."""
SERVED_SINCE = 3
"""The version from which on a database has the tables of `whet serve`."""


def values_of(row: Any) -> tuple[object, ...]:
    """The fields of a row in their order, as `dataclasses.astuple` gives them, but without copies of them."""
    return tuple(getattr(row, field.name) for field in fields(row))


class DamagedError(ValueError):
    """Something that is stored is not as it was written."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of the run, as it was when the run began."""

    id: str
    digest: str
    origin: str
    spec: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class SkillRow:
    """A skill that rollouts of the run carry."""

    digest: str
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One line of the plan."""

    id: str
    ordinal: int
    """Its place in the plan."""
    task: str
    agent: str
    model: str
    skill: str | None
    """Digest of the skill; None without one. The column holds an empty text then."""
    sample: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One try at a rollout. A failed one stays, with its exchanges and logs."""

    id: int
    rollout: str
    number: int
    """Counts the attempts of a rollout from 1."""
    started: float
    ended: float | None
    """None while it runs, or when the process that ran it was killed."""
    value: float | None
    cause: Cause | None
    final: bool
    """Its result is the rollout's result."""
    result: int | None
    """Where its result is stored; `Store.result_body` reads it."""

    @property
    def is_superseded(self) -> bool:
        """Whether its score no longer counts, because the rollout is run again."""
        return self.value is not None and not self.final


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A rollout that is done, with its final attempt."""

    rollout: RolloutRow
    attempt: AttemptRow


Row = TypeVar("Row", TaskRow, RolloutRow, AttemptRow)


def check_types(row: Row) -> Row:
    """A row whose values have the types of its fields: SQLite itself keeps anything anywhere. DamagedError if not."""
    for field in fields(row):
        value = getattr(row, field.name)
        if not isinstance(value, field.type):  # type: ignore[arg-type] # types and unions of them, never text
            raise DamagedError(f"{field.name} of a row is {type(value).__name__}; expected {field.type}")
    return row


def version_of(db: sqlite3.Connection) -> int:
    """The schema version of an open database; 0 when it is new."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Apply the scripts that the database lacks, in order: all of them or none."""
    missing = migrations[version_of(db) :]
    if not missing:
        return
    try:
        # executescript commits whatever is open before it starts, so the transaction is part of the script.
        db.executescript(f"BEGIN IMMEDIATE; {';'.join(missing)}; PRAGMA user_version = {len(migrations)}; COMMIT")
    except sqlite3.Error:
        db.rollback()
        raise


def connect(path: Path, mode: Literal["ro", "rw", "rwc"]) -> sqlite3.Connection:
    """Open a database file in autocommit mode; UserError when it is none."""
    try:
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SEC, isolation_level=None
        )
    except sqlite3.Error as error:
        raise UserError(f"{path}: cannot be opened: {error}") from error
    db.row_factory = sqlite3.Row
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    try:
        version_of(db)  # opening reads nothing; this does
    except sqlite3.Error as error:
        db.close()
        raise UserError(f"{path}: expected the database of a run of whet: {error}") from error
    return db


def is_blank(db: sqlite3.Connection) -> bool:
    """Whether the database holds nothing: what a process leaves that was killed while it created the run."""
    return not version_of(db) and not db.execute("SELECT 1 FROM sqlite_master").fetchone()


def check_version(db: sqlite3.Connection, path: Path, oldest: int) -> None:
    """UserError unless this is a run of whet, of a version between `oldest` and the one of this file."""
    found = version_of(db)
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID or not found:
        raise UserError(f"{path}: expected a run of whet; this is some other database")
    if found > VERSION:
        raise UserError(f"{path}: the run has version {found}, this whet knows {VERSION}; use a newer whet")
    if found < oldest:
        raise UserError(f"{path}: the run has version {found}, this whet reads {oldest}; resume it once to convert it")
    try:
        check_tables(db, path)
    except sqlite3.DatabaseError as error:
        raise UserError(f"{path}: the run is damaged: {error}") from error


def check_tables(db: sqlite3.Connection, path: Path) -> None:
    """UserError unless the database has the tables of its version and nothing else: a view or a trigger in a file of
    a stranger could run forever."""
    expected, found = _tables(version_of(db)), _tables_of(db)
    if found != expected:
        name = min(name for _, name, _ in found ^ expected)
        raise UserError(f"{path}: the run is damaged: '{name}' is not as whet makes it")


@cache
def _tables(version: int) -> frozenset[tuple[str, str, str]]:
    db = sqlite3.connect(":memory:")
    with closing(db):
        migrate(db, MIGRATIONS[:version])
        return _tables_of(db)


def _tables_of(db: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    rows = db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return frozenset((kind, name, sql) for kind, name, sql in rows)


def begin_writing(db: sqlite3.Connection) -> None:
    """Set a connection up as the one that writes, and bring the tables up to date."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA foreign_keys = ON")
    migrate(db)


def end_writing(db: sqlite3.Connection) -> None:
    """Fold SQLite's companion files into the one file, so that readers need not make them anew."""
    # A reader that is still connected refuses this; then the companion files stay for it, and for the next writer.
    with suppress(sqlite3.OperationalError):
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("PRAGMA journal_mode = DELETE")
