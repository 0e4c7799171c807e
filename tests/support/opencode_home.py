"""A home with OpenCode's database, made from rows that the program wrote."""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

TRANSCRIPT = Path(__file__).parents[1] / "sleep" / "readers" / "transcripts" / "opencode"
DATABASE = Path(".local/share/opencode/opencode.db")
TOKEN = "a live token of the user"
NEWEST = 12
"""Rows that only the log holds."""


@cache
def story_folder() -> "tempfile.TemporaryDirectory[str]":
    """A home in which OpenCode did the story. It is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="whet-test-")
    write_home(Path(folder.name))
    return folder


def story_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TRANSCRIPT / "rows.jsonl").read_bytes().splitlines()]


def write_home(home: Path, rows: Iterable[dict[str, Any]] | None = None, newest: int = NEWEST) -> Path:
    """Write a database as OpenCode leaves it when it ends: the newest rows are in its log."""
    every = [*(story_rows() if rows is None else rows)]
    path = home / DATABASE
    path.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder, path.name))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.executescript((TRANSCRIPT / "schema.sql").read_text())
        connection.execute("INSERT INTO account VALUES ('1', 'me', 'https://x', ?, ?, NULL, 0, 0)", (TOKEN, TOKEN))
        _insert(connection, every[: len(every) - newest])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _insert(connection, every[len(every) - newest :])
        for file in Path(folder).iterdir():  # closing the connection would merge the log
            shutil.copyfile(file, path.parent / file.name)
    return path


def _insert(connection: sqlite3.Connection, rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        values = {key: json.dumps(value) if key == "data" else value for key, value in row.items() if key != "table"}
        names = ", ".join(values)
        connection.execute(f"INSERT INTO {row['table']} ({names}) VALUES (:{', :'.join(values)})", values)
    connection.commit()
