"""Reads the transcripts of Copilot CLI: one file of events a session, with those of its sub-agents among them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.agents.copilot import Copilot
from whet.ids import is_own_session
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import FIELD_LIMIT, Lines, clip, read_time
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker, Turn

KNOWN = frozenset(
    {
        *("session.permissions_changed", "session.usage_record", "session.model_change"),
        *("session.compaction_start", "session.compaction_complete", "assistant.turn_start", "assistant.turn_end"),
        *(f"subagent.{event}" for event in ("started", "selected", "configured", "completed")),
        *(f"model.{event}" for event in ("turn_started", "model_call_started", "model_call_success", "message")),
        *("model.response", "model.turn_ended", "model.messages_snapshot"),
    }
)
"""Events that hold nothing that was said or done, or say again what others say."""
WITHOUT_TERMINAL = "non-interactive mode"
"""What the system prompt says of a start without a terminal. No event says it."""
_SHELL_END = re.compile(r"\n?<shellId: \S+ completed with exit code -?\d+>\s*$")


@dataclass(slots=True)
class _Thread:
    """The main agent or a sub-agent."""

    draft: Draft = field(default_factory=Draft)
    times: list[datetime | None] = field(default_factory=list)
    given: dict[str, object] = field(default_factory=dict)
    """The arguments of calls that have no result yet."""


class CopilotReader:
    """Reads `session-state/SESSION/events.jsonl`."""

    cli = "copilot"
    tested = "1.0.102"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        states = Copilot.traits.locate(Copilot.traits.transcripts, home, env)
        yield from (Source(path) for path in sorted(states.glob("*/events.jsonl")) if path.is_file())

    def read(self, source: Source) -> Reading:
        events = _Events(source.path)
        lines = Lines(source.path)
        for offset, record in lines:
            events.take(offset, record)
        return Reading(
            sessions=tuple(session for session in events.sessions(lines.digest) if session.turns),
            unknown=dict(events.unknown),
            broken=lines.broken,
            offset=lines.offset,
        )


class _Events:
    """What the events of one file say, the main agent's and each sub-agent's apart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unknown: Counter[str] = Counter()
        self._threads: dict[str, _Thread] = {"": _Thread()}
        self._start: dict[str, Any] = {}
        self._context: dict[str, Any] = {}
        self._headless = False
        self._complete = False

    def take(self, offset: int, record: dict[str, Any]) -> None:
        agent = clip(record.get("agentId"))
        thread = self._threads.setdefault(agent, _Thread())
        at = read_time(record.get("timestamp"))
        thread.times.append(at)
        kind, held = clip(record.get("type")), record.get("data")
        data: dict[str, Any] = held if isinstance(held, dict) else {}
        match kind, data:
            case "user.message", {"content": str(text)}:
                self._say(thread.draft, record, clip(text), agent)
            case "assistant.message", {"content": text}:
                thread.draft.answer(clip(text))
            case "tool.execution_start", {"toolCallId": str(key), "toolName": str(tool)}:
                thread.given[key] = data.get("arguments")
                thread.draft.call(key, tool, at=at, **_read_call(thread.given[key]))
            case "tool.execution_complete", {"toolCallId": str(key)}:
                place = Place(path=str(self.path), offset=offset)
                thread.draft.result(key, output_at=place, **_read_result(data, thread.given.pop(key, None)))
            case "abort", _:
                thread.draft.abort()
            case _ if kind not in KNOWN and not self._take_state(kind, data):
                self.unknown[kind or "no type"] += 1

    def sessions(self, digest: str) -> Iterator[Session]:
        main = clip(self._start.get("sessionId")) or self.path.parent.name
        for agent, thread in self._threads.items():
            started, ended = span(thread.times)
            yield Session(
                cli=CopilotReader.cli,
                version=clip(self._start.get("copilotVersion")) or None,
                id=agent or main,
                parent=main if agent else None,
                origin=Origin.SUBAGENT if agent else self._origin(main),
                cwd=clip(self._context.get("cwd")) or None,
                branch=clip(self._context.get("branch")) or None,
                commit=clip(self._context.get("headCommit")) or None,
                started=started,
                ended=ended,
                complete=self._complete,
                turns=self._turns(thread),
                digest=digest,
            )

    def _take_state(self, kind: str, data: dict[str, Any]) -> bool:
        """Take what an event says of the session as a whole. False if it is no such event."""
        match kind, data:
            case "session.start", _:
                self._start = data
                self._context = data["context"] if isinstance(data.get("context"), dict) else {}
            case "session.resume", _:
                self._complete = False
            case "session.shutdown", _:
                self._complete = True
            case "system.message", {"content": str(prompt)}:
                self._headless = self._headless or WITHOUT_TERMINAL in prompt
            case _:
                return False
        return True

    def _say(self, draft: Draft, record: dict[str, Any], text: str, agent: str) -> None:
        """Take a message. One with a source comes from an agent or from the program."""
        if record["data"].get("source") and not agent:
            draft.inject(text)
        else:
            speaker = Speaker.AGENT if agent else Speaker.PERSON
            draft.say(text, speaker, read_time(record.get("timestamp")), record=clip(record.get("id")))

    def _turns(self, thread: _Thread) -> tuple[Turn, ...]:
        """The turns. That no person was there is known only after the first one."""
        turns = thread.draft.turns()
        if not self._headless:
            return turns
        script = {"said_by": Speaker.SCRIPT}
        return tuple(turn.model_copy(update=script) if turn.said_by is Speaker.PERSON else turn for turn in turns)

    def _origin(self, session: str) -> Origin:
        if is_own_session(session):
            return Origin.WHET
        return Origin.HEADLESS if self._headless else Origin.OTHER


def _read_call(given: object) -> dict[str, Any]:
    match given:
        case {"path": str(path)}:
            return {"path": clip(path)}
        case {"command": str(command)}:
            return {"command": clip(command)}
    return {}


def _read_result(data: dict[str, Any], given: object) -> dict[str, Any]:
    """The result of a call. It is a success for the program even if the command failed."""
    result = data.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    step: dict[str, Any] = {"output": _SHELL_END.sub("", clip(content))}
    match data:
        case {"shellExecution": {"exitCode": int(code)}}:
            step["exit"] = code
        case {"fileEdits": [_, *_], "success": True}:
            step |= _read_edit(given)
    return step


def _read_edit(given: object) -> dict[str, Any]:
    match given:
        case {"old_str": str(old), "new_str": str(new)}:
            return {"before": clip(old), "after": clip(new)}
        case {"file_text": str(text)}:
            return {"after": clip(text), "whole_file": len(text) <= FIELD_LIMIT}
    return {}
