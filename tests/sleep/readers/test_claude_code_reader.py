"""Claude Code's transcripts: what is said by whom, and which records count."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.story import CORRECTION, FIX, home_of, said, sessions_of, tell
from whet.ids import new_session_id
from whet.sleep.readers.claude_code import ClaudeCodeReader
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Session, Speaker, Turn

READER = ClaudeCodeReader()
Record = dict[str, Any]
PERSON = {"entrypoint": "cli", "promptSource": "typed", "cwd": "/repo", "version": "2.1.197"}


def _user(uuid: str, parent: str | None, text: object, **more: Any) -> Record:
    message = {"role": "user", "content": text}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message} | PERSON | more


def _answer(uuid: str, parent: str | None, *parts: Record, **message: Any) -> Record:
    content = {"id": f"msg-{uuid}", "model": "m1", "role": "assistant", "content": list(parts)} | message
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": content}


def _text(text: str) -> Record:
    return {"type": "text", "text": text}


def _bash(key: str, command: str) -> Record:
    return {"type": "tool_use", "id": key, "name": "Bash", "input": {"command": command}}


def _result(uuid: str, parent: str, key: str, content: str, structured: object = None, **part: Any) -> Record:
    block = {"type": "tool_result", "tool_use_id": key, "content": content} | part
    return _user(uuid, parent, [block], toolUseResult=structured)


def _enqueue(text: str, operation: str = "enqueue") -> Record:
    return {"type": "queue-operation", "operation": operation, "content": text, "timestamp": "2026-11-16T15:20:57Z"}


def _read(folder: Path, *records: Record, name: str = "5f0c") -> Reading:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return READER.read(Source(path))


def _session(folder: Path, *records: Record, name: str = "5f0c") -> Session:
    (session,) = _read(folder, *records, name=name).sessions
    return session


def _turns(folder: Path, *records: Record) -> list[str]:
    return [turn.text for turn in _session(folder, *records).turns]


def test_a_session_at_a_terminal_is_said_by_a_person() -> None:
    (session,) = sessions_of(READER, home_of("claude-code-interactive"))
    assert session.origin is Origin.INTERACTIVE
    assert [speaker for _, speaker in said(session)] == [Speaker.PERSON] * 3
    assert [tell(turn) for turn in session.turns[:2]] == [FIX, CORRECTION]
    assert session.turns[2].aborted
    assert session.complete, "it was left with /exit"


def test_an_edit_has_the_whole_file_before_and_after() -> None:
    (session,) = sessions_of(READER, home_of("claude-code-interactive"))
    (edit,) = [step for step in session.turns[0].steps if step.is_edit]
    history = home_of("claude-code-interactive") / ".claude/file-history" / session.id
    assert edit.whole_file
    assert edit.before == (history / "5507de530952552d@v1").read_text()
    assert edit.after == (history / "5507de530952552d@v2").read_text()


def test_an_edit_that_failed_is_no_edit() -> None:
    session = next(one for one in sessions_of(READER) if one.id.startswith("3333"))
    (edit,) = [step for step in session.turns[0].steps if step.tool == "Edit"]
    assert edit.path == "/home/dev/shop/cart.py"
    assert not edit.is_edit


def test_the_folder_is_moved_by_its_variable(tmp_path: Path) -> None:
    moved = str(home_of("claude-code") / ".claude")
    assert len([*READER.find(tmp_path, {"CLAUDE_CONFIG_DIR": moved})]) == 4
    assert [*READER.find(tmp_path, {})] == []


@pytest.mark.parametrize(
    "injected",
    [
        _user("u2", "a1", "Continue from where you left off.", isMeta=True),
        _user("u2", "a1", "A summary of what was said.", isCompactSummary=True),
        _user("u2", "a1", "shown only", isVisibleInTranscriptOnly=True),
        _user("u2", "a1", "<local-command-stdout>Goodbye!</local-command-stdout>"),
        _user("u2", "a1", "<bash-input>ls</bash-input>"),
        _user("u2", "a1", "<system-reminder>be brief</system-reminder>"),
        _user("u2", "a1", "A task has ended.", origin={"kind": "task-notification"}),
        _user("u2", "a1", [_text("[Request interrupted by user]")]),
    ],
    ids=lambda record: str(record["message"]["content"])[:30],
)
def test_messages_of_the_program_open_no_turn(tmp_path: Path, injected: Record) -> None:
    records = [_user("u1", None, "Hello"), _answer("a1", "u1", _text("Hi")), injected]
    session = _session(tmp_path, *records, _answer("a2", "u2", _bash("t1", "ls")))
    assert said(session) == [("Hello", Speaker.PERSON)]
    assert [step.command for step in session.turns[0].steps] == ["ls"]


def test_what_follows_a_summary_with_nothing_said_before_is_a_turn_of_the_program(tmp_path: Path) -> None:
    summary = _user("u1", None, "A summary", isCompactSummary=True)
    session = _session(tmp_path, summary, _answer("a1", "u1", _bash("t1", "make")), _user("u2", "a1", "Go on"))
    assert said(session) == [("A summary", Speaker.HARNESS), ("Go on", Speaker.PERSON)]


def test_a_slash_command_takes_its_steps_from_the_turn_before(tmp_path: Path) -> None:
    command = (
        "<command-message>fix</command-message>\n<command-name>/fix</command-name>\n<command-args>12</command-args>"
    )
    session = _session(
        tmp_path,
        _user("u1", None, "Hello"),
        _answer("a1", "u1", _text("Hi")),
        _user("u2", "a1", command),
        _user("u3", "u2", "Fix the issue with this number.", isMeta=True),
        _answer("a2", "u3", _bash("t1", "make")),
    )
    assert said(session) == [("Hello", Speaker.PERSON), ("/fix 12", Speaker.HARNESS)]
    assert [len(turn.steps) for turn in session.turns] == [0, 1]


def test_an_answer_that_the_program_made_up_is_none(tmp_path: Path) -> None:
    made_up = _answer("a2", "a1", _text("No response requested."), model="<synthetic>")
    (turn,) = _session(tmp_path, _user("u1", None, "Hello"), _answer("a1", "u1", _text("Hi")), made_up).turns
    assert turn.answer == "Hi"


def test_what_was_typed_while_the_agent_worked_is_a_turn(tmp_path: Path) -> None:
    session = _session(
        tmp_path,
        _enqueue("Build it"),
        _enqueue("", "dequeue"),
        _user("u1", None, "Build it"),
        _answer("a1", "u1", _bash("t1", "npm run build")),
        _enqueue("No, use make"),
        _enqueue("", "remove"),
        _result("r1", "a1", "t1", "ok", {"stdout": "ok"}),
        _answer("a2", "r1", _bash("t2", "make")),
    )
    assert said(session) == [("Build it", Speaker.PERSON), ("No, use make", Speaker.PERSON)]
    assert [[step.command for step in turn.steps] for turn in session.turns] == [["npm run build"], ["make"]]


def test_what_was_typed_and_mirrored_into_the_turn_is_one_turn(tmp_path: Path) -> None:
    mirrored = {"type": "queued_command", "prompt": "No, use make", "commandMode": "prompt"}
    attachment = {"type": "attachment", "uuid": "q1", "parentUuid": "a1", "attachment": mirrored}
    records = [_user("u1", None, "Build it"), _answer("a1", "u1", _bash("t1", "npm")), _enqueue("No, use make")]
    assert _turns(tmp_path, *records, attachment) == ["Build it", "No, use make"]


def test_what_was_taken_back_from_the_queue_was_not_said(tmp_path: Path) -> None:
    records = [_user("u1", None, "Build it"), _enqueue("No, use mak"), _enqueue("", "popAll"), _enqueue("No, use make")]
    assert _turns(tmp_path, *records) == ["Build it", "No, use make"]


def test_a_queued_command_or_notice_is_no_turn(tmp_path: Path) -> None:
    queued = [_enqueue("/compact"), _enqueue("<task-notification>done</task-notification>")]
    assert _turns(tmp_path, _user("u1", None, "Hello"), *queued) == ["Hello"]
    assert _turns(tmp_path, _user("u1", None, "Hello"), _enqueue("/etc/hosts is wrong"))[1:] == ["/etc/hosts is wrong"]


def test_abandoned_branches_are_left_out(tmp_path: Path) -> None:
    records = [
        _user("u1", None, "Hello"),
        _answer("a1", "u1", _text("Hi")),
        _user("u2", "a1", "Delete everything"),
        _answer("a2", "u2", _bash("t1", "rm -rf .")),
        _user("u3", "a1", "Tidy up"),
        _answer("a3", "u3", _bash("t2", "git status")),
    ]
    assert _turns(tmp_path, *records) == ["Hello", "Tidy up"]
    chosen = {"type": "last-prompt", "leafUuid": "a2"}
    assert _turns(tmp_path, *records, chosen) == ["Hello", "Delete everything"]
    later = _user("u4", "a3", "Go on")
    assert _turns(tmp_path, *records, chosen, later) == ["Hello", "Tidy up", "Go on"]


def test_a_compaction_does_not_cut_the_tree(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "s1", "parentUuid": None}
    records = [
        _user("u1", None, "Hello"),
        _answer("a1", "u1", _text("Hi")),
        boundary | {"logicalParentUuid": "a1"},
        _user("u2", "s1", "A summary", isCompactSummary=True),
        _user("u3", "u2", "Go on"),
    ]
    assert _turns(tmp_path, *records) == ["Hello", "Go on"]
    assert _turns(tmp_path, *records[:2], boundary, *records[3:]) == ["Go on"]


def test_a_lost_record_does_not_lose_those_before_it(tmp_path: Path) -> None:
    assert _turns(tmp_path, _user("u1", None, "Hello"), _user("u2", "lost", "Go on")) == ["Hello", "Go on"]


def test_a_ring_of_parents_ends(tmp_path: Path) -> None:
    assert _turns(tmp_path, _user("u1", "u1", "Hello"), _user("u2", "u1", "Go on")) == ["Hello", "Go on"]


def test_calls_made_side_by_side_all_have_their_results(tmp_path: Path) -> None:
    """An answer has a record for each part. The results hang on different ones, and only the last leads on."""
    (turn,) = _session(
        tmp_path,
        _user("u1", None, "Hello"),
        _answer("a1", "u1", _bash("t1", "make test"), id="msg"),
        _answer("a2", "a1", _bash("t2", "make lint"), id="msg"),
        _result("r2", "a2", "t2", "Exit code 2\nbad", is_error=True),
        _result("r1", "a1", "t1", "fine", {"stdout": "fine"}),
        _answer("a3", "r1", _text("Done")),
    ).turns
    assert [(step.command, step.exit, step.output) for step in turn.steps] == [
        ("make test", 0, "fine"),
        ("make lint", 2, "Exit code 2\nbad"),
    ]
    assert turn.answer == "Done"


@pytest.mark.parametrize(
    ("content", "structured", "part", "expected"),
    [
        ("Exit code 254\nnpm error", "Error: Exit code 254", {"is_error": True}, 254),
        ("Exit code 1", "Error: Exit code 1", {"is_error": True}, 1),
        ("the log says\nExit code 3", "Error", {"is_error": True}, None),
        ("Exit code 3 was printed", {"stdout": "Exit code 3 was printed"}, {"is_error": False}, 0),
        ("Exit code 3", {"stdout": "Exit code 3"}, {"is_error": False}, 0),
        ("ok", None, {"is_error": False}, 0),
        ("ok", None, {}, None),
        ("", {"stdout": "", "interrupted": True}, {"is_error": False}, None),
        ("", {"stdout": "", "backgroundTaskId": "b1"}, {"is_error": False}, None),
        ("", {"stdout": "", "returnCodeInterpretation": "No matches found"}, {"is_error": False}, None),
        ("The user doesn't want to proceed with this tool use.", "User rejected", {"is_error": True}, None),
    ],
)
def test_the_exit_code_is_known_or_unknown(
    tmp_path: Path, content: str, structured: object, part: Record, expected: int | None
) -> None:
    records = [_user("u1", None, "Hello"), _answer("a1", "u1", _bash("t1", "make"))]
    result = _result("r1", "a1", "t1", content, structured, **part)
    assert _session(tmp_path, *records, result).turns[0].steps[0].exit == expected


def test_only_commands_have_exit_codes(tmp_path: Path) -> None:
    read = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a"}}
    records = [_user("u1", None, "Hello"), _answer("a1", "u1", read), _result("r1", "a1", "t1", "x", is_error=False)]
    (step,) = _session(tmp_path, *records).turns[0].steps
    assert (step.path, step.exit) == ("/a", None)


def _edited(folder: Path, structured: Record) -> Turn:
    edit = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "/a"}}
    records = [_user("u1", None, "Hello"), _answer("a1", "u1", edit), _result("r1", "a1", "t1", "ok", structured)]
    return _session(folder, *records).turns[0]


def test_edits_of_all_occurrences_new_files_and_long_files(tmp_path: Path) -> None:
    old_and_new = {"filePath": "/a", "oldString": "x", "newString": "y"}
    (step,) = _edited(tmp_path, old_and_new | {"originalFile": "x x", "replaceAll": True}).steps
    assert (step.before, step.after, step.whole_file) == ("x x", "y y", True)
    (step,) = _edited(tmp_path, old_and_new | {"originalFile": "x" + "z" * (64 << 10)}).steps
    assert (step.before, step.after, step.whole_file) == ("x", "y", False)
    (step,) = _edited(tmp_path, {"type": "create", "filePath": "/a", "content": "new", "originalFile": None}).steps
    assert (step.before, step.after, step.whole_file) == (None, "new", True)


def test_a_fork_repeats_turns_with_their_ids(tmp_path: Path) -> None:
    first = [_user("u1", None, "Hello"), _answer("a1", "u1", _text("Hi"))]
    old = _session(tmp_path, *first, name="first")
    fork = _session(tmp_path, *first, _user("u2", "a1", "Another way"), name="second")
    assert [turn.id for turn in old.turns] == ["u1"]
    assert [turn.id for turn in fork.turns] == ["u1", "u2"]
    assert (old.id, fork.id) == ("first", "second")


def test_records_that_are_written_again_count_once(tmp_path: Path) -> None:
    records = [_user("u1", None, "Hello"), _answer("a1", "u1", _bash("t1", "ls"))]
    (turn,) = _session(tmp_path, *records, *records).turns
    assert len(turn.steps) == 1


def test_unknown_records_are_counted(tmp_path: Path) -> None:
    reading = _read(tmp_path, _user("u1", None, "Hello"), {"type": "hologram"}, {"type": "hologram"}, {"n": 1})
    assert reading.unknown == {"hologram": 2, "no type": 1}


def test_sub_agents_of_old_versions_in_the_same_file_are_left_out(tmp_path: Path) -> None:
    side = [_user("x1", None, "HELPER: look", isSidechain=True), _answer("y1", "x1", _bash("t9", "ls"))]
    side[1]["isSidechain"] = True
    assert _turns(tmp_path, _user("u1", None, "Hello"), *side) == ["Hello"]


def test_a_session_that_whet_started_is_known_by_its_id(tmp_path: Path) -> None:
    record = _user("u1", None, "Hello", entrypoint="sdk-cli", promptSource="sdk")
    assert _session(tmp_path, record, name=new_session_id()).origin is Origin.WHET
    assert _session(tmp_path, record).origin is Origin.HEADLESS


def test_a_terminal_at_which_only_commands_were_typed_is_no_script(tmp_path: Path) -> None:
    command = _user("u1", None, "<command-name>/review</command-name>")
    session = _session(tmp_path, command, _answer("a1", "u1", _bash("t1", "git diff")))
    assert (session.origin, said(session)) == (Origin.INTERACTIVE, [("/review", Speaker.HARNESS)])


def test_a_person_may_write_about_commands(tmp_path: Path) -> None:
    text = "Why does <command-name>/fix</command-name> not work?"
    assert said(_session(tmp_path, _user("u1", None, text))) == [(text, Speaker.PERSON)]


def test_a_sub_agent_is_known_by_its_file(tmp_path: Path) -> None:
    record = _user("u1", None, "HELPER: look", isSidechain=True, sessionId="parent", agentId="a1")
    session = _session(tmp_path, record, name="agent-a1")
    assert (session.id, session.parent, session.origin) == ("a1", "parent", Origin.SUBAGENT)
    assert _session(tmp_path, _user("u0", None, "Hello"), record).origin is Origin.INTERACTIVE


def test_a_transcript_without_marks_says_that_the_origin_is_unknown(tmp_path: Path) -> None:
    record = _user("u1", None, "Hello")
    del record["entrypoint"], record["promptSource"]
    assert _session(tmp_path, record).origin is Origin.OTHER


def test_a_file_in_which_nothing_was_said_is_no_session(tmp_path: Path) -> None:
    assert _read(tmp_path, {"type": "summary", "summary": "x"}).sessions == ()
