"""Copilot CLI's transcripts: events of several agents in one file."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.story import home_of, said, sessions_of
from whet.ids import new_session_id
from whet.sleep.readers.copilot import CopilotReader
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Session, Speaker

READER = CopilotReader()
Record = dict[str, Any]


def _event(kind: str, agent: str = "", **data: Any) -> Record:
    record = {"type": kind, "id": f"{kind}-1", "timestamp": "2026-11-16T15:21:10.274Z", "data": data}
    return record | ({"agentId": agent} if agent else {})


def _start(session: str = "s1") -> Record:
    context = {"cwd": "/repo", "branch": "main", "headCommit": "abc"}
    return _event("session.start", sessionId=session, copilotVersion="1.0.102", context=context)


def _call(key: str, tool: str, agent: str = "", **arguments: Any) -> Record:
    return _event("tool.execution_start", agent, toolCallId=key, toolName=tool, arguments=arguments)


def _done(key: str, content: str = "", agent: str = "", **data: Any) -> Record:
    return _event("tool.execution_complete", agent, toolCallId=key, result={"content": content}, **data)


def _read(folder: Path, *records: Record) -> Reading:
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return READER.read(Source(path))


def _session(folder: Path, *records: Record) -> Session:
    return _read(folder, _start(), *records).sessions[0]


@pytest.mark.parametrize("code", [0, 1, 254])
def test_the_exit_code_counts_and_not_the_success_of_the_call(tmp_path: Path, code: int) -> None:
    text = f"out\n<shellId: 0 completed with exit code {code}>"
    done = _done("c1", text, success=True, shellExecution={"exitCode": code})
    session = _session(tmp_path, _event("user.message", content="Go"), _call("c1", "bash", command="make"), done)
    (step,) = session.turns[0].steps
    assert (step.command, step.exit, step.output) == ("make", code, "out")


def test_a_command_without_an_exit_code_has_none(tmp_path: Path) -> None:
    done = _done("c1", "completed with exit code 0", success=True)
    session = _session(tmp_path, _event("user.message", content="Go"), _call("c1", "bash", command="make"), done)
    assert session.turns[0].steps[0].exit is None


@pytest.mark.parametrize(
    ("done", "edited"),
    [({"success": True, "fileEdits": [{"path": "/a"}]}, True), ({"success": False}, False), ({"success": True}, False)],
)
def test_an_edit_counts_if_the_file_was_changed(tmp_path: Path, done: Record, edited: bool) -> None:
    call = _call("c1", "edit", path="/a", old_str="x", new_str="y")
    (step,) = _session(tmp_path, _event("user.message", content="Go"), call, _done("c1", **done)).turns[0].steps
    assert step.is_edit is edited
    assert (step.before, step.after) == (("x", "y") if edited else (None, None))


def test_a_new_file_is_an_edit_without_a_before(tmp_path: Path) -> None:
    call, done = (
        _call("c1", "create", path="/a", file_text="new"),
        _done("c1", success=True, fileEdits=[{"path": "/a"}]),
    )
    (step,) = _session(tmp_path, _event("user.message", content="Go"), call, done).turns[0].steps
    assert (step.before, step.after, step.whole_file) == (None, "new", True)


def test_messages_of_agents_and_of_the_program_are_not_the_persons(tmp_path: Path) -> None:
    main, helper = _read(
        tmp_path,
        _start(),
        _event("user.message", content="Go", transformedContent="<current_datetime/>Go"),
        _event("user.message", content="A task has ended.", source="system"),
        _event("user.message", "h1", content="HELPER: look", source="agent-s1"),
        _call("c1", "bash", "h1", command="ls"),
        _event("assistant.message", "h1", content="found"),
        _event("assistant.message", content="Done"),
    ).sessions
    assert said(main) == [("Go", Speaker.PERSON)]
    assert (main.turns[0].answer, main.turns[0].steps) == ("Done", ())
    assert said(helper) == [("HELPER: look", Speaker.AGENT)]
    assert (helper.id, helper.parent, helper.origin) == ("h1", "s1", Origin.SUBAGENT)


def test_a_resumed_session_is_complete_when_it_ends_again(tmp_path: Path) -> None:
    events = [_event("user.message", content="Go"), _event("session.shutdown"), _event("session.resume")]
    assert _session(tmp_path, *events[:2]).complete
    assert not _session(tmp_path, *events).complete
    assert _session(tmp_path, *events, _event("session.shutdown")).complete


def test_only_the_system_prompt_tells_a_script_from_a_person(tmp_path: Path) -> None:
    go, prompt = _event("user.message", content="Go"), _event("system.message", content="... non-interactive mode ...")
    session = _session(tmp_path, go, prompt)
    assert (session.origin, said(session)) == (Origin.HEADLESS, [("Go", Speaker.SCRIPT)])
    session = _session(tmp_path, go)
    assert (session.origin, said(session)) == (Origin.OTHER, [("Go", Speaker.PERSON)])


def test_a_session_that_whet_started_is_known_by_its_id(tmp_path: Path) -> None:
    reading = _read(tmp_path, _start(new_session_id()), _event("user.message", content="Go"))
    assert reading.sessions[0].origin is Origin.WHET


def test_the_commit_is_that_of_the_start() -> None:
    assert {one.commit for one in sessions_of(READER)} == {"1362c18372aeda84efd678330622e1166d425457"}


def test_the_folder_is_moved_by_its_variable(tmp_path: Path) -> None:
    assert len([*READER.find(tmp_path, {"COPILOT_HOME": str(home_of("copilot") / ".copilot")})]) == 3
    assert [*READER.find(tmp_path, {})] == []


def test_unknown_events_are_counted(tmp_path: Path) -> None:
    reading = _read(tmp_path, _start(), _event("user.message", content="Go"), _event("hologram"), {"n": 1})
    assert reading.unknown == {"hologram": 1, "no type": 1}
