"""Reads Qwen Code's transcripts: one file for a session, whose records follow each other by their ids."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from whet.agents.qwen import Qwen
from whet.ids import is_own_session
from whet.sleep.readers.branch import Link, read_story
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import clip, read_time
from whet.sleep.readers.parts import file_of, read_edit, response_text, texts, typed_text
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker

SYSTEM = frozenset(
    {
        "attribution_snapshot",
        "at_command",
        "chat_compression",
        "custom_title",
        "rewind",
        "slash_command",
        "ui_telemetry",
    }
)
SHELL = "run_shell_command"
BEGIN = re.compile(r"Command: .*?\nDirectory: [^\n]*\nOutput: ", re.DOTALL)
STATUS = re.compile(
    r"\nError: [^\n]*\nExit Code: (?P<code>-?\d+|\(none\))\nSignal: \S+\nProcess Group PGID: \S+(?=\n\n|\Z)"
)
STATUS_LIMIT = 8192
"""Characters at the end of a result that are searched for its status. A hint may follow it."""


class _Link(Link):
    id: str | None = msgspec.field(name="uuid", default=None)
    parent: str | None = msgspec.field(name="parentUuid", default=None)


class QwenReader:
    """Qwen Code."""

    cli = "qwen"
    tested = "0.15.10"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        yield from map(Source, sorted(Qwen.traits.locate(".qwen/projects", home, env).glob("*/chats/*.jsonl")))

    def read(self, source: Source) -> Reading:
        return read_story(source, _Link, "uuid", _Story(source.path))


class _Story:
    def __init__(self, path: Path) -> None:
        self.unknown: Counter[str] = Counter()
        self._path = path
        self._draft = Draft()
        self._first: dict[str, Any] = {}
        self._times: tuple[datetime | None, datetime | None] = (None, None)
        self._calls: dict[str, tuple[str, dict[str, Any]]] = {}
        """The last call with an id: its name in the draft, and its arguments. Some models give an id again."""

    def take(self, record: dict[str, Any], offset: int, *, is_current: bool) -> None:
        self._first = self._first or record
        at = read_time(record.get("timestamp"))
        self._times = span((*self._times, at))
        parts = _parts(record)
        match record:
            case {"type": "system", "subtype": str(subtype)} if subtype in SYSTEM:
                pass
            case {"type": "user" | "assistant" | "tool_result"} if not is_current:
                pass
            case {"type": "user", "subtype": "cron" | "notification"}:
                self._draft.inject(typed_text(parts))
            case {"type": "user"}:
                self._draft.say(typed_text(parts), Speaker.PERSON, at, record=str(record.get("uuid", "")))
            case {"type": "assistant"}:
                self._take_answer(parts, at, str(offset))
            case {"type": "tool_result"}:
                self._take_results(parts, record, Place(path=str(self._path), offset=offset))
            case _:
                self.unknown["/".join(str(record[key]) for key in ("type", "subtype") if key in record)] += 1

    def _take_answer(self, parts: list[Any], at: datetime | None, record: str) -> None:
        self._draft.answer(clip("".join(texts(parts))))
        for part in parts:
            match part:
                case {"functionCall": {"id": str(key), "name": str(tool), "args": dict(args)}}:
                    command = clip(args.get("command")) if tool == SHELL else None
                    self._calls[key] = (f"{record}/{key}", args)
                    self._draft.call(f"{record}/{key}", tool, command=command, path=file_of(args), at=at)

    def _take_results(self, parts: list[Any], record: dict[str, Any], place: Place) -> None:
        result = record.get("toolCallResult")
        result = result if isinstance(result, dict) else {}
        for part in parts:
            match part:
                case {"functionResponse": {"id": str(key), "name": str(tool)}} if key in self._calls:
                    name, args = self._calls[key]
                    output, step = response_text(part), {}
                    if tool == SHELL:
                        output, step["exit"] = _read_status(output)
                    elif result.get("status") == "success":
                        step = read_edit(args, result.get("resultDisplay"))
                    self._draft.result(name, output=clip(output), output_at=place, **step)

    def finish(self, content: str) -> Session:
        session = str(self._first.get("sessionId", self._path.stem))
        self._draft.abort_unfinished()
        started, ended = self._times
        return Session(
            cli="qwen",
            version=_text(self._first, "version"),
            id=session,
            origin=Origin.WHET if is_own_session(session) else Origin.OTHER,
            cwd=_text(self._first, "cwd"),
            branch=_text(self._first, "gitBranch"),
            started=started,
            ended=ended,
            complete=False,
            turns=self._draft.turns(),
            digest=content,
        )


def _parts(record: dict[str, Any]) -> list[Any]:
    match record:
        case {"message": {"parts": list(parts)}}:
            return parts
    return []


def _text(record: dict[str, Any], key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) and value else None


def _read_status(result: str) -> tuple[str, int | None]:
    """What a command printed, and its exit code, which stands in the last lines of its result."""
    # A command may print such lines too; the last are the program's.
    found = max(STATUS.finditer(result, max(0, len(result) - STATUS_LIMIT)), key=re.Match.start, default=None)
    begin = BEGIN.match(result)
    text = result[begin.end() if begin else 0 : found.start() if found else None]
    return text, int(found["code"]) if found and found["code"] != "(none)" else None
