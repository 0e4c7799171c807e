"""Opens a SQLite database of another program and leaves it, its log and its index as they are.

SQLite itself does not: a read-only connection creates the log and the index where they are missing, and an ordinary one
merges the log into the database and deletes it.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from whet.errors import UserError

BUSY_MS = 5000
COPY_ATTEMPTS = 3


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection with one read transaction. UserError if the file is no database, or cannot be read now."""
    try:
        with _connect(path) as connection:
            yield connection
    except sqlite3.Error as error:
        raise UserError(f"cannot read the database {path}: {error}") from error


def needs_copy(path: Path) -> bool:
    """Whether a database has a log but not the index that is needed to read it."""
    return _has_log(path) and not _beside(path, "-shm").exists()


def _connect(path: Path) -> AbstractContextManager[sqlite3.Connection]:
    if needs_copy(path):
        return _begin_on_copy(path, _beside(path, "-wal"))
    return _begin(path, "mode=ro&readonly_shm=1" if _has_log(path) else "mode=ro&immutable=1")


@contextmanager
def _begin(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # opens the files
        yield connection


@contextmanager
def _begin_on_copy(path: Path, log: Path) -> Iterator[sqlite3.Connection]:
    """Read a private copy. SQLite would create the index: it cannot in a home that is read-only, and must not in
    another."""
    with tempfile.TemporaryDirectory(prefix="whet-") as folder:
        copy = _copy(path, log, Path(folder))
        with _begin(copy, "mode=ro") as connection:
            # The copy holds credentials. Without its name, not even a kill leaves it behind.
            for file in Path(folder).iterdir():
                file.unlink()
            yield connection


def _copy(path: Path, log: Path, folder: Path) -> Path:
    for _ in range(COPY_ATTEMPTS):
        before = _state(path, log)
        copies = [Path(shutil.copyfile(file, folder / file.name)) for file in (path, log)]
        if _state(path, log) == before:
            return copies[0]
    raise UserError(f"cannot read the database {path}: it changes all the time; try again when its program is closed")


def _state(*paths: Path) -> list[tuple[int, int]]:
    return [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


def _has_log(path: Path) -> bool:
    log = _beside(path, "-wal")
    return log.exists() and log.stat().st_size > 0


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
