"""Reads the transcripts of Codex: one file a thread. Sub-agents have files like any other."""

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.agents.codex import Codex
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import Lines, clip, read_record, read_time
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker

ARCHIVE = ".codex/archived_sessions"
REQUEST = "## My request for Codex:"
"""What an editor puts between its own context and what the person typed."""
INTERACTIVE = frozenset({"cli", "vscode"})
HEADLESS = frozenset({"exec", "mcp"})
KNOWN = frozenset(
    {
        *("world_state", "turn_context", "token_usage_record", "compacted"),
        *("event_msg/token_count", "event_msg/thread_settings_applied", "event_msg/agent_reasoning"),
        *("response_item/message", "response_item/reasoning", "response_item/web_search_call"),
        *(f"item_completed/{item}" for item in ("CollabAgentToolCall", "ContextCompaction", "Reasoning", "Plan")),
        *(f"item_completed/{item}" for item in ("FileChange", "McpToolCall", "WebSearch", "ImageView")),
    }
)
"""Records that say nothing more than others do, or nothing that was said or done."""
_THREAD = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EXITED = re.compile(r"^(?:Process exited with code|Exit code:) (\d+)$", re.MULTILINE)
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MOVED = re.compile(r"^\*\*\* Move to: (.+)$")


class CodexReader:
    """Reads `sessions/YEAR/MONTH/DAY/rollout-*.jsonl` and the archive; old files are compressed."""

    cli = "codex"
    tested = "0.166.0"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        for folder in (Codex.traits.transcripts, ARCHIVE):
            found = sorted(Codex.traits.locate(folder, home, env).rglob("rollout-*.jsonl*"))
            plain = {path for path in found if path.suffix == ".jsonl" and path.is_file()}
            packed = {path for path in found if path.suffix == ".zst" and path.is_file()}
            yield from map(Source, sorted(plain | {path for path in packed if path.with_suffix("") not in plain}))

    def read(self, source: Source) -> Reading:
        rollout = _Rollout(source.path)
        lines = Lines(source.path)
        for offset, record in lines:
            rollout.take(offset, record)
        session = rollout.session(lines.digest)
        packed = source.path.suffix == ".zst"
        return Reading(
            sessions=(session,) if session.turns else (),
            unknown=dict(rollout.unknown),
            broken=lines.broken,
            offset=source.path.stat().st_size if packed else lines.offset,
        )


class _Rollout:
    """What the records of one file say. What was said is taken from the program's events, which have no injected
    messages; what was done from the model's calls, which name their tools."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unknown: Counter[str] = Counter()
        self._draft = Draft()
        self._meta: dict[str, Any] | None = None
        self._cwd: str | None = None
        self._times: list[datetime | None] = []
        self._complete = False
        self._patches: dict[str, list[dict[str, Any]]] = {}
        self._at: datetime | None = None
        self._place = Place(path=str(path), offset=0)

    def take(self, offset: int, record: dict[str, Any]) -> None:
        self._at = read_time(record.get("timestamp"))
        self._times.append(self._at)
        self._place = Place(path=str(self.path), offset=offset)
        match record:
            case {"type": "session_meta", "payload": dict(meta)}:
                self._meta = self._meta or meta  # a fork repeats that of the first session
            case {"type": "response_item", "payload": dict(item)}:
                self._take_item(item)
            case {"type": "event_msg", "payload": dict(event)}:
                self._take_event(event)
            case {"type": "turn_context", "payload": {"cwd": str(cwd)}}:
                self._cwd = self._cwd or cwd
            case _:
                self._note(clip(record.get("type")) or "no type")

    def session(self, digest: str) -> Session:
        meta = self._meta or {}
        git = meta.get("git") if isinstance(meta.get("git"), dict) else None
        started, ended = span(self._times)
        named = _THREAD.search(self.path.name)
        return Session(
            cli=CodexReader.cli,
            version=clip(meta.get("cli_version")) or None,
            id=clip(meta.get("id")) or (named[0] if named else self.path.stem),
            parent=self._parent(),
            origin=self._origin(),
            cwd=clip(meta.get("cwd")) or self._cwd,
            branch=clip((git or {}).get("branch")) or None,
            commit=clip((git or {}).get("commit_hash")) or None,
            started=started,
            ended=ended,
            complete=self._complete,
            turns=self._draft.turns(),
            digest=digest,
        )

    def _note(self, kind: str) -> None:
        if kind not in KNOWN:
            self.unknown[kind] += 1

    def _take_event(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "item_completed", "item": dict(item)}:
                self._take_completed(item)
            case {"type": "user_message", "message": str(text)}:
                self._say(text)
            case {"type": "agent_message", "message": str(text)}:
                self._draft.answer(clip(text))
            case {"type": "exec_command_end", "call_id": str(key)}:
                self._draft.result(key, **_read_end(event))
            case {"type": "patch_apply_end", "call_id": str(key), "success": bool(success)}:
                self._patch(key, success)
            case {"type": "thread_rolled_back", "num_turns": int(count)}:
                self._draft.take_back(count)
            case {"type": "task_started"}:
                self._complete = False
            case {"type": "task_complete"}:
                self._complete = True
            case {"type": "turn_aborted"}:
                self._complete = True
                self._draft.abort()
            case _:
                self._note(f"event_msg/{clip(event.get('type'))}")

    def _take_completed(self, item: dict[str, Any]) -> None:
        match item:
            case {"type": "UserMessage", "content": content}:
                self._say(_join(content), clip(item.get("id")))
            case {"type": "AgentMessage", "content": content}:
                self._draft.answer(clip(_join(content)))
            case {"type": "CommandExecution", "id": str(key)}:
                self._draft.result(key, **_read_end(item), output_at=self._place)
            case _:
                self._note(f"item_completed/{clip(item.get('type'))}")

    def _take_item(self, item: dict[str, Any]) -> None:
        match item:
            case {"type": "message", "role": "user", "content": content}:
                self._draft.inject(clip(_join(content)))
            case {"type": "function_call", "call_id": str(key), "name": str(tool), "arguments": str(arguments)}:
                self._call(key, tool, read_record(arguments.encode()) or {})
            case {"type": "custom_tool_call", "call_id": str(key), "name": str(tool), "input": str(text)}:
                self._call(key, tool, {"input": text})
            case {"type": "local_shell_call", "call_id": str(key), "action": dict(action)}:
                self._call(key, "local_shell", action)
            case {"type": "function_call_output" | "custom_tool_call_output", "call_id": str(key), "output": output}:
                self._result(key, output)
            case _:
                self._note(f"response_item/{clip(item.get('type'))}")

    def _say(self, text: str, record: str = "") -> None:
        typed = text.rpartition(REQUEST)[2].strip()
        self._draft.say(clip(typed), self._speaker(), self._at, record=record)

    def _call(self, key: str, tool: str, given: dict[str, Any]) -> None:
        if tool == "apply_patch" and isinstance(given.get("input"), str):
            self._patches[key] = read_patch(given["input"], clip((self._meta or {}).get("cwd")) or "/")
            for index, edit in enumerate(self._patches[key]):
                self._draft.call(_nth(key, index), tool, path=edit["path"], at=self._at)
            return
        command = _command_of(given)
        self._draft.call(key, tool, at=self._at, **({"command": clip(command)} if command else {}))

    def _result(self, key: str, output: object) -> None:
        """Add what the model was shown. The event of a command's end, if there is one, says it better."""
        exit_code, text = _read_output(output)
        if key in self._patches:
            self._patch(key, exit_code == 0 or text.startswith("Success"))
        call = self._draft.find(key)
        if call is None or "output" in call:
            return
        known = {"exit": exit_code} if "command" in call else {}
        self._draft.result(key, output=clip(text), output_at=self._place, **known)

    def _patch(self, key: str, success: bool) -> None:
        for index, edit in enumerate(self._patches.get(key, ()) if success else ()):
            self._draft.result(_nth(key, index), **edit)

    def _parent(self) -> str | None:
        match self._meta:
            case {"parent_thread_id": str(parent)}:
                return parent
            case {"source": {"subagent": {"thread_spawn": {"parent_thread_id": str(parent)}}}}:
                return parent
        return None

    def _origin(self) -> Origin:
        match self._meta:
            case {"thread_source": "subagent"} | {"source": {"subagent": _}}:
                return Origin.SUBAGENT
            case {"source": str(source)} if source in INTERACTIVE:
                return Origin.INTERACTIVE
            case {"source": str(source)} if source in HEADLESS:
                return Origin.HEADLESS
        return Origin.OTHER

    def _speaker(self) -> Speaker:
        by_origin = {Origin.SUBAGENT: Speaker.AGENT, Origin.HEADLESS: Speaker.SCRIPT}
        return by_origin.get(self._origin(), Speaker.PERSON)


def read_patch(patch: str, cwd: str) -> list[dict[str, Any]]:
    """The edits of a patch in Codex's own form: what each file lost and got, with the lines around it.

    >>> read_patch("*** Update File: a.py\\n@@\\n x = 1\\n-y = 2\\n+y = 3\\n", "/repo")
    [{'path': '/repo/a.py', 'before': 'x = 1\\ny = 2\\n', 'after': 'x = 1\\ny = 3\\n', 'whole_file': False}]
    """
    edits: list[dict[str, Any]] = []
    kept = clip(patch)
    for line in kept.split("\n"):
        if found := _PATCHED.match(line):
            path = posixpath.join(cwd, found[2])
            edits.append({"path": path, "before": "", "after": "", "whole_file": found[1] == "Add" and kept == patch})
        elif edits and (moved := _MOVED.match(line)):
            edits[-1]["path"] = posixpath.join(cwd, moved[1])
        elif edits and line[:1] in {" ", "-", "+"}:
            for name, signs in (("before", " -"), ("after", " +")):
                edits[-1][name] += line[1:] + "\n" if line[0] in signs else ""
    return [edit | {"before": edit["before"] or None} for edit in edits]


def _read_end(event: dict[str, Any]) -> dict[str, Any]:
    """The end of a command. One that was interrupted has no true exit code."""
    code = event.get("exit_code")
    known = {"exit": code} if isinstance(code, int) and code >= 0 else {}
    return {"output": clip(event.get("aggregated_output")), **known}


def _read_output(output: object) -> tuple[int | None, str]:
    """The exit code and the text of an output. The code is before the text of the command, never in it."""
    if not isinstance(output, str):
        return None, _join(output)
    old = read_record(output.encode()) if output.startswith("{") else None
    match old:
        case {"output": str(text), "metadata": {"exit_code": int(code)}}:
            return code, text
    head, divider, text = output.partition("\nOutput:\n")
    found = _EXITED.search(head) if divider else None
    return int(found[1]) if found else None, text if found else output


def _command_of(given: dict[str, Any]) -> str | None:
    match given:
        case {"cmd": str(command)} | {"command": str(command)}:
            return command
        case {"command": [str(), "-c" | "-lc", str(command)]}:
            return command
        case {"command": [*words]} if words:
            return shlex.join(map(str, words))
    return None


def _join(content: object) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def _nth(key: str, index: int) -> str:
    """The key of one of several files that a call changes."""
    return f"{key}/{index}" if index else key
