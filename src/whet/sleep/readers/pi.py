"""Reads pi's transcripts: one file for a session, whose entries form a tree."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from whet.agents.pi import Pi
from whet.ids import is_own_session
from whet.sleep.readers.branch import Link, read_story
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import FIELD_LIMIT, clip, read_time
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker

SILENT = frozenset({"model_change", "thinking_level_change", "label", "session_info", "custom"})
"""Entries that are no part of the conversation."""
SILENT_ROLES = frozenset({"bashExecution", "custom", "branchSummary", "compactionSummary"})
"""What the person ran without the agent, and what the program adds."""
SHELL = "bash"
STATUS = "Command exited with code "


class _Link(Link):
    id: str | None = None
    parent: str | None = msgspec.field(name="parentId", default=None)


class PiReader:
    """pi."""

    cli = "pi"
    tested = "0.73.1"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        yield from map(Source, sorted(Pi.traits.locate(".pi/agent/sessions", home, env).glob("*/*.jsonl")))

    def read(self, source: Source) -> Reading:
        return read_story(source, _Link, "id", _Story(source.path))


class _Story:
    def __init__(self, path: Path) -> None:
        self.unknown: Counter[str] = Counter()
        self._path = path
        self._draft = Draft()
        self._header: dict[str, Any] = {}
        self._times: tuple[datetime | None, datetime | None] = (None, None)
        self._calls: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        """The last call with an id: its name in the draft, and its edits. Some models give an id again."""

    def take(self, entry: dict[str, Any], offset: int, *, is_current: bool) -> None:
        at = read_time(entry.get("timestamp"))
        self._times = span((*self._times, at))
        match entry:
            case {"type": "session"}:
                self._header = self._header or entry
            case {"type": "message", "message": dict(message)} if is_current:
                self._take_message(message, entry, offset)
            case {"type": "compaction" | "branch_summary", "summary": str(text)}:
                self._draft.inject(clip(text))
            case {"type": "message" | "custom_message"}:
                pass
            case _ if clip(entry.get("type")) not in SILENT:
                self.unknown[str(entry.get("type"))] += 1

    def _take_message(self, message: dict[str, Any], entry: dict[str, Any], offset: int) -> None:
        at = read_time(entry.get("timestamp"))
        match message:
            case {"role": "user"}:
                self._draft.say(clip(_text(message)), Speaker.PERSON, at, record=str(entry.get("id", "")))
            case {"role": "assistant"}:
                self._take_answer(message, at, str(offset))
            case {"role": "toolResult", "toolCallId": str(key)}:
                self._take_result(key, message, Place(path=str(self._path), offset=offset))
            case {"role": role} if clip(role) not in SILENT_ROLES:
                self.unknown[f"message/{role}"] += 1

    def _take_answer(self, message: dict[str, Any], at: datetime | None, record: str) -> None:
        self._draft.answer(clip(_text(message)))
        for part in _content(message):
            match part:
                case {"type": "toolCall", "id": str(key), "name": str(tool), "arguments": dict(args)}:
                    command = clip(args.get("command")) if tool == SHELL else None
                    name, edits = f"{record}/{key}", _edits(tool, args) or [{}]
                    self._calls[key] = (name, edits)
                    for number, _ in enumerate(edits):
                        self._draft.call(f"{name}/{number}", tool, command=command, path=self._file(args), at=at)
        match message:
            case {"stopReason": "aborted"}:
                self._draft.abort()
            case {"stopReason": "error"}:
                self._draft.fail()

    def _take_result(self, key: str, message: dict[str, Any], place: Place) -> None:
        text, failed = _text(message), message.get("isError") is not False
        step: dict[str, Any] = {"output_at": place}
        if message.get("toolName") == SHELL:
            text, step["exit"] = _read_status(text, failed)
        name, edits = self._calls.get(key, ("", []))
        for number, edit in enumerate(edits):
            self._draft.result(f"{name}/{number}", output=clip(text), **step, **({} if failed else edit))

    def _file(self, args: dict[str, Any]) -> str | None:
        path, cwd = args.get("path"), self._header.get("cwd")
        if not isinstance(path, str):
            return None
        return str(PurePosixPath(cwd, path)) if isinstance(cwd, str) else path

    def finish(self, content: str) -> Session:
        session, cwd = str(self._header.get("id", self._path.stem)), self._header.get("cwd")
        self._draft.abort_unfinished()
        started, ended = self._times
        return Session(
            cli="pi",
            version=None,  # the header's version is that of the form
            id=session,
            origin=Origin.WHET if is_own_session(session) else Origin.OTHER,
            cwd=cwd if isinstance(cwd, str) else None,
            started=started,
            ended=ended,
            complete=False,
            turns=self._draft.turns(),
            digest=content,
        )


def _content(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _text(message: dict[str, Any]) -> str:
    if isinstance(message.get("content"), str):
        return str(message["content"])
    texts = [part.get("text") for part in _content(message) if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _edits(tool: str, args: dict[str, Any]) -> list[dict[str, Any]]:
    """What a call replaces, and by what. One call may replace several places."""
    match tool, args:
        case "edit", {"edits": list(edits)}:
            return [edit for one in edits if isinstance(one, dict) for edit in _edits("edit", one)]
        case "edit", {"oldText": str(before), "newText": str(after)}:
            return [{"before": clip(before), "after": clip(after)}]
        case "write", {"content": str(after)}:
            return [{"after": clip(after), "whole_file": len(after) <= FIELD_LIMIT}]
    return []


def _read_status(text: str, failed: bool) -> tuple[str, int | None]:
    """What a command printed, and its exit code. pi takes every code but 0 as an error and says it in the last line;
    an error without one was no exit: the command was stopped, or did not start."""
    if not failed:
        return text, 0
    printed, status, code = text.rpartition(STATUS)
    known = status and code.isdecimal() and (not printed or printed.endswith("\n\n"))
    return (printed.removesuffix("\n\n"), int(code)) if known else (text, None)
