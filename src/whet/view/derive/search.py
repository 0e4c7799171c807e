"""The full text of a run: a file in the cache in which each message is kept once, with the steps that show it.

The worker adds attempts to it; the server reads it meanwhile.
"""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from whet.trace.steps.steps import Step
from whet.view.derive.step_rows import whole_steps
from whet.view.derive.trace_schema import Packer
from whet.view.derive.words import cut_around, words_pattern, words_query

FORMAT = 1
"""Of these files. A file of another format is made anew."""
APPLICATION_ID = int.from_bytes(b"whts", "big")
MOST_BYTES = 512 << 20
"""A file that has grown this large takes no more attempts."""
MOST_PER_ROLLOUT = 3
"""Hits that are shown of one rollout."""
FIND_SEC = 1.0
"""How long one search may look."""
_INSTRUCTIONS = 10_000
"""Of SQLite's machine, between two looks at the clock."""
_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE attempt (id INTEGER PRIMARY KEY, exchanges INTEGER NOT NULL);
CREATE TABLE message (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL);
CREATE TABLE place (
  message INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, PRIMARY KEY (message, attempt, step)
) WITHOUT ROWID;
CREATE INDEX place_attempt ON place (attempt);
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize='unicode61 remove_diacritics 0');
"""
_FIND = f"""
WITH found AS (
  SELECT place.attempt, place.step, place.message,
         row_number() OVER (PARTITION BY place.attempt ORDER BY place.step) AS nth,
         count(*) OVER (PARTITION BY place.attempt) AS steps
  FROM words JOIN place ON place.message = words.rowid
  WHERE words MATCH ? AND place.attempt IN (SELECT value FROM json_each(?))
)
SELECT attempt, step, steps, message.data FROM found JOIN message ON message.id = found.message
WHERE nth <= {MOST_PER_ROLLOUT} ORDER BY attempt DESC, step LIMIT ?
"""  # noqa: S608 - a number of ours


@dataclass(frozen=True, slots=True)
class AttemptHit:
    """A step of an attempt that holds a text."""

    attempt: int
    step: int
    steps: int
    """How many steps of the attempt hold it."""
    before: str
    hit: str
    """Empty when the place is not known to the character."""
    after: str


class SearchWriter:
    """Adds attempts to the full text of a run. It belongs to one thread."""

    def __init__(self, path: Path) -> None:
        """OSError or sqlite3.Error when it cannot be written. A file that is not one of these is made anew."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        if not _is_search(path):
            delete_search(path)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        self._path = path
        self._packer = Packer()
        self._db = sqlite3.connect(path, isolation_level=None)
        # Nothing of it must survive a crash of the machine: it can be made again.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")
        if not self._db.execute("PRAGMA user_version").fetchone()[0]:
            self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def is_full(self) -> bool:
        """Whether it takes no more attempts."""
        return self._path.stat().st_size >= MOST_BYTES

    def add(self, attempt: int, exchanges: int, steps: Iterable[Step]) -> None:
        """Add the steps of an attempt in place of what is known of it."""
        self._db.execute("BEGIN")
        try:
            self._db.execute("DELETE FROM place WHERE attempt = ?", (attempt,))
            for whole in whole_steps(steps):
                row = (self._message(whole.text), attempt, whole.step.number)
                self._db.execute("INSERT INTO place VALUES (?, ?, ?)", row)
            self._db.execute("INSERT OR REPLACE INTO attempt VALUES (?, ?)", (attempt, exchanges))
            self._db.execute("COMMIT")
        except BaseException:
            self._db.rollback()
            raise

    def _message(self, text: str) -> int:
        """The id of a message, which is added when it is new."""
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        known = self._db.execute("SELECT id FROM message WHERE digest = ?", (digest,)).fetchone()
        if known is not None:
            return int(known[0])
        packed = self._packer.pack_text(text)
        new = self._db.execute("INSERT INTO message (digest, data) VALUES (?, ?)", (digest, packed)).lastrowid
        assert new is not None
        self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (new, text))
        return new


def find_missing(path: Path | None, attempts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Of these attempts and their numbers of model calls, those that are not in the file yet. sqlite3.Error when it is
    damaged."""
    if path is None:
        return tuple(attempts)
    with _open(path) as db:
        known = dict(db.execute("SELECT id, exchanges FROM attempt"))
    return tuple((attempt, exchanges) for attempt, exchanges in attempts if known.get(attempt) != exchanges)


def find_text(path: Path, attempts: Iterable[int], text: str, limit: int) -> tuple[tuple[AttemptHit, ...], bool]:
    """The steps of these attempts that hold all words of a text, the newest attempts first; and whether these are all.
    sqlite3.Error when the file is damaged, TimeoutError when it takes too long."""
    query, pattern = words_query(text), words_pattern(text)
    if query is None or pattern is None:
        return (), True
    packer, until = Packer(), time.monotonic() + FIND_SEC
    with _open(path) as db:
        db.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
        try:
            rows = db.execute(_FIND, (query, json.dumps(list(attempts)), limit + 1)).fetchall()
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            raise TimeoutError(f"the search takes more than {FIND_SEC:.0f} s; look for a rarer word") from error
    hits = []
    for attempt, step, steps, data in rows[:limit]:
        whole = packer.unpack_text(data)
        found = pattern.search(whole)
        around = cut_around(whole, *found.span()) if found else ("", "", cut_around(whole, 0, 0)[2])
        hits.append(AttemptHit(attempt, step, steps, *around))
    return tuple(hits), len(rows) <= limit


def delete_search(path: Path) -> None:
    """Delete the full text of a run."""
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        file.unlink(missing_ok=True)


def _is_search(path: Path) -> bool:
    """Whether a file is empty or a full text of this format."""
    if not path.stat().st_size:
        return True
    try:
        with _open(path):
            return True
    except sqlite3.Error:
        return False


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        marks = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if marks != [APPLICATION_ID, FORMAT]:
            raise sqlite3.DatabaseError(f"{path}: not a full text of format {FORMAT}")
        yield db
