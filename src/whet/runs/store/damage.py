"""What is wrong with a run's database. It is looked for only when reading has failed: a damaged file is then one line
for the user, and a defect of whet stays a defect."""

import json
import sqlite3
from collections.abc import Iterator

from whet.rollout.result import decode_result
from whet.runs.store.schema import DamagedError
from whet.runs.store.store import Store

TYPES = {"TEXT": ("text",), "INTEGER": ("integer",), "REAL": ("real", "integer"), "BLOB": ("blob",)}


def find_damage(store: Store, db: sqlite3.Connection) -> str | None:
    """The first thing in a run that is not as whet writes it; None when there is nothing."""
    try:
        problem = next(_problems(store, db), None)
    except Exception as error:  # noqa: BLE001 - whatever fails here fails because of what the file holds
        problem = f"{type(error).__name__}: {error}"
    return " ".join(problem.split())[:300] if problem else None


def _problems(store: Store, db: sqlite3.Connection) -> Iterator[str]:
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        yield str(verdict)
    for table, *_ in db.execute("PRAGMA foreign_key_check"):
        yield f"a row of table '{table}' refers to a row that is not there"
    if db.execute("SELECT 1 FROM piece WHERE parent >= id").fetchone():
        yield "pieces of a body follow on themselves"
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
    for table in tables:
        yield from _wrong_types(db, table)
    for (value,) in db.execute("SELECT value FROM run"):
        json.loads(value)
    _read_all(store)


def _wrong_types(db: sqlite3.Connection, table: str) -> Iterator[str]:
    for _, column, declared, is_needed, _, _ in db.execute(f"PRAGMA table_info({table})").fetchall():
        if declared in TYPES:
            kinds = [*TYPES[declared], *([] if is_needed else ["null"])]
            places = ", ".join("?" * len(kinds))
            query = f"SELECT typeof({column}) FROM {table} WHERE typeof({column}) NOT IN ({places})"  # noqa: S608
            found = db.execute(query, kinds).fetchone()
            if found:
                yield f"{table}.{column} holds {found[0]}; expected {declared}"


def _read_all(store: Store) -> None:
    """Read everything as the commands do. It raises what they would."""
    for task in store.tasks():
        if not isinstance(json.loads(task.spec), dict):
            raise DamagedError(f"the definition of task {task.id} is not an object")
    store.skills()
    for _, attempts in store.attempts_by_rollout():
        for attempt in attempts:
            if (body := store.result_body(attempt)) is not None:
                decode_result(body)
            for _ in store.each_exchange(attempt.id):
                pass
            store.logs(attempt.id)
