"""Reads the transcripts of Claude Code: one file a session, whose records form a tree."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.agents.claude_code import ClaudeCode
from whet.ids import is_own_session
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import FIELD_LIMIT, Lines, clip, read_time
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker

NO_MESSAGE = frozenset(
    {
        *("summary", "progress", "file-history-snapshot", "last-prompt", "mode", "permission-mode"),
        *("ai-title", "custom-title"),
    }
)
"""Known types of records that hold nothing that was said or done."""
INJECTED = (
    *("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>", "<bash-input>", "<bash-stdout>"),
    *("<bash-stderr>", "<system-reminder>", "<task-notification>"),
)
"""How messages of the program begin that have no other mark."""
AGENT_FILE = "agent-"
"""How the names of sub-agents' files begin."""
INTERRUPTED = "[Request interrupted by user"
SYNTHETIC = "<synthetic>"
"""The model of answers that the program made up."""
SHELLS = frozenset({"Bash", "PowerShell"})
_SLASH_COMMAND = re.compile(r"/[\w:-]+(\s|$)")
_EXIT = re.compile(r"Exit code (\d+)(\n|$)")
_ENDS = {"/exit", "/quit"}


@dataclass(slots=True)
class _Node:
    """What a record says, without all that is not needed."""

    offset: int
    uuid: str
    parent: str | None
    at: datetime | None
    group: str = ""
    """The id of the model's answer. It has a record for each of its parts."""
    text: str = ""
    """What was said to the agent."""
    said_by: Speaker | None = None
    """None if it was not said to the agent, or by whom is not yet known."""
    aborts: bool = False
    queued: bool = False
    """It waited until the agent could take it."""
    answer: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    results: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


class ClaudeCodeReader:
    """Reads `projects/FOLDER/SESSION.jsonl` and the files of sub-agents below `projects/FOLDER/SESSION/subagents`."""

    cli = "claude-code"
    tested = "2.1.197"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        projects = ClaudeCode.traits.locate(ClaudeCode.traits.transcripts, home, env)
        for pattern in ("*/*.jsonl", "*/*/subagents/agent-*.jsonl"):
            yield from (Source(path) for path in sorted(projects.glob(pattern)) if path.is_file())

    def read(self, source: Source) -> Reading:
        transcript = _Transcript(source.path)
        lines = Lines(source.path)
        for offset, record in lines:
            transcript.take(offset, record)
        session = transcript.session(lines.digest)
        return Reading(
            sessions=(session,) if session.turns else (),
            unknown=dict(transcript.unknown),
            broken=lines.broken,
            offset=lines.offset,
        )


class _Transcript:
    """All records of a file. Only those on the way from the last one to the first make up the session: others were
    taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unknown: Counter[str] = Counter()
        self._agent = path.stem.removeprefix(AGENT_FILE) if path.stem.startswith(AGENT_FILE) else None
        self._nodes: dict[str, _Node] = {}
        self._leaf: str | None = None
        self._in_queue: list[str] = []
        self._times: list[datetime | None] = []
        self._about: dict[str, str] = {}
        self._exited = False

    def take(self, offset: int, record: dict[str, Any]) -> None:
        kind = clip(record.get("type"))
        match kind:
            case "user" | "assistant" | "system" | "attachment":
                self._take_message(offset, record)
            case "queue-operation":
                self._take_queued(offset, record)
            case "last-prompt" if (leaf := clip(record.get("leafUuid"))) in self._nodes:
                self._leaf = leaf
            case _ if kind not in NO_MESSAGE:
                self.unknown[kind or "no type"] += 1

    def session(self, digest: str) -> Session:
        kept = self._follow()
        draft = Draft()
        written = Counter(node.text for node in self._nodes.values() if node.said_by)
        for uuid, node in self._nodes.items():
            self._tell_results(draft, node)
            if uuid in kept:
                _tell(draft, node)
            elif node.queued and written[node.text]:
                written[node.text] -= 1
            elif node.queued:
                draft.say(node.text, self._speaker({}), node.at)
        turns = draft.turns()
        started, ended = span(self._times)
        return Session(
            cli=ClaudeCodeReader.cli,
            version=self._about.get("version"),
            id=self._agent or self.path.stem,
            parent=self._about.get("sessionId") if self._agent else None,
            origin=self._origin({turn.said_by for turn in turns}),
            cwd=self._about.get("cwd"),
            branch=self._about.get("gitBranch") or None,
            started=started,
            ended=ended,
            complete=self._exited,
            turns=turns,
            digest=digest,
        )

    def _take_message(self, offset: int, record: dict[str, Any]) -> None:
        uuid = clip(record.get("uuid"))
        if not uuid or uuid in self._nodes:  # written again when a session is continued
            return
        self._remember(record)
        node = _Node(offset, uuid, self._parent_of(record), read_time(record.get("timestamp")))
        self._times.append(node.at)
        match record:
            case {"type": "user", "message": {"content": content}}:
                self._read_user(node, record, content)
            case {"type": "assistant", "message": {"content": [*parts], **message}} if (
                message.get("model") != SYNTHETIC
            ):
                node.group = clip(message.get("id"))
                _read_assistant(node, parts)
            case {"type": "attachment", "attachment": {"type": "queued_command", "prompt": prompt, **more}}:
                typed = more.get("commandMode") in {None, "prompt"}
                node.text, node.said_by = clip(_join_texts(prompt)).strip(), self._speaker(record) if typed else None
        self._nodes[uuid] = node
        if self._is_own(record):
            self._leaf = uuid

    def _take_queued(self, offset: int, record: dict[str, Any]) -> None:
        match record:
            case {"operation": "enqueue", "content": str(text)} if not _SLASH_COMMAND.match(text):
                if text.startswith(INJECTED):
                    return
                key = f"queued at {offset}"
                at = read_time(record.get("timestamp"))
                self._nodes[key] = _Node(offset, key, None, at, text=clip(text).strip(), queued=True)
                self._in_queue.append(key)
            case {"operation": "dequeue" | "remove"}:
                del self._in_queue[:1]
            case {"operation": "popAll"}:  # taken back into the input line
                for key in self._in_queue:
                    del self._nodes[key]
                self._in_queue.clear()

    def _tell_results(self, draft: Draft, node: _Node) -> None:
        """Add results to their calls. Those of calls that were made side by side are not all on the way."""
        for key, step in node.results:
            call = draft.find(key)
            if call is not None:
                step["exit"] = step["exit"] if "command" in call else None
                draft.result(key, **step, output_at=Place(path=str(self.path), offset=node.offset))

    def _remember(self, record: dict[str, Any]) -> None:
        for name in ("cwd", "gitBranch", "sessionId", "version", "entrypoint"):
            if isinstance(record.get(name), str) and (name == "version" or name not in self._about):
                self._about[name] = record[name]

    def _is_own(self, record: dict[str, Any]) -> bool:
        """Whether a record is of this session. Old versions wrote those of sub-agents into the same file."""
        return not record.get("isSidechain") or self._agent is not None

    def _parent_of(self, record: dict[str, Any]) -> str | None:
        """The record that this one follows. One that is lost is stood in for by the record before."""
        parent = clip(record.get("parentUuid")) or clip(record.get("logicalParentUuid"))
        if not parent:
            return None
        return parent if parent in self._nodes else self._leaf

    def _follow(self) -> set[str]:
        """The records from the last one to the first, with all parts of the same answers."""
        kept: set[str] = set()
        uuid = self._leaf
        while uuid is not None and uuid not in kept:
            kept.add(uuid)
            uuid = self._nodes[uuid].parent
        groups = {self._nodes[uuid].group for uuid in kept} - {""}
        return kept | {uuid for uuid, node in self._nodes.items() if node.group in groups}

    def _read_user(self, node: _Node, record: dict[str, Any], content: object) -> None:
        for part in content if isinstance(content, list) else ():
            match part:
                case {"type": "tool_result", "tool_use_id": str(key)}:
                    node.results.append((key, _read_result(part, record.get("toolUseResult"))))
        text = clip(_join_texts(content)).strip()
        node.aborts = text.startswith(INTERRUPTED)
        if node.results or node.aborts or not text:
            return
        command = _read_tag(text, "command-name") if text.startswith("<command-") else ""
        node.text, node.said_by = text, self._speaker(record)
        if command:
            node.text = f"{command} {_read_tag(text, 'command-args')}".strip()
            node.said_by = Speaker.HARNESS
            self._exited = command in _ENDS
        elif _is_injected(record, text):
            node.said_by = None
        else:
            self._exited = False

    def _speaker(self, record: dict[str, Any]) -> Speaker:
        if self._agent is not None:
            return Speaker.AGENT
        if record.get("promptSource") == "typed":
            return Speaker.PERSON
        entry = clip(record.get("entrypoint")) or self._about.get("entrypoint", "")
        return Speaker.SCRIPT if entry.startswith("sdk") else Speaker.PERSON

    def _origin(self, speakers: set[Speaker]) -> Origin:
        if self._agent is not None:
            return Origin.SUBAGENT
        if is_own_session(self.path.stem):
            return Origin.WHET
        entry = self._about.get("entrypoint")
        if entry and entry.startswith("sdk") and Speaker.PERSON not in speakers:
            return Origin.HEADLESS
        return Origin.INTERACTIVE if entry else Origin.OTHER


def _tell(draft: Draft, node: _Node) -> None:
    if node.aborts:
        draft.abort()
    elif node.said_by is not None:
        draft.say(node.text, node.said_by, node.at, record=node.uuid)
    elif node.text:
        draft.inject(node.text)
    for key, step in node.calls:
        draft.call(key, **step, at=node.at)
    draft.answer(node.answer)


def _read_assistant(node: _Node, parts: list[Any]) -> None:
    for part in parts:
        match part:
            case {"type": "text", "text": text}:
                node.answer = clip(text)
            case {"type": "tool_use", "id": str(key), "name": str(tool)}:
                node.calls.append((key, _read_call(tool, part.get("input"))))


def _read_tag(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()


def _is_injected(record: dict[str, Any], text: str) -> bool:
    match record:
        case {"isMeta": True} | {"isCompactSummary": True} | {"isVisibleInTranscriptOnly": True}:
            return True
        case {"origin": {"kind": str(kind)}} if kind != "human":
            return True
    return text.startswith(INJECTED)


def _read_call(tool: str, given: object) -> dict[str, Any]:
    """The fields of a step that are known from its call."""
    match given:
        case {"command": str(command)} if tool in SHELLS:
            return {"tool": tool, "command": clip(command)}
        case {"file_path": str(path)} | {"notebook_path": str(path)}:
            return {"tool": tool, "path": clip(path)}
    return {"tool": tool}


def _read_result(part: dict[str, Any], structured: object) -> dict[str, Any]:
    """The fields of a step that are known from its result: the part of the message, and the form beside it."""
    output = _join_texts(part.get("content"))
    result: dict[str, Any] = {"output": clip(output), "exit": _exit_of(part, structured, output)}
    return result | (_read_edit(structured) if isinstance(structured, dict) and not part.get("is_error") else {})


def _read_edit(structured: dict[str, Any]) -> dict[str, Any]:
    """The file before and after an edit; the replaced text, if the file is too long."""
    match structured:
        case {"filePath": str(path), "oldString": str(old), "newString": str(new), **more}:
            whole = more.get("originalFile")
            if not isinstance(whole, str) or old not in whole or len(whole) + len(new) > FIELD_LIMIT:
                return {"path": path, "before": clip(old), "after": clip(new)}
            after = whole.replace(old, new) if more.get("replaceAll") else whole.replace(old, new, 1)
            return {"path": path, "before": whole, "after": after, "whole_file": True}
        case {"filePath": str(path), "content": str(content), "type": "create" | "update", **more}:
            replaced = more.get("originalFile")
            fits = len(content) <= FIELD_LIMIT and len(replaced or "") <= FIELD_LIMIT
            before = clip(replaced) if replaced is not None else None
            return {"path": path, "before": before, "after": clip(content), "whole_file": fits}
    return {}


def _exit_of(part: dict[str, Any], structured: object, output: str) -> int | None:
    """Only a failed command has its exit code in the text. A success is known by its form."""
    if part.get("is_error"):
        found = _EXIT.match(output)
        return int(found[1]) if found else None
    match structured:
        case {"interrupted": True} | {"backgroundTaskId": str()} | {"returnCodeInterpretation": str()}:
            return None
        case {"stdout": str()}:
            return 0
        case None if part.get("is_error") is False:
            return 0
    return None


def _join_texts(content: object) -> str:
    """The text of a message, which may be divided into parts."""
    if isinstance(content, list):
        parts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return "\n".join(parts)
    return content if isinstance(content, str) else ""
