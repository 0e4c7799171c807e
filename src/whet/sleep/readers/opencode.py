"""Reads OpenCode's database. It holds credentials too: only the tables of sessions, messages and parts are read."""

import hashlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.agents.opencode import OpenCode
from whet.errors import UserError
from whet.sleep.readers.database import needs_copy, open_database
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import FIELD_LIMIT, LINE_LIMIT, clip, read_record, read_time
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker

FOLDER = ".local/share/opencode"
DATABASE = f"{FOLDER}/opencode.db"
SESSIONS = "SELECT id FROM session ORDER BY time_created, id"
MARKS = """
SELECT session.id, session.time_updated || ' ' || ifnull(messages.mark, '') || ' ' || ifnull(parts.mark, '')
FROM session
LEFT JOIN (SELECT session_id, count(*) || ':' || max(time_updated) AS mark FROM message GROUP BY session_id) AS messages
  ON messages.session_id = session.id
LEFT JOIN (SELECT session_id, count(*) || ':' || max(time_updated) AS mark FROM part GROUP BY session_id) AS parts
  ON parts.session_id = session.id
ORDER BY session.time_created, session.id
"""
"""The sessions, and what tells an earlier state of each from a later one."""
SESSION = "SELECT parent_id, directory, version, time_created, time_updated, revert FROM session WHERE id = ?"
MESSAGES = "SELECT id, substr(data, 1, :limit + 1) FROM message WHERE session_id = :session ORDER BY time_created, id"
PARTS = "SELECT rowid, substr(data, 1, :limit + 1) FROM part WHERE message_id = :message ORDER BY id"
SILENT = frozenset({"agent", "compaction", "file", "patch", "reasoning", "retry", "snapshot", "step-finish", "subtask"})
"""Parts of which nothing is read."""
READ = frozenset({"step-start", "text", "tool"})
SHELL = "bash"
HUNK = re.compile(r"^@@ .*$", re.MULTILINE)


class OpenCodeReader:
    """OpenCode."""

    cli = "opencode"
    tested = "1.18.33"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        path = OpenCode.traits.locate(DATABASE, home, env)
        if (moved := env.get("OPENCODE_DB")) and not Path(moved).is_absolute():
            path = OpenCode.traits.locate(FOLDER, home, env) / moved
        for database in sorted({path, *path.parent.glob("opencode-*.db")}):  # other channels have their own
            if database.is_file():
                yield from _find_sessions(database)

    def read(self, source: Source) -> Reading:
        """A source without a key is a whole database, so that it is copied only once."""
        sessions, unknown, broken = [], Counter[str](), 0
        with open_database(source.path) as connection:
            for key in [source.key] if source.key else _list_sessions(connection):
                row = connection.execute(SESSION, (key,)).fetchone()
                if row is None:
                    continue
                story = _Story(source.path, key, is_subagent=row[0] is not None, reverted_to=_reverted_to(row[5]))
                story.take_all(connection)
                sessions.append(story.finish(*row[:5]))
                unknown += story.unknown
                broken += story.broken
        return Reading(tuple(session for session in sessions if session.turns), dict(unknown), broken)


def _find_sessions(database: Path) -> list[Source]:
    """The sessions of a database; the database itself if it must be copied, or cannot be read: then `read` says why."""
    if needs_copy(database):
        return [Source(database)]
    try:
        with open_database(database) as connection:
            return [Source(database, str(key), str(mark)) for key, mark in connection.execute(MARKS)]
    except UserError:
        return [Source(database)]


def _list_sessions(connection: sqlite3.Connection) -> list[str]:
    return [str(key) for (key,) in connection.execute(SESSIONS)]


class _Story:
    def __init__(self, path: Path, key: str, is_subagent: bool, reverted_to: str | None) -> None:
        self.unknown: Counter[str] = Counter()
        self.broken = 0
        self._path = path
        self._key = key
        self._speaker = Speaker.AGENT if is_subagent else Speaker.PERSON
        self._reverted_to = reverted_to
        self._draft = Draft()
        self._state = hashlib.blake2b(digest_size=16)
        self._tree: str | None = None

    def take_all(self, connection: sqlite3.Connection) -> None:
        """Take the messages up to the one that the person went back to."""
        for key, data in connection.execute(MESSAGES, {"session": self._key, "limit": LINE_LIMIT}):
            if key == self._reverted_to:
                return
            message = self._parse(data)
            rows = connection.execute(PARTS, {"message": key, "limit": LINE_LIMIT})
            parts = [(row, part) for row, text in rows if (part := self._parse(text)) is not None]
            if message is not None:
                self._take(key, message, parts)

    def _parse(self, data: str) -> dict[str, Any] | None:
        content = data.encode(errors="surrogatepass")
        self._state.update(content)
        record = read_record(content) if len(content) <= LINE_LIMIT else None
        self.broken += record is None
        return record

    def _take(self, key: str, message: dict[str, Any], parts: list[tuple[int, dict[str, Any]]]) -> None:
        for kind in (part.get("type") for _, part in parts):
            if kind not in SILENT | READ:
                self.unknown[f"part {kind}"] += 1
        match message:
            case {"role": "user"}:
                self._take_user(key, _created(message), parts)
            case {"role": "assistant", "summary": True}:
                pass  # the summary of a compaction
            case {"role": "assistant"}:
                self._take_answer(message, parts)
            case _:
                self.unknown[f"message {message.get('role')}"] += 1

    def _take_user(self, key: str, at: datetime | None, parts: list[tuple[int, dict[str, Any]]]) -> None:
        typed = [part for _, part in parts if part.get("type") == "text" and part.get("synthetic") is not True]
        if typed:
            self._draft.say(clip("\n".join(map(_text, typed))), self._speaker, at, record=key)

    def _take_answer(self, message: dict[str, Any], parts: list[tuple[int, dict[str, Any]]]) -> None:
        for row, part in parts:
            match part:
                case {"type": "step-start", "snapshot": str(tree)}:
                    self._tree = self._tree or tree
                case {"type": "text"} if part.get("synthetic") is not True:
                    self._draft.answer(clip(_text(part)))
                case {"type": "tool", "tool": str(tool), "state": dict(state)}:
                    self._take_call(tool, state, row)
        match message:
            case {"error": {"name": "MessageAbortedError"}}:
                self._draft.abort()
            case {"error": dict()}:
                self._draft.fail()
            case {"time": {"completed": int()}}:
                pass
            case _:
                self._draft.abort()

    def _take_call(self, tool: str, state: dict[str, Any], row: int) -> None:
        given, known = _table(state, "input"), _table(state, "metadata")
        code = known.get("exit")
        step: dict[str, Any] = {
            "command": clip(given.get("command")) if tool == SHELL else None,
            "path": given["filePath"] if isinstance(given.get("filePath"), str) else None,
            "exit": code if isinstance(code, int) and tool == SHELL else None,
            "output": clip(state.get("output") or state.get("error")),
            "output_at": Place(path=str(self._path), offset=row),
            "at": read_time(_table(state, "time").get("start")),
        }
        edits = [*_edits(given), *_patches(known)] if state.get("status") == "completed" else []
        for number, edit in enumerate(edits or [{}]):
            self._draft.call(f"{row}/{number}", tool, **{**step, **edit})

    def finish(self, parent: str | None, cwd: str, version: str, created: int, updated: int) -> Session:
        self._draft.abort_unfinished()
        started, ended = span((read_time(created), read_time(updated)))
        return Session(
            cli="opencode",
            version=version,
            id=self._key,
            parent=parent,
            origin=Origin.OTHER if parent is None else Origin.SUBAGENT,
            cwd=cwd,
            tree=self._tree,
            started=started,
            ended=ended,
            complete=False,
            turns=self._draft.turns(),
            digest=self._state.hexdigest(),
        )


def _edits(given: dict[str, Any]) -> list[dict[str, Any]]:
    """What a call replaced, and by what. One call may replace several places."""
    match given:
        case {"edits": list(edits)}:
            return [edit for one in edits if isinstance(one, dict) for edit in _edits(one)]
        case {"oldString": str(before), "newString": str(after)}:
            return [{"before": clip(before), "after": clip(after)}]
        case {"filePath": str(), "content": str(after)}:
            return [{"after": clip(after), "whole_file": len(after) <= FIELD_LIMIT}]
    return []


def _patches(known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a call replaced whose result lists patches of files."""
    files = known.get("files")
    for file in files if isinstance(files, list) else ():
        match file:
            case {"filePath": str(path), "patch": str(patch)}:
                for hunk in HUNK.split(patch)[1:]:
                    lines = hunk.removeprefix("\n").splitlines(keepends=True)
                    before = "".join(line[1:] for line in lines if line[:1] in " -")
                    after = "".join(line[1:] for line in lines if line[:1] in " +")
                    yield {"path": path, "before": clip(before), "after": clip(after)}


def _reverted_to(column: object) -> str | None:
    """The message from which on the person took the conversation back."""
    record = read_record(column.encode()) if isinstance(column, str) else None
    return str(record["messageID"]) if record and "messageID" in record else None


def _table(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _text(part: dict[str, Any]) -> str:
    return str(part.get("text") or "")


def _created(message: dict[str, Any]) -> datetime | None:
    return read_time(_table(message, "time").get("created"))
