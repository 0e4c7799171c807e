"""Transcripts as Claude Code and Codex write them, cut to the records that tell what happened."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

VERSIONS = {"claude-code": "2.1.197", "codex": "0.166.0"}


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that the agent ran, and what came of it."""

    command: str
    exit: int = 0
    output: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What the developer typed, and what the agent did then."""

    text: str
    ran: tuple[Ran, ...]
    answer: str = "Done."


@dataclass(frozen=True, slots=True)
class Story:
    """One session."""

    name: str
    repository: Path
    at: datetime
    turns: tuple[Said, ...]

    @property
    def id(self) -> str:
        return str(uuid5(NAMESPACE_URL, self.name))

    def stamp(self, minutes: float) -> str:
        return f"{self.at + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%S.000Z}"


def write_claude_code(home: Path, story: Story) -> None:
    """Write a session into the home folder as Claude Code does."""
    folder = "".join(letter if letter.isalnum() else "-" for letter in str(story.repository))
    _write(home / ".claude/projects" / folder / f"{story.id}.jsonl", _claude_records(story), story.at)


def _claude_records(story: Story) -> Iterator[dict[str, Any]]:
    parent: str | None = None
    for number, (kind, content, more) in enumerate(_claude_messages(story)):
        name = str(uuid5(NAMESPACE_URL, f"{story.name} {number}"))
        yield {
            "parentUuid": parent,
            "isSidechain": False,
            "type": kind,
            "message": {"role": kind, "content": content, **({"id": f"msg_{number}"} if kind == "assistant" else {})},
            "uuid": name,
            "timestamp": story.stamp(number),
            "userType": "external",
            "entrypoint": "cli",
            "cwd": str(story.repository),
            "sessionId": story.id,
            "version": VERSIONS["claude-code"],
            "gitBranch": "main",
            **more,
        }
        parent = name


def _claude_messages(story: Story) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The records of a session: who speaks, the content, and further fields."""
    calls = 0
    for said in story.turns:
        yield "user", said.text, {"promptSource": "typed", "origin": {"kind": "human"}}
        for ran in said.ran:
            calls += 1
            call = f"toolu_{calls}"
            yield "assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": ran.command}}], {}
            failed = f"Exit code {ran.exit}\n" if ran.exit else ""
            result = {"tool_use_id": call, "type": "tool_result", "content": f"{failed}{ran.output}"}
            told: Any = f"Error: {failed}{ran.output}" if ran.exit else {"stdout": ran.output, "stderr": ""}
            yield "user", [{**result, "is_error": bool(ran.exit)}], {"toolUseResult": told}
        yield "assistant", [{"type": "text", "text": said.answer}], {}


def write_codex(home: Path, story: Story) -> None:
    """Write a session into the home folder as Codex does."""
    place = home / f".codex/sessions/{story.at:%Y/%m/%d}/rollout-{story.at:%Y-%m-%dT%H-%M-%S}-{story.id}.jsonl"
    items = enumerate(_codex_items(story))
    records = ({"timestamp": story.stamp(number), "ordinal": number, **item} for number, item in items)
    _write(place, records, story.at)


def _codex_items(story: Story) -> Iterator[dict[str, Any]]:
    meta = {"id": story.id, "session_id": story.id, "cwd": str(story.repository), "source": "cli"}
    version = {"cli_version": VERSIONS["codex"], "thread_source": "user", "git": {"branch": "main"}}
    yield {"type": "session_meta", "payload": {**meta, **version}}
    calls = 0
    for number, said in enumerate(story.turns):
        turn = f"turn-{number}"
        yield _event("task_started", turn_id=turn)
        yield {"type": "turn_context", "payload": {"turn_id": turn, "cwd": str(story.repository), "model": "m1"}}
        yield _item(turn, type="UserMessage", id=f"said-{number}", content=[{"type": "text", "text": said.text}])
        for ran in said.ran:
            calls += 1
            call = f"call_{calls}"
            arguments = json.dumps({"cmd": ran.command})
            yield _response(type="function_call", name="exec_command", call_id=call, arguments=arguments)
            yield _item(
                turn,
                type="CommandExecution",
                id=call,
                command=["/bin/bash", "-lc", ran.command],
                cwd=f"file://{story.repository}",
                status="failed" if ran.exit else "completed",
                aggregated_output=ran.output,
                exit_code=ran.exit,
            )
            output = f"Process exited with code {ran.exit}\nOutput:\n{ran.output}"
            yield _response(type="function_call_output", call_id=call, output=output)
        yield _item(turn, type="AgentMessage", id=f"answer-{number}", content=[{"type": "Text", "text": said.answer}])
        yield _event("task_complete", turn_id=turn)


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **fields}}


def _item(turn: str, **item: Any) -> dict[str, Any]:
    return _event("item_completed", turn_id=turn, item=item)


def _response(**payload: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": payload}


def _write(place: Path, records: Iterable[dict[str, Any]], at: datetime) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    written = (at + timedelta(hours=1)).timestamp()  # or the session would count as still in use
    os.utime(place, (written, written))
