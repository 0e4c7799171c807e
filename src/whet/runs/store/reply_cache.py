"""The cache of model replies: one SQLite file for all runs of a user, and the one thread that reads and writes it."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import zstandard

from whet.errors import UserError
from whet.gateway.replay.cache import CachedReply
from whet.paths import user_cache

FILE = "cache.db"
VERSION = 1
BUSY_SEC = 10.0
"""How long to wait while another process writes."""

T = TypeVar("T")


class CacheUse(StrEnum):
    """What a run does with the cache."""

    OFF = "off"
    READ = "read"
    """Replies that are there are replayed. The model is asked for all others, which are not kept."""
    WRITE = "write"
    """Like `read`, and the model's good replies are kept."""
    REPLAY_ONLY = "replay-only"
    """Replies that are there are replayed. Any other call fails."""


def cache_use(name: str) -> CacheUse:
    """The use of this name."""
    try:
        return CacheUse(name)
    except ValueError as error:
        raise UserError(f"`cache` is '{name}'; expected one of: {', '.join(CacheUse)}") from error


def cache_file(env: Mapping[str, str]) -> Path:
    """Where the cache of this user is.

    >>> str(cache_file({"XDG_CACHE_HOME": "/var/cache/me"}))
    '/var/cache/me/whet/cache.db'
    """
    return user_cache(env) / FILE


@asynccontextmanager
async def open_cache(use: CacheUse, env: Mapping[str, str]) -> AsyncIterator["SqliteCache | None"]:
    """The cache of this user, as long as the context lasts; None when it is not used."""
    if use is CacheUse.OFF:
        yield None
        return
    path = cache_file(env)
    if use is CacheUse.REPLAY_ONLY and not path.is_file():
        raise UserError(f"{path}: there are no replies to replay; expected a run with `cache` 'write' before")
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="whet-cache")
    try:
        db = await asyncio.wrap_future(thread.submit(_open_database, path))
        try:
            cache = SqliteCache(path, db, thread, use)
            if use is CacheUse.REPLAY_ONLY and await cache.is_empty():
                raise UserError(f"{path}: there are no replies to replay; expected a run with `cache` 'write' before")
            yield cache
        finally:
            # The thread works in order of arrival, so all that was put is written first.
            await asyncio.shield(asyncio.wrap_future(thread.submit(db.close)))
    finally:
        thread.shutdown(wait=False)


class SqliteCache:
    """An open cache. `open_cache` makes it."""

    def __init__(self, path: Path, db: sqlite3.Connection, thread: ThreadPoolExecutor, use: CacheUse) -> None:
        self._path = path
        self._db = db
        self._thread = thread
        self._use = use

    @property
    def replay_only(self) -> bool:
        """Whether a call fails that has no reply here."""
        return self._use is CacheUse.REPLAY_ONLY

    async def is_empty(self) -> bool:
        return await self._do(lambda: self._db.execute("SELECT 1 FROM reply").fetchone() is None)

    async def get(self, key: str) -> CachedReply | None:
        """The reply under this key; None when there is none."""
        return await self._do(lambda: _get(self._db, key))

    async def put(self, key: str, reply: CachedReply) -> None:
        """Keep a reply, if this cache is to be added to. What is there already stays."""
        if self._use is CacheUse.WRITE:
            await self._do(lambda: _put(self._db, key, reply))

    async def _do(self, work: Callable[[], T]) -> T:
        with _explain_errors(self._path):
            return await asyncio.wrap_future(self._thread.submit(work))


def _get(db: sqlite3.Connection, key: str) -> CachedReply | None:
    row = db.execute("SELECT status, headers, body FROM reply WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    status, headers, body = row
    return CachedReply(status, tuple((name, value) for name, value in json.loads(headers)), zstandard.decompress(body))


def _put(db: sqlite3.Connection, key: str, reply: CachedReply) -> None:
    db.execute(
        "INSERT OR IGNORE INTO reply VALUES (?, ?, ?, ?)",
        (key, reply.status, json.dumps(reply.headers), zstandard.compress(reply.body)),
    )


def _open_database(path: Path) -> sqlite3.Connection:
    with _explain_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=BUSY_SEC, isolation_level=None)
        try:
            _prepare(path, db)
        except BaseException:
            db.close()
            raise
        return db


def _prepare(path: Path, db: sqlite3.Connection) -> None:
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        raise UserError(f"{path}: the cache has version {found}, this whet knows {VERSION}; use a newer whet")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(
        """CREATE TABLE IF NOT EXISTS reply (
             key TEXT PRIMARY KEY, status INTEGER NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL
           )"""
    )
    db.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, or a file that is not a cache, into a UserError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise UserError(f"{path}: the cache of replies cannot be used: {error}; repair or remove the file") from error
