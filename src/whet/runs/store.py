"""The store of one run: a single SQLite file `run.db` in the run folder, and the one thread that writes it."""

import asyncio
import fcntl
import json
import os
import queue
import sqlite3
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

import msgspec

from whet.errors import UserError
from whet.exchange import CallError, Exchange, Headers, Kind, Speaker, Usage
from whet.runs import schema
from whet.runs.blobs import Blobs, Bodies
from whet.runs.schema import AttemptRow, ResultRow, RolloutRow, SkillRow, TaskRow
from whet.scoring.score import Cause

DATABASE = "run.db"
LOCK = "run.lock"
EARLIER_RESULT = "result "
"""How the names of logs begin that hold what was made of an attempt before it was judged again."""

SMALL_BODY = 4096
"""A request with fewer bytes is kept whole."""

_BODIES = ("request", "sent")
_PACKED = ("response", "delivered", "arrivals")

T = TypeVar("T")


class Store:
    """One open run. It belongs to the thread that opened it.

    >>> with Store.create(Path("runs/first")) as store:
    ...     store.set("samples", 4)
    """

    def __init__(self, db: sqlite3.Connection, lock: int | None = None) -> None:
        """Not for callers: a store is made by `create`, `open_write` or `open_read`."""
        self._db = db
        self._lock = lock
        self._blobs = Blobs(db)

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make a new run in a folder, which is made when it is not there, and open it for writing."""
        path = folder / DATABASE
        with _locked(folder) as lock, _connected(path, "rwc") as db:
            if not schema.is_blank(db):
                raise UserError(f"{path}: there is a run already; expected a new folder")
            schema.begin_writing(db)
            return cls(db, lock)

    @classmethod
    def open_write(cls, folder: Path) -> Self:
        """Open an existing run for writing. One process at a time may do so."""
        path = _existing(folder)
        with _locked(folder) as lock, _connected(path, "rw") as db:
            if not schema.is_blank(db):
                schema.check_version(db, path, oldest=1)
            schema.begin_writing(db)
            return cls(db, lock)

    @classmethod
    def open_read(cls, folder: Path) -> Self:
        """Open a run for reading: finished, being written, or left behind by a killed process. Makes no file."""
        path = _existing(folder)
        with _connected(path, "ro") as db:
            schema.check_version(db, path, oldest=schema.VERSION)
            return cls(db)

    def close(self) -> None:
        """Close it, and let other processes write it."""
        if self._lock is not None:
            schema.end_writing(self._db)
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """All that is written within is committed together, or not at all. Nested, it is part of the outer one."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._blobs.forget()
            self._db.rollback()  # nothing is left to roll back when SQLite dropped it by itself, the disk being full
            raise

    def set(self, key: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        self._db.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, json.dumps(value)))

    def get(self, key: str) -> Any:
        """The JSON value under a name; None when there is none."""
        row = self._db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def add_tasks(self, tasks: Iterable[TaskRow]) -> None:
        """Add tasks; those that are there already stay as they are."""
        with self.atomic():
            self._db.executemany("INSERT OR IGNORE INTO task VALUES (?, ?, ?, ?)", map(astuple, tasks))

    def tasks(self) -> list[TaskRow]:
        """All tasks, in the order in which they were added."""
        return [TaskRow(*row) for row in self._db.execute("SELECT * FROM task ORDER BY rowid")]

    def add_skills(self, skills: Iterable[SkillRow]) -> None:
        """Add skills; those that are there already stay as they are."""
        with self.atomic():
            self._db.executemany(
                "INSERT OR IGNORE INTO skill VALUES (?, ?, ?)",
                ((skill.digest, skill.name, self._blobs.put_blob(skill.body)) for skill in skills),
            )

    def skills(self) -> list[SkillRow]:
        """All skills, in the order in which they were added."""
        rows = self._db.execute("SELECT digest, name, body FROM skill ORDER BY rowid").fetchall()
        return [SkillRow(digest, name, self._blobs.get_blob(body)) for digest, name, body in rows]

    def add_rollouts(self, rollouts: Iterable[RolloutRow]) -> None:
        """Add lines to the plan; those that are there already stay as they are."""
        with self.atomic():
            self._db.executemany("INSERT OR IGNORE INTO rollout VALUES (?, ?, ?, ?, ?, ?, ?)", map(astuple, rollouts))

    def rollouts(self) -> list[RolloutRow]:
        """The whole plan, in its order."""
        return [RolloutRow(*row) for row in self._db.execute("SELECT * FROM rollout ORDER BY ordinal")]

    def pending(self) -> list[RolloutRow]:
        """The rollouts that have no result yet, in the order of the plan."""
        rows = self._db.execute(
            """SELECT * FROM rollout
               WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.rollout = rollout.id AND final)
               ORDER BY ordinal"""
        )
        return [RolloutRow(*row) for row in rows]

    def start_attempt(self, rollout: str, started: float) -> int:
        """Note that an attempt at a rollout begins; its id."""
        row = self._db.execute(
            """INSERT INTO attempt (rollout, number, started)
               SELECT ?1, coalesce(max(number), 0) + 1, ?2 FROM attempt WHERE rollout = ?1""",
            (rollout, started),
        ).lastrowid
        assert row is not None
        return row

    def finish_attempt(
        self, attempt: int, result: bytes, *, value: float | None, cause: Cause | None, final: bool, ended: float
    ) -> None:
        """Note how an attempt ended: its result as JSON, and either a value or the cause of its absence."""
        with self.atomic():
            blob = self._blobs.put_blob(result)
            changed = self._db.execute(
                """UPDATE attempt SET result = ?, value = ?, cause = ?, final = ?, ended = ?
                   WHERE id = ? AND ended IS NULL""",
                (blob, value, cause, final, ended, attempt),
            ).rowcount
            if not changed:
                raise ValueError(f"attempt {attempt} is not under way")

    def replace_result(self, attempt: int, result: bytes, *, value: float | None, cause: Cause | None) -> int:
        """Note what else is made of an attempt that has ended. What was made of it before becomes a log; its number."""
        with self.atomic():
            ended = self._db.execute(
                "SELECT result FROM attempt WHERE id = ? AND result IS NOT NULL", (attempt,)
            ).fetchone()
            if ended is None:
                raise ValueError(f"attempt {attempt} has no result")
            (kept,) = self._db.execute(
                "SELECT count(*) FROM log WHERE attempt = ? AND name LIKE ?", (attempt, f"{EARLIER_RESULT}%")
            ).fetchone()
            name = f"{EARLIER_RESULT}{kept + 1}"
            self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (attempt, name, ended["result"]))
            self._db.execute(
                "UPDATE attempt SET result = ?, value = ?, cause = ?, final = max(final, ?) WHERE id = ?",
                (self._blobs.put_blob(result), value, cause, value is not None, attempt),
            )
            return int(kept) + 1

    def interrupt_open_attempts(self) -> int:
        """End the attempts that a killed process left open, at their last sign of life; how many there were.
        To be called before any attempt is started."""
        return self._db.execute(
            """UPDATE attempt SET cause = ?,
                 ended = max(started, coalesce((SELECT max(ended) FROM exchange WHERE attempt = attempt.id), started))
               WHERE ended IS NULL""",
            (Cause.INTERRUPTED,),
        ).rowcount

    def attempts_of(self, rollout: str) -> list[AttemptRow]:
        """All attempts at a rollout, in order."""
        return self._attempts("SELECT * FROM attempt WHERE rollout = ? ORDER BY number", rollout)

    def attempts_by_rollout(self) -> list[tuple[RolloutRow, list[AttemptRow]]]:
        """The whole plan in its order, each rollout with all its attempts in order."""
        attempts: dict[str, list[AttemptRow]] = {}
        for attempt in self._attempts("SELECT * FROM attempt ORDER BY number"):
            attempts.setdefault(attempt.rollout, []).append(attempt)
        return [(rollout, attempts.get(rollout.id, [])) for rollout in self.rollouts()]

    def results(self) -> list[ResultRow]:
        """All rollouts that are done, in the order of the plan."""
        return [
            ResultRow(rollout, attempt)
            for rollout, attempts in self.attempts_by_rollout()
            for attempt in attempts
            if attempt.final
        ]

    def add_exchange(self, attempt: int, exchange: Exchange) -> None:
        """Add one model call to an attempt."""
        usage = exchange.usage
        packed = self._blobs.packed
        tokens = (
            (None, None, None, None, None)
            if usage is None
            else (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
        )
        with self.atomic():
            values = (
                attempt,
                exchange.index,
                exchange.dialect,
                exchange.path,
                _json(exchange.request_headers),
                self._body(attempt, exchange.request),
                exchange.upstream,
                exchange.status,
                _json(exchange.response_headers),
                packed(exchange.response),
                exchange.attempts,
                exchange.error,
                exchange.started,
                exchange.first_byte,
                exchange.ended,
                *tokens,
                None if exchange.sent is None else self._body(attempt, exchange.sent),
                None if exchange.delivered is None else packed(exchange.delivered),
                _json(exchange.warnings),
                None if exchange.speaker is None else _json(exchange.speaker),
                packed(_flat(exchange.arrivals)),
                exchange.tokens,
            )
            self._db.execute(f"INSERT INTO exchange VALUES (NULL{', ?' * len(values)})", values)  # noqa: S608

    def _body(self, attempt: int, body: bytes) -> int | bytes:
        """What stands for a request body in its row. Small ones have too little in common to be cut into pieces."""
        return self._blobs.packed(body) if len(body) < SMALL_BODY else self._blobs.put_body(body, attempt)

    def exchanges(self, attempt: int) -> list[Exchange]:
        """All model calls of an attempt, in order of arrival, as they were given. The session is the attempt's id."""
        return list(self.each_exchange(attempt))

    def each_exchange(self, attempt: int) -> Iterator[Exchange]:
        """The same one after the other: a long conversation is then in memory once, not once for each of its calls."""
        # Up to the last one that is there now: a run that goes on adds more, whose bodies would not be known.
        (last,) = self._db.execute("SELECT coalesce(max(id), 0) FROM exchange WHERE attempt = ?", (attempt,)).fetchone()
        bodies = {key: self._bodies(attempt, key, last) for key in _BODIES}

        def read(key: str, value: int | bytes | None) -> bytes | None:
            if isinstance(value, int):
                return bodies[key].body(value)
            return None if value is None else self._blobs.unpacked(value)

        rows = self._db.execute("SELECT * FROM exchange WHERE attempt = ? AND id <= ? ORDER BY idx", (attempt, last))
        for row in rows:
            yield _exchange(row, {key: read(key, row[key]) for key in (*_BODIES, *_PACKED)})

    def _bodies(self, attempt: int, key: str, last: int) -> Bodies:
        nodes = self._db.execute(
            f"SELECT {key} FROM exchange WHERE attempt = ? AND id <= ? AND typeof({key}) = 'integer'",  # noqa: S608
            (attempt, last),
        )
        return self._blobs.bodies([node for (node,) in nodes])

    def usage(self, attempt: int) -> tuple[int, Usage]:
        """How many model calls an attempt made, and the tokens that they say they used."""
        sums = ", ".join(f"coalesce(sum({field.name}_tokens), 0)" for field in fields(Usage))
        calls, *tokens = self._db.execute(
            f"SELECT count(*), {sums} FROM exchange WHERE attempt = ? AND attempts > 0",  # noqa: S608 - our own names
            (attempt,),
        ).fetchone()
        return calls, Usage(*tokens)

    def add_log(self, attempt: int, name: str, data: bytes) -> None:
        """Keep a named log of an attempt."""
        with self.atomic():
            self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (attempt, name, self._blobs.put_blob(data)))

    def logs(self, attempt: int) -> dict[str, bytes]:
        """The logs of an attempt by name."""
        rows = self._db.execute("SELECT name, blob FROM log WHERE attempt = ? ORDER BY name", (attempt,)).fetchall()
        return {name: self._blobs.get_blob(blob) for name, blob in rows}

    def _attempts(self, query: str, *values: object) -> list[AttemptRow]:
        rows = self._db.execute(query, values).fetchall()
        results = self._blobs.get_blobs({row["result"] for row in rows if row["result"] is not None})
        return [_attempt(row, results.get(row["result"])) for row in rows]


@dataclass(frozen=True, slots=True)
class _Request(Generic[T]):
    work: Callable[[Store], T]
    done: "asyncio.Future[T]"


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    """What is told to whoever asked, once it is committed."""

    request: _Request[T]
    result: T | None = None
    error: Exception | None = None

    def tell(self) -> None:
        done = self.request.done
        if done.done():  # the caller was cancelled meanwhile
            return
        if self.error is None:
            done.set_result(self.result)  # type: ignore[arg-type] # T may be None
        else:
            done.set_exception(self.error)


class StoreWriter:
    """Writes a run from an event loop. One thread owns the store; what is asked for while it is busy is committed
    together in its next transaction.

    >>> async with StoreWriter(folder) as writer:
    ...     attempt = await writer.do(lambda store: store.start_attempt("r1", time.time()))
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: deque[_Request[Any]] = deque()
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Calls the thread to work: once for all that waits, and not while it is at work. False is the last."""
        self._at_work = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._opened, self._closed = self._loop.create_future(), self._loop.create_future()
        # Not a daemon: what was asked for is written even when nobody waits for it any more.
        threading.Thread(target=self._serve, name="whet-store", daemon=False).start()
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            self._calls.put(False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        # All that was asked for is written first, even if this is cancelled.
        self._calls.put(False)
        await asyncio.shield(self._closed)

    async def do(self, work: Callable[[Store], T]) -> T:
        """Run `work` in the writer's thread, all or nothing; return when it is committed. It is done even if the
        caller is cancelled meanwhile. It may run twice (only the last time counts), so it should only use the store.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Request(work, done))
        self._call()
        return await done

    def _call(self) -> None:
        """Have the thread write all that waits. What comes while it is at work waits for the next call, so that a busy
        loop and the thread seldom stand in each other's way."""
        if self._waiting and not self._at_work:
            self._at_work = True
            self._calls.put(True)

    def _serve(self) -> None:
        """The thread: open the store, write whatever is asked for, close it."""
        try:
            store = Store.open_write(self._folder)
        except Exception as error:  # noqa: BLE001 - handed to whoever opens
            self._in_loop(_Outcome(_Request(_nothing, self._opened), error=error).tell)
            return
        self._in_loop(_Outcome(_Request(_nothing, self._opened)).tell)
        failure: Exception | None = None
        try:
            with store:
                while batch := self._batch():
                    self._in_loop(self._tell, _committed(store, batch))
        except Exception as error:  # noqa: BLE001 - handed to whoever closes
            failure = error
        self._in_loop(_Outcome(_Request(_nothing, self._closed), error=failure).tell)

    def _batch(self) -> list[_Request[Any]]:
        """All that waits, as soon as the thread is called; empty when nothing will follow."""
        goes_on = self._calls.get()
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not goes_on and batch:
            self._calls.put(False)
        # Called for what an earlier call has brought already, it waits for the next one.
        return batch or (self._batch() if goes_on else [])

    def _tell(self, outcomes: "list[_Outcome[Any]]") -> None:
        """In the loop: say what came of a batch."""
        self._at_work = False
        for outcome in outcomes:
            outcome.tell()
        self._call()

    def _in_loop(self, what: Callable[..., None], *values: object) -> None:
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *values)


def _nothing(store: Store) -> None: ...


def _committed(store: Store, batch: list[_Request[Any]]) -> "list[_Outcome[Any]]":
    """Run the requests in one transaction; when that fails, each in its own, so that the one that fails fails alone."""
    try:
        with store.atomic():
            return [_Outcome(request, request.work(store)) for request in batch]
    except Exception as error:  # noqa: BLE001 - handed to whoever asked
        if len(batch) == 1:
            return [_Outcome(batch[0], error=error)]
        return [outcome for request in batch for outcome in _committed(store, [request])]


def _existing(folder: Path) -> Path:
    path = folder / DATABASE
    if not path.is_file():
        raise UserError(f"{folder}: expected a run folder, with a file {DATABASE} in it")
    return path


@contextmanager
def _connected(path: Path, mode: Literal["ro", "rw", "rwc"]) -> Iterator[sqlite3.Connection]:
    """A connection that is closed again when its set-up fails."""
    db = schema.connect(path, mode)
    try:
        yield db
    except BaseException:
        db.close()
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """The right to write a run, given back when the set-up fails or the file descriptor is closed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"{folder}: expected a folder that can be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    except BlockingIOError as error:
        os.close(lock)
        raise UserError(f"run {folder} is being written by another process") from error
    except BaseException:
        os.close(lock)
        raise


def _attempt(row: sqlite3.Row, result: bytes | None) -> AttemptRow:
    return AttemptRow(
        id=row["id"],
        rollout=row["rollout"],
        number=row["number"],
        started=row["started"],
        ended=row["ended"],
        value=row["value"],
        cause=None if row["cause"] is None else Cause(row["cause"]),
        final=bool(row["final"]),
        result=result,
    )


def _exchange(row: sqlite3.Row, data: Mapping[str, Any]) -> Exchange:
    tokens = [row[f"{field.name}_tokens"] for field in fields(Usage)]
    return Exchange(
        session=str(row["attempt"]),
        index=row["idx"],
        dialect=row["dialect"],
        path=row["path"],
        request_headers=_headers(row["request_headers"]),
        request=data["request"],
        upstream=row["upstream"],
        status=row["status"],
        response_headers=_headers(row["response_headers"]),
        response=data["response"],
        attempts=row["attempts"],
        error=None if row["error"] is None else CallError(row["error"]),
        started=row["started"],
        first_byte=row["first_byte"],
        ended=row["ended"],
        usage=None if None in tokens else Usage(*tokens),
        sent=data["sent"],
        delivered=data["delivered"],
        warnings=tuple(json.loads(row["warnings"])),
        speaker=None if row["speaker"] is None else _speaker(row["speaker"]),
        arrivals=_arrivals(data["arrivals"]),
        tokens=row["tokens"],
    )


def _speaker(text: str) -> Speaker:
    told = json.loads(text)
    return Speaker(Kind(told.pop("kind")), **told)


def _flat(arrivals: Iterable[tuple[float, int]]) -> bytes:
    """Arrivals in microseconds and bytes, as differences: small numbers, which compress well."""
    flat = array("Q")
    micros, total = 0, 0
    for seconds, size in arrivals:
        now = round(seconds * 1e6)
        flat.extend((now - micros, size - total))
        micros, total = now, size
    return flat.tobytes()


def _arrivals(data: bytes) -> tuple[tuple[float, int], ...]:
    flat = array("Q", data)
    times, sizes = accumulate(flat[::2]), accumulate(flat[1::2])
    return tuple((micros / 1e6, size) for micros, size in zip(times, sizes, strict=True))


def _json(value: Any) -> str:
    try:
        # Names of headers may be of aiohttp's own kind of string.
        return msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:  # what is no text in a header became lone surrogates, which only escapes can hold
        return json.dumps(msgspec.to_builtins(value, enc_hook=str))


def _headers(text: str) -> Headers:
    return tuple((name, value) for name, value in json.loads(text))
