"""Codex's transcripts: sub-agents among the sessions, duplicates, patches, exit codes, old and archived files."""

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from support.story import home_of, said, sessions_of
from whet.sleep.readers.codex import CodexReader
from whet.sleep.readers.jsonl import FIELD_LIMIT
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Session, Speaker, Step

READER = CodexReader()
Record = dict[str, Any]
FIRST = "rollout-2026-11-16T15-21-04-01a1e4f2-925b-78f1-892f-a3932f7a5b8f.jsonl"
META = {"id": "t1", "cwd": "/repo", "source": "cli", "thread_source": "user", "cli_version": "0.166.0"}


def _record(kind: str, **payload: Any) -> Record:
    return {"timestamp": "2026-11-16T15:21:04.932Z", "type": kind, "payload": payload}


def _item(kind: str, **item: Any) -> Record:
    return _record("event_msg", type="item_completed", item={"type": kind} | item)


def _said(text: str, item: str = "i1") -> Record:
    return _item("UserMessage", id=item, content=[{"type": "text", "text": text}])


def _call(key: str, tool: str = "exec_command", **arguments: Any) -> Record:
    return _record("response_item", type="function_call", call_id=key, name=tool, arguments=json.dumps(arguments))


def _output(key: str, output: object) -> Record:
    return _record("response_item", type="function_call_output", call_id=key, output=output)


def _read(folder: Path, *records: Record, meta: Record | None = None, name: str = "rollout-x.jsonl") -> Reading:
    path = folder / name
    head = _record("session_meta", **(META if meta is None else meta))
    path.write_text("".join(json.dumps(record) + "\n" for record in (head, *records)))
    return READER.read(Source(path))


def _session(folder: Path, *records: Record, meta: Record | None = None) -> Session:
    (session,) = _read(folder, *records, meta=meta).sessions
    return session


def _steps(folder: Path, *records: Record) -> tuple[Step, ...]:
    return _session(folder, _said("Go"), *records).turns[0].steps


def _injected(text: str) -> Record:
    return _record("response_item", type="message", role="user", content=[{"type": "input_text", "text": text}])


@pytest.mark.parametrize(
    "text",
    [
        "# AGENTS.md instructions",
        "<environment_context>",
        "<turn_aborted>",
        "<subagent_notification>",
        "a repeated word",
    ],
)
def test_messages_to_the_model_alone_open_no_turn(tmp_path: Path, text: str) -> None:
    session = _session(tmp_path, _injected(text), _said("Hello"), _injected(text), _call("c1", cmd="ls"))
    assert said(session) == [("Hello", Speaker.PERSON)]
    assert len(session.turns[0].steps) == 1


def test_a_message_that_is_written_twice_is_one_turn(tmp_path: Path) -> None:
    old = _record("event_msg", type="user_message", message="Hello")
    for event in (_said("Hello"), old):
        assert said(_session(tmp_path, _injected("Hello"), event)) == [("Hello", Speaker.PERSON)]
    answered = _record("event_msg", type="agent_message", message="Hi")
    assert _session(tmp_path, old, answered).turns[0].answer == "Hi"


def test_what_an_editor_adds_is_not_said_by_the_person(tmp_path: Path) -> None:
    text = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nUse make\n"
    assert said(_session(tmp_path, _said(text))) == [("Use make", Speaker.PERSON)]


@pytest.mark.parametrize(
    ("meta", "origin", "speaker"),
    [
        ({"source": "exec"}, Origin.HEADLESS, Speaker.SCRIPT),
        ({"source": "cli"}, Origin.INTERACTIVE, Speaker.PERSON),
        ({"source": "vscode"}, Origin.INTERACTIVE, Speaker.PERSON),
        ({"source": "moon"}, Origin.OTHER, Speaker.PERSON),
        ({"source": "exec", "thread_source": "subagent"}, Origin.SUBAGENT, Speaker.AGENT),
        ({"source": {"subagent": "review"}}, Origin.SUBAGENT, Speaker.AGENT),
        (
            {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p1"}}}},
            Origin.SUBAGENT,
            Speaker.AGENT,
        ),
    ],
)
def test_who_started_it_is_in_the_first_record(tmp_path: Path, meta: Record, origin: Origin, speaker: Speaker) -> None:
    session = _session(tmp_path, _said("Hello"), meta=META | meta)
    assert (session.origin, session.turns[0].said_by) == (origin, speaker)


def test_a_fork_keeps_its_own_id(tmp_path: Path) -> None:
    copied = [_record("session_meta", **(META | {"id": "older"})), _said("Hello", "i1")]
    session = _session(tmp_path, *copied, _said("Another way", "i2"))
    assert session.id == "t1"
    assert [turn.id for turn in session.turns] == ["i1", "i2"]


def test_turns_that_were_taken_back_are_left_out(tmp_path: Path) -> None:
    back = _record("event_msg", type="thread_rolled_back", num_turns=1)
    session = _session(tmp_path, _said("Hello"), _said("Delete everything"), back, _said("Tidy up"))
    assert [turn.text for turn in session.turns] == ["Hello", "Tidy up"]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Chunk ID: 1\nProcess exited with code 254\nOutput:\nnpm error", (254, "npm error")),
        ("Chunk ID: 1\nProcess running with session ID 3\nOutput:\nProcess exited with code 0", (None, None)),
        ("Exit code: 2\nWall time: 1 seconds\nOutput:\nbad", (2, "bad")),
        (json.dumps({"output": "bad", "metadata": {"exit_code": 3}}), (3, "bad")),
        ("Wall time: 4.0 seconds\naborted by user", (None, None)),
        ("Process exited with code 0", (None, None)),
    ],
)
def test_the_exit_code_is_read_before_the_output_and_never_in_it(
    tmp_path: Path, output: str, expected: tuple[int | None, str | None]
) -> None:
    (step,) = _steps(tmp_path, _call("c1", cmd="make"), _output("c1", output))
    assert (step.exit, step.output) == (expected[0], expected[1] if expected[1] is not None else output)


def test_the_end_of_a_command_says_more_than_what_the_model_saw(tmp_path: Path) -> None:
    end = _item("CommandExecution", id="c1", exit_code=1, aggregated_output="all of it", status="failed")
    running = _output("c1", "Process running with session ID 3\nOutput:\npart")
    (step,) = _steps(tmp_path, _call("c1", cmd="make"), running, end)
    assert (step.exit, step.output) == (1, "all of it")
    (step,) = _steps(tmp_path, _call("c1", cmd="make"), _item("CommandExecution", id="c1", exit_code=-1))
    assert step.exit is None, "it was killed"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"cmd": "npm test"}, "npm test"),
        ({"command": "npm test"}, "npm test"),
        ({"command": ["bash", "-lc", "npm test"]}, "npm test"),
        ({"command": ["git", "log", "-n 1"]}, "git log '-n 1'"),
        ({"plan": []}, None),
    ],
)
def test_commands_are_found_in_every_form(tmp_path: Path, arguments: Record, command: str | None) -> None:
    assert [step.command for step in _steps(tmp_path, _call("c1", "shell", **arguments))] == [command]


PATCH = """*** Begin Patch
*** Update File: a.py
@@ def f():
 x = 1
-y = 2
+y = 3
*** Add File: b.py
+new
*** End Patch
"""


@pytest.mark.parametrize(
    ("result", "edited"),
    [("Exit code: 0\nOutput:\nSuccess. Updated the following files:", True), ("Exit code: 1\nOutput:\nno", False)],
)
def test_a_patch_is_one_edit_a_file_if_it_was_applied(tmp_path: Path, result: str, edited: bool) -> None:
    call = _record("response_item", type="custom_tool_call", call_id="c1", name="apply_patch", input=PATCH)
    done = _record("response_item", type="custom_tool_call_output", call_id="c1", output=result)
    steps = _steps(tmp_path, call, done)
    assert [(step.path, step.is_edit) for step in steps] == [("/repo/a.py", edited), ("/repo/b.py", edited)]
    if edited:
        assert [(step.before, step.after) for step in steps] == [("x = 1\ny = 2\n", "x = 1\ny = 3\n"), (None, "new\n")]


def test_a_patch_that_moves_a_file_edits_the_new_one(tmp_path: Path) -> None:
    patch = "*** Update File: a.py\n*** Move to: c.py\n@@\n-x\n+y\n"
    call = _record("response_item", type="custom_tool_call", call_id="c1", name="apply_patch", input=patch)
    assert [step.path for step in _steps(tmp_path, call)] == ["/repo/c.py"]


def test_an_output_in_parts_is_joined(tmp_path: Path) -> None:
    parts = [{"type": "input_text", "text": "one"}, {"type": "input_image"}, {"type": "input_text", "text": "two"}]
    (step,) = _steps(tmp_path, _call("c1", "view_image", path="a.png"), _output("c1", parts))
    assert step.output == "one\ntwo"


def test_a_huge_patch_is_shortened_before_it_is_read(tmp_path: Path) -> None:
    patch = "*** Add File: b.py\n" + "+x\n" * 1_000_000
    call = _record("response_item", type="custom_tool_call", call_id="c1", name="apply_patch", input=patch)
    (step,) = _steps(tmp_path, call, _output("c1", "Success. Updated the following files:"))
    assert step.is_edit
    assert len(step.after or "") < FIELD_LIMIT
    assert not step.whole_file


def test_a_session_is_complete_when_its_last_task_ended(tmp_path: Path) -> None:
    begun, ended = _record("event_msg", type="task_started"), _record("event_msg", type="task_complete")
    assert not _session(tmp_path, begun, _said("Hello")).complete
    assert _session(tmp_path, begun, _said("Hello"), ended).complete
    assert not _session(tmp_path, begun, _said("Hello"), ended, begun).complete


def test_archived_and_compressed_files_are_found_and_read(tmp_path: Path) -> None:
    (day,) = (home_of("codex") / ".codex").rglob("16")
    content = (day / FIRST).read_bytes()
    archive = tmp_path / ".codex/archived_sessions"
    archive.mkdir(parents=True)
    packed = archive / f"{FIRST}.zst"
    packed.write_bytes(zstandard.compress(content))
    (source,) = READER.find(tmp_path, {})
    reading = READER.read(source)
    plain = READER.read(Source(day / FIRST))
    assert [turn.text for turn in reading.sessions[0].turns] == [turn.text for turn in plain.sessions[0].turns]
    assert reading.offset == packed.stat().st_size
    (archive / FIRST).write_bytes(content)
    assert [*READER.find(tmp_path, {})] == [Source(archive / FIRST)]


def test_the_folder_is_moved_by_its_variable(tmp_path: Path) -> None:
    assert len([*READER.find(tmp_path, {"CODEX_HOME": str(home_of("codex") / ".codex")})]) == 4
    assert [*READER.find(tmp_path, {})] == []


def test_no_file_but_the_rollouts_is_read(tmp_path: Path) -> None:
    for name in ("auth.json", "shell_snapshots/1.sh", "sessions/2026/notes.jsonl", "state_5.sqlite"):
        (tmp_path / ".codex" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".codex" / name).write_text("{}\n")
    assert [*READER.find(tmp_path, {})] == []


def test_unknown_records_are_counted_with_their_kind(tmp_path: Path) -> None:
    odd = [_record("hologram"), _record("event_msg", type="hologram"), _item("Hologram")]
    reading = _read(tmp_path, _said("Hello"), *odd, _record("response_item", type="hologram"))
    assert reading.unknown == {
        "hologram": 1,
        "event_msg/hologram": 1,
        "item_completed/Hologram": 1,
        "response_item/hologram": 1,
    }


def test_the_commit_is_that_of_the_start() -> None:
    assert {one.commit for one in sessions_of(READER)} == {"1362c18372aeda84efd678330622e1166d425457"}
    assert {one.branch for one in sessions_of(READER)} == {"main"}
