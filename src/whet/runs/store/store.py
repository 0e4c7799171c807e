"""The store of one run: a single SQLite file `run.db` in the run folder."""

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from whet.errors import UserError
from whet.exchange import Exchange, Usage
from whet.runs.store import exchanges, schema
from whet.runs.store.blobs import Blobs
from whet.runs.store.exchanges import ExchangeHead
from whet.runs.store.lock import lock_run
from whet.runs.store.schema import AttemptRow, ResultRow, RolloutRow, SkillRow, TaskRow, values_of
from whet.runs.store.served import PolicyRow, ServedTables
from whet.scoring.score import Cause

DATABASE = "run.db"
EARLIER_RESULT = "result "
"""How the names of logs begin that hold what was made of an attempt before it was judged again."""
PLAN_SEPARATOR = "\n"
"""Between two ids in the mark of a plan."""
AttemptMark = tuple[int, float | None, int, int | None]
"""An attempt's id, and what changes when it ends, no longer counts or is judged again: its end, whether it is final,
and where its result is stored."""


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
        self.served = ServedTables(db, self._blobs)
        """What `whet serve` keeps."""

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make a new run in a folder, which is made when it is not there, and open it for writing."""
        path = folder / DATABASE
        with lock_run(folder) as lock, _connect(path, "rwc") as db:
            if not schema.is_blank(db):
                raise UserError(f"{path}: there is a run already; expected a new folder")
            schema.begin_writing(db)
            return cls(db, lock)

    @classmethod
    def open_write(cls, folder: Path) -> Self:
        """Open an existing run for writing. One process at a time may do so."""
        path = _find_database(folder)
        with lock_run(folder) as lock, _connect(path, "rw") as db:
            if not schema.is_blank(db):
                schema.check_version(db, path, oldest=1)
            schema.begin_writing(db)
            return cls(db, lock)

    @classmethod
    def open_read(cls, folder: Path) -> Self:
        """Open a run for reading: finished, being written, or left behind by a killed process. Makes no file."""
        path = _find_database(folder)
        with _connect(path, "ro") as db:
            schema.check_version(db, path, oldest=schema.OLDEST_READ)
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

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """UserError when something within failed because the file is damaged."""
        try:
            if isinstance(error, Exception) and not isinstance(error, UserError):
                self._explain(error)
        finally:
            self.close()

    def _explain(self, error: Exception) -> None:
        from whet.runs.store.damage import find_damage

        if self._lock is not None and isinstance(error, sqlite3.OperationalError):
            return  # the disk is full, or fails
        damage = find_damage(self, self._db)
        if damage is not None:
            (path,) = (row["file"] for row in self._db.execute("PRAGMA database_list") if row["name"] == "main")
            raise UserError(f"{path}: the run is damaged: {damage}") from error

    def atomic(self) -> AbstractContextManager[None]:
        """All that is written within is committed together, or not at all. Nested, it is part of the outer one."""
        return nullcontext() if self._db.in_transaction else self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
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
            self._db.executemany("INSERT OR IGNORE INTO task VALUES (?, ?, ?, ?)", map(values_of, tasks))

    def tasks(self) -> list[TaskRow]:
        """All tasks, in the order in which they were added."""
        return [schema.check_types(TaskRow(*row)) for row in self._db.execute("SELECT * FROM task ORDER BY rowid")]

    def task(self, name: str) -> TaskRow:
        """One task. KeyError when there is none with this id."""
        row = self._db.execute("SELECT * FROM task WHERE id = ?", (name,)).fetchone()
        if row is None:
            raise KeyError(name)
        return schema.check_types(TaskRow(*row))

    def change_task(self, task: TaskRow, renamed: Mapping[str, str]) -> None:
        """Replace a task by one that is judged otherwise. `renamed`: the new ids of its rollouts."""
        with self.atomic():
            self._db.execute("PRAGMA defer_foreign_keys = ON")
            new = [(new, old) for old, new in renamed.items()]
            self._db.executemany("UPDATE rollout SET id = ? WHERE id = ?", new)
            self._db.executemany("UPDATE attempt SET rollout = ? WHERE rollout = ?", new)
            self._db.executemany("UPDATE served SET rollout = ? WHERE rollout = ?", new)
            self._db.execute(
                "UPDATE task SET digest = ?, origin = ?, spec = ? WHERE id = ?",
                (task.digest, task.origin, task.spec, task.id),
            )

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
            self._db.executemany("INSERT OR IGNORE INTO rollout VALUES (?, ?, ?, ?, ?, ?, ?)", map(_values, rollouts))

    def rollouts(self) -> list[RolloutRow]:
        """The whole plan, in its order."""
        return [_rollout(row) for row in self._db.execute("SELECT * FROM rollout ORDER BY ordinal")]

    def pending(self) -> list[RolloutRow]:
        """The rollouts that have no result yet, in the order of the plan."""
        rows = self._db.execute(
            """SELECT * FROM rollout
               WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.rollout = rollout.id AND final)
               ORDER BY ordinal"""
        )
        return [_rollout(row) for row in rows]

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

    def reopen(self, rollouts: Iterable[str]) -> None:
        """Let rollouts that are done be attempted again. Their attempts stay on record and no longer count."""
        with self.atomic():
            self._db.executemany("UPDATE attempt SET final = 0 WHERE rollout = ?", [(one,) for one in rollouts])

    def interrupt_open_attempts(self, rollout: str | None = None) -> int:
        """End the attempts that a killed process left open, at their last sign of life; how many there were.
        To be called before any attempt is started; or for one rollout, when its attempt was cancelled."""
        return self._db.execute(
            """UPDATE attempt SET cause = ?1,
                 ended = max(started, coalesce((SELECT max(ended) FROM exchange WHERE attempt = attempt.id), started))
               WHERE ended IS NULL AND (?2 IS NULL OR rollout = ?2)""",
            (Cause.INTERRUPTED, rollout),
        ).rowcount

    def attempts_of(self, rollout: str) -> list[AttemptRow]:
        """All attempts at a rollout, in order."""
        return self._attempts("SELECT * FROM attempt WHERE rollout = ? ORDER BY number", rollout)

    def result_body(self, attempt: AttemptRow) -> bytes | None:
        """The result of an attempt, as JSON; None when it has none."""
        return None if attempt.result is None else self._blobs.get_blob(attempt.result)

    def result_bodies(self, attempts: Iterable[AttemptRow]) -> dict[int, bytes]:
        """The results of many attempts as JSON, by the ids of the attempts that have one."""
        places = {one.id: one.result for one in attempts if one.result is not None}
        bodies = self._blobs.get_blobs({*places.values()})
        return {attempt: bodies[place] for attempt, place in places.items()}

    def missing_of(self, task: str, causes: Iterable[Cause]) -> list[AttemptRow]:
        """The last attempts at rollouts of a task, of those that ended without a score for one of these causes."""
        named = sorted(causes)
        return self._attempts(
            f"""SELECT attempt.* FROM attempt JOIN rollout ON rollout.id = attempt.rollout
                WHERE rollout.task = ? AND attempt.cause IN ({", ".join("?" * len(named))}) AND NOT EXISTS (
                  SELECT 1 FROM attempt later WHERE later.rollout = attempt.rollout AND later.number > attempt.number)
                ORDER BY rollout.ordinal""",  # noqa: S608 - question marks
            task,
            *named,
        )

    def rollout(self, name: str) -> RolloutRow:
        """One line of the plan. KeyError when there is none with this id."""
        row = self._db.execute("SELECT * FROM rollout WHERE id = ?", (name,)).fetchone()
        if row is None:
            raise KeyError(name)
        return _rollout(row)

    def attempts_by_rollout(self) -> list[tuple[RolloutRow, list[AttemptRow]]]:
        """The whole plan in its order, each rollout with all its attempts in order."""
        attempts: dict[str, list[AttemptRow]] = {}
        for attempt in self._attempts("SELECT * FROM attempt ORDER BY number"):
            attempts.setdefault(attempt.rollout, []).append(attempt)
        return [(rollout, attempts.get(rollout.id, [])) for rollout in self.rollouts()]

    def attempt_marks(self) -> list[AttemptMark]:
        """A mark of every attempt, in the order in which they began. Much cheaper than reading them."""
        cursor = self._db.cursor()
        cursor.row_factory = None
        return cursor.execute("SELECT id, ended, final, result FROM attempt ORDER BY id").fetchall()

    def last_attempts(self) -> list[tuple[str, int, int]]:
        """The last attempt of every rollout that was tried, the newest first: the ids of the rollout and the attempt,
        and how many model calls are on record."""
        cursor = self._db.cursor()
        cursor.row_factory = None
        return cursor.execute(
            """SELECT rollout, id, (SELECT count(*) FROM exchange WHERE attempt = last.id) FROM (
                 SELECT rollout, id, max(number) FROM attempt GROUP BY rollout) AS last
               ORDER BY id DESC"""
        ).fetchall()

    def plan_mark(self) -> str:
        """The ids of all rollouts, in some order: another text than before when some were added or renamed."""
        return str(self._db.execute("SELECT group_concat(id, ?) FROM rollout", (PLAN_SEPARATOR,)).fetchone()[0])

    def rollout_of(self, attempt: int) -> str:
        """The rollout of an attempt."""
        return str(self._db.execute("SELECT rollout FROM attempt WHERE id = ?", (attempt,)).fetchone()[0])

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
        with self.atomic():
            exchanges.add(self._db, self._blobs, attempt, exchange)

    def exchanges(self, attempt: int) -> list[Exchange]:
        """All model calls of an attempt, in order of arrival, as they were given. The session is the attempt's id."""
        return list(self.each_exchange(attempt))

    def each_exchange(self, attempt: int, first: int = 0) -> Iterator[Exchange]:
        """The same one after the other: a long conversation is then in memory once, not once for each of its calls.
        Those with a lower number than `first` are left out."""
        return exchanges.each(self._db, self._blobs, attempt, first)

    def exchange(self, attempt: int, index: int) -> Exchange | None:
        """One model call by its number; None when there is none. The others are not read."""
        return exchanges.one(self._db, self._blobs, attempt, index)

    def exchange_heads(self, attempt: int, *, by_end: bool = False) -> list[ExchangeHead]:
        """All model calls of an attempt without headers and bodies, in order of arrival, or of their ends."""
        return exchanges.heads(self._db, attempt, by_end=by_end)

    def exchange_indexes(self, attempt: int) -> list[int]:
        """The numbers of all model calls of an attempt, in order."""
        rows = self._db.execute("SELECT idx FROM exchange WHERE attempt = ? ORDER BY idx", (attempt,))
        return [index for (index,) in rows]

    def count_exchanges(self, attempt: int) -> int:
        """How many model calls of an attempt are on record."""
        (count,) = self._db.execute("SELECT count(*) FROM exchange WHERE attempt = ?", (attempt,)).fetchone()
        return int(count)

    def usage(self, attempt: int) -> tuple[int, Usage]:
        """How many model calls an attempt made, and the tokens that they report."""
        sums = ", ".join(f"coalesce(sum({field.name}_tokens), 0)" for field in fields(Usage))
        calls, *tokens = self._db.execute(
            f"SELECT count(*), {sums} FROM exchange WHERE attempt = ? AND attempts > 0",  # noqa: S608 - our own names
            (attempt,),
        ).fetchone()
        return calls, Usage(*tokens)

    def count_sent_calls(self) -> dict[str, tuple[int, int]]:
        """By rollout: its model calls that were sent, and those among them that were sent more than once."""
        rows = self._db.execute(
            """SELECT rollout, count(*), sum(attempts > 1) FROM exchange JOIN attempt ON attempt.id = exchange.attempt
               WHERE attempts > 0 GROUP BY rollout"""
        )
        return {rollout: (sent, resent) for rollout, sent, resent in rows}

    def add_log(self, attempt: int, name: str, data: bytes) -> None:
        """Keep a named log of an attempt."""
        with self.atomic():
            self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (attempt, name, self._blobs.put_blob(data)))

    def logs(self, attempt: int) -> dict[str, bytes]:
        """The logs of an attempt by name."""
        rows = self._db.execute("SELECT name, blob FROM log WHERE attempt = ? ORDER BY name", (attempt,)).fetchall()
        return {name: self._blobs.get_blob(blob) for name, blob in rows}

    def log(self, attempt: int, name: str) -> bytes:
        """One log of an attempt. KeyError when there is none of this name."""
        row = self._db.execute("SELECT blob FROM log WHERE attempt = ? AND name = ?", (attempt, name)).fetchone()
        if row is None:
            raise KeyError(name)
        return self._blobs.get_blob(row["blob"])

    def log_part(self, attempt: int, name: str, start: int, size: int) -> bytes:
        """Some bytes of a log. The whole of it is never in memory. KeyError when there is none of this name."""
        row = self._db.execute("SELECT blob FROM log WHERE attempt = ? AND name = ?", (attempt, name)).fetchone()
        if row is None:
            raise KeyError(name)
        return self._blobs.read_part(row["blob"], start, size)

    def log_sizes(self, attempt: int) -> dict[str, int]:
        """How many bytes each log of an attempt has, by name. The logs are not read."""
        rows = self._db.execute("SELECT name, blob FROM log WHERE attempt = ? ORDER BY name", (attempt,)).fetchall()
        return {name: self._blobs.size_of(blob) for name, blob in rows}

    def log_names(self, attempt: int, beginning: str = "") -> list[str]:
        """The names of an attempt's logs that begin like this."""
        rows = self._db.execute("SELECT name FROM log WHERE attempt = ? ORDER BY name", (attempt,))
        return [name for (name,) in rows if name.startswith(beginning)]

    def policy_updates(self) -> list[PolicyRow]:
        """Every update of the weights of a model, in order. Only runs of `whet serve` have them."""
        return self.served.policy_updates()

    def served_groups(self, only: Collection[str] | None = None) -> dict[str, str]:
        """By rollout, or by these: the request of a client that it belongs to. Only runs of `whet serve` have them."""
        return self.served.groups(only)

    def _attempts(self, query: str, *values: object) -> list[AttemptRow]:
        return [schema.check_types(_attempt(row)) for row in self._db.execute(query, values)]


def _find_database(folder: Path) -> Path:
    path = folder / DATABASE
    if not path.is_file():
        raise UserError(f"{folder}: expected a run folder, with a file {DATABASE} in it")
    return path


@contextmanager
def _connect(path: Path, mode: Literal["ro", "rw", "rwc"]) -> Iterator[sqlite3.Connection]:
    """A connection that is closed again when its set-up fails."""
    db = schema.connect(path, mode)
    try:
        yield db
    except BaseException:
        db.close()
        raise


def _rollout(row: sqlite3.Row) -> RolloutRow:
    rollout, ordinal, task, agent, model, skill, sample = row
    return schema.check_types(RolloutRow(rollout, ordinal, task, agent, model, skill or None, sample))


def _values(rollout: RolloutRow) -> tuple[object, ...]:
    return values_of(replace(rollout, skill=rollout.skill or ""))


def _attempt(row: sqlite3.Row) -> AttemptRow:
    return AttemptRow(
        id=row["id"],
        rollout=row["rollout"],
        number=row["number"],
        started=row["started"],
        ended=row["ended"],
        value=row["value"],
        cause=None if row["cause"] is None else Cause(row["cause"]),
        final=bool(row["final"]),
        result=row["result"],
    )
