"""Reads the Gemini CLI's transcripts: patches of a conversation, in one file or several."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.agents.gemini import Gemini
from whet.ids import digest, is_own_session
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import JsonFile, Lines, clip, read_time
from whet.sleep.readers.parts import file_of, read_edit, response_text, texts, typed_text
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker
from whet.text.plain import read_json

KINDS = frozenset({"user", "gemini", "info", "warning", "error"})
SHELL, DELIVER = "run_shell_command", "complete_task"
WRAPPER = re.compile(r"<untrusted_context>\n(?P<text>.*)\n</untrusted_context>", re.DOTALL)
STATUS = re.compile(
    r"(?P<error>\nError: [^\n]*)?(?:\nExit Code: (?P<code>-?\d+))?(?P<signal>\nSignal: \S+)?"
    r"(?:\nBackground PIDs: [^\n]*)?\nProcess Group PGID: \d+\Z"
)
STATUS_LIMIT = 4096
"""Characters at the end of a result that are searched for its status."""


@dataclass(slots=True)
class _Message:
    kind: str
    text: str
    at: datetime | None
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class _Conversation:
    """What the files of one session say, in the order in which its messages first appear."""

    header: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, _Message] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)

    def take(self, record: dict[str, Any], place: Place) -> None:
        match record:
            case {"$rewindTo": str(key)}:
                self._rewind(key)
            case {"$set": dict()}:
                pass  # After a resume it repeats the history without its tool calls and with new times.
            case {"id": str(key), "type": str(kind)} if kind in KINDS:
                self._add(key, _read_message(record, place))
            case {"sessionId": str()}:
                self.header = self.header or record
            case _:
                self.unknown[str(record.get("type", "record without a type"))] += 1

    def _add(self, key: str, message: _Message) -> None:
        """A message is written again when its tools have run. The first record of a call that has a result counts."""
        known = self.messages.setdefault(key, message)
        known.text = known.text or message.text
        for name, call in message.calls.items():
            if "output_at" not in known.calls.get(name, {}):
                known.calls[name] = call

    def _rewind(self, key: str) -> None:
        keys = list(self.messages)
        for dropped in keys[keys.index(key) :] if key in self.messages else ():
            del self.messages[dropped]


class GeminiReader:
    """The Gemini CLI."""

    cli = "gemini"
    tested = "0.61.0"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        for chats in sorted(Gemini.traits.locate(".gemini/tmp", home, env).glob("*/chats")):
            for group in _group(chats).values():
                yield from map(Source, _first_of_session(group))
            yield from map(Source, sorted(chats.glob("*/*.jsonl")))

    def read(self, source: Source) -> Reading:
        said = _Conversation()
        files = [_open(path) for path in _files_of(source.path)]
        for file in files:
            for offset, record in file:
                said.take(record, Place(path=str(file.path), offset=offset))
        session = _finish(said, source.path, digest(*(file.digest.encode() for file in files)))
        return Reading(
            sessions=(session,) if session.turns else (),  # a file without a person's text is left over from a resume
            unknown=dict(said.unknown),
            broken=sum(file.broken for file in files),
            offset=files[0].offset,
        )


def _open(path: Path) -> Lines | JsonFile:
    return JsonFile(path, "messages") if path.suffix == ".json" else Lines(path)


def _group(chats: Path) -> dict[str, list[Path]]:
    """The files of main sessions by the part of the session's id that ends their names."""
    groups: dict[str, list[Path]] = {}
    for path in sorted(chats.glob("session-*")):
        if path.suffix in {".json", ".jsonl"}:
            groups.setdefault(path.stem.rpartition("-")[2], []).append(path)
    return groups


def _first_of_session(paths: list[Path]) -> list[Path]:
    first: dict[object, Path] = {}
    for path in paths:
        first.setdefault(path if len(paths) == 1 else _session_of(path) or path, path)
    return list(first.values())


def _files_of(path: Path) -> list[Path]:
    """A file, and those that later starts of its session left beside it."""
    others = [other for other in _group(path.parent).get(path.stem.rpartition("-")[2], ()) if other > path]
    session = _session_of(path) if others else None
    return [path, *(other for other in others if session is not None and _session_of(other) == session)]


def _session_of(path: Path) -> str | None:
    try:
        return next((str(record["sessionId"]) for _, record in _open(path) if "sessionId" in record), None)
    except OSError:
        return None


def _read_message(record: dict[str, Any], place: Place) -> _Message:
    at = read_time(record.get("timestamp"))
    if record["type"] == "user":
        return _Message("user", typed_text(record.get("displayContent") or record.get("content")), at)
    message = _Message(record["type"], clip("".join(texts(record.get("content")))), at)
    calls = record.get("toolCalls")
    for call in calls if isinstance(calls, list) else ():
        match call:
            case {"id": str(key), "name": str(tool), "args": dict(args)}:
                message.calls[key] = {"tool": tool, "at": at, **_read_call(tool, args, call, place)}
    return message


def _read_call(tool: str, args: dict[str, Any], call: dict[str, Any], place: Place) -> dict[str, Any]:
    if tool == DELIVER:
        return {"answer": _delivered(args)}
    step: dict[str, Any] = {"command": clip(args.get("command")) or None if tool == SHELL else None}
    step["path"] = file_of(args)
    if not isinstance(call.get("result"), list):
        return step
    output = "".join(map(response_text, call["result"]))
    display = call.get("resultDisplay")
    if tool == SHELL:
        output, step["exit"] = _read_status(output, display)
    elif call.get("status") == "success":
        step |= read_edit(args, display)
    return step | {"output": clip(output), "output_at": place}


def _read_status(result: str, display: object) -> tuple[str, int | None]:
    """What a command printed, and its exit code. The code is missing where it is 0; where the whole status is missing,
    the command was stopped or goes on."""
    inside = WRAPPER.fullmatch(result)
    text = (inside["text"] if inside else result).removeprefix("Output: ")
    printed = len(display) if isinstance(display, str) and text.startswith(display) else 0
    start = max(printed, len(text) - STATUS_LIMIT)
    found = STATUS.search(text, start)
    if found is None:
        return text, None
    if found["code"] is not None:
        return text[: found.start()], int(found["code"])
    return text[: found.start()], None if found["signal"] or found["error"] else 0


def _delivered(args: dict[str, Any]) -> str:
    match args:
        case {"result": {"response": str(text)}} | {"result": str(text)}:
            return clip(text)
    return ""


def _finish(said: _Conversation, path: Path, content: str) -> Session:
    is_subagent = said.header.get("kind") == "subagent"
    session = str(said.header.get("sessionId", path.stem))
    draft = Draft()
    for key, message in said.messages.items():
        _replay(draft, key, message, Speaker.AGENT if is_subagent else Speaker.PERSON)
    draft.abort_unfinished()
    started, ended = span([read_time(said.header.get("startTime")), *(one.at for one in said.messages.values())])
    origin = Origin.WHET if is_own_session(session) else Origin.OTHER
    return Session(
        cli="gemini",
        version=None,
        id=session,
        parent=path.parent.name if is_subagent else None,
        origin=Origin.SUBAGENT if is_subagent else origin,
        cwd=_find_cwd(path),
        started=started,
        ended=ended,
        complete=False,
        turns=draft.turns(),
        digest=content,
    )


def _replay(draft: Draft, record: str, message: _Message, speaker: Speaker) -> None:
    match message.kind:
        case "user" if message.text:
            draft.say(message.text, speaker, message.at, record=record)
        case "gemini":
            draft.answer(message.text)
            for key, call in message.calls.items():
                if "answer" in call:
                    draft.answer(call["answer"])
                else:
                    draft.call(f"{record}/{key}", **call)  # some models give the id of a call again
        case "error":
            draft.fail()


def _find_cwd(path: Path) -> str | None:
    """The folder that a project is for. The project's own name does not say it: several folders may share a name."""
    project = path.parents[1] if path.parent.name == "chats" else path.parents[2]
    try:
        return (project / ".project_root").read_text().strip() or None
    except (OSError, ValueError):
        pass
    try:
        projects = read_json((project.parents[1] / "projects.json").read_text())
        names = projects["projects"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return next((cwd for cwd, name in names if name == project.name), None)
