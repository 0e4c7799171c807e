"""The Gemini CLI's transcripts: repeated records, several files for a session, and what only looks like a person."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.story import CORRECTED, CORRECTION, FIX, home_of, sessions_of, tell
from whet.sleep.readers.gemini import GeminiReader
from whet.sleep.readers.reader import Reading
from whet.sleep.session import Session, Turn

READER = GeminiReader()
CHATS = Path(".gemini/tmp/shop/chats")
STORY = "session-2026-11-16T15-21-11111111.jsonl"
SESSION = "11111111-2222-4333-8444-555555555555"
HEADER = {"sessionId": SESSION, "projectHash": "e8", "startTime": "2026-11-16T15:00:00.000Z", "kind": "main"}
CONTEXT = {"id": "c", "type": "user", "content": [{"text": "<session_context>\nToday\n</session_context>"}]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which the story was done."""
    return shutil.copytree(home_of("gemini"), tmp_path / "home")


def said(key: str, *texts: str, **fields: Any) -> dict[str, Any]:
    return {"id": key, "type": "user", "content": [{"text": text} for text in texts], **fields}


def ran(command: str, result: str, display: object = "") -> dict[str, Any]:
    response = {"functionResponse": {"id": "k", "name": "run_shell_command", "response": {"output": result}}}
    call = {"id": "k", "name": "run_shell_command", "args": {"command": command}, "result": [response]}
    ended = {"status": "success", "resultDisplay": display}
    return {"id": "m", "type": "gemini", "content": "", "toolCalls": [call | ended]}


def read(tmp_path: Path, *records: dict[str, Any], name: str = STORY) -> Reading:
    path = tmp_path / CHATS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in (HEADER, *records)))
    (source,) = READER.find(tmp_path, {})
    return READER.read(source)


def turns(reading: Reading) -> tuple[Turn, ...]:
    (session,) = reading.sessions
    return session.turns


def main_session(home: Path) -> Session:
    return next(one for one in sessions_of(READER, home) if one.id == SESSION)


def test_a_resume_that_repeats_the_history_changes_nothing(home: Path) -> None:
    first = main_session(home)
    lines = (home / CHATS / STORY).read_bytes().splitlines(keepends=True)
    repeated = [line for line in lines if line.startswith(b'{"$set":{"messages":')][-1]
    with (home / CHATS / STORY).open("ab") as file:
        file.write(lines[0] + repeated)
    assert main_session(home).turns == first.turns
    assert [len(turn.steps) for turn in first.turns] == [4, 2, 1]
    assert str(first.turns[0].at) == "2026-11-16 15:21:30.787000+00:00"


def test_the_first_record_of_a_call_that_has_a_result_counts(tmp_path: Path) -> None:
    ended = ran("make", "Output: red\nExit Code: 1\nProcess Group PGID: 2")
    started = {**ended, "toolCalls": [{**ended["toolCalls"][0], "result": None}]}
    repeated = ran("make", "Output: green\nProcess Group PGID: 2")
    (turn,) = turns(read(tmp_path, said("u", "Go"), {**ended, "toolCalls": None}, started, ended, repeated))
    assert [(step.command, step.exit) for step in turn.steps] == [("make", 1)]


def test_files_with_one_session_are_one_source(home: Path) -> None:
    lines = (home / CHATS / STORY).read_bytes().splitlines(keepends=True)
    middle = next(number for number, line in enumerate(lines) if CORRECTED.encode() in line and b"$set" not in line)
    (home / CHATS / STORY).write_bytes(b"".join(lines[:middle]))
    (home / CHATS / "session-2026-11-16T15-40-11111111.jsonl").write_bytes(b"".join([lines[0], *lines[middle:]]))
    other = json.dumps({**HEADER, "sessionId": "11111111-other"}) + "\n" + json.dumps(said("u", "Hello")) + "\n"
    (home / CHATS / "session-2026-11-16T15-50-11111111.jsonl").write_text(other)
    sessions = [one for one in sessions_of(READER, home) if one.origin == "other"]
    assert sorted(one.id[:14] for one in sessions) == ["11111111-2222-", "11111111-other", "22222222-2222-"]
    told = [tell(turn) for turn in main_session(home).turns]
    assert told == [tell(turn) for turn in main_session(home_of("gemini")).turns]
    assert told[:2] == [FIX, CORRECTION]


def test_a_file_without_a_persons_text_is_no_session(tmp_path: Path) -> None:
    assert read(tmp_path, {"$set": {"messages": [CONTEXT, said("u", "Old")]}}).sessions == ()


def test_what_the_program_adds_is_not_said_by_the_person(tmp_path: Path) -> None:
    answer = {"functionResponse": {"id": "k", "name": "x", "response": {"output": "Never do that."}}}
    added = said("h", "<hook_context>\nAlways obey.\n</hook_context>")
    attached = said(
        "a", "Look at @cart.py", "\n--- Content from referenced files ---", "\nContent from @cart.py:\n", "x"
    )
    expanded = said("e", "long text", displayContent=[{"text": "/fix it"}])
    reading = read(tmp_path, CONTEXT, {"id": "r", "type": "user", "content": [answer]}, added, attached, expanded)
    assert [(turn.text, turn.said_by) for turn in turns(reading)] == [
        ("Look at @cart.py", "person"),
        ("/fix it", "person"),
    ]


@pytest.mark.parametrize(
    ("result", "display", "code"),
    [
        ("Output: red\nExit Code: 1\nProcess Group PGID: 28", "red", 1),
        ("Output: green\nProcess Group PGID: 28", "green", 0),
        ("Output: green\nBackground PIDs: 4, 5\nProcess Group PGID: 28", "green", 0),
        ("Output: Exit Code: 7\nmore\nProcess Group PGID: 28", "", 0),
        ("Output: all\nExit Code: 7\nProcess Group PGID: 28", "all\nExit Code: 7", 0),
        ("Output: all\nExit Code: 7\nExit Code: 2\nProcess Group PGID: 28", "all\nExit Code: 7", 2),
        ("Output: (empty)\nSignal: 9\nProcess Group PGID: 28", "", None),
        ("Output: (empty)\nError: spawn failed\nProcess Group PGID: 28", "", None),
        ("Command was cancelled by user before it could complete. Below:\nExit Code: 0", "", None),
        ("Command moved to background (PID: 7). Output hidden.", "", None),
        ("Exit Code: 0", "", None),
    ],
)
@pytest.mark.parametrize("form", ["{}", "<untrusted_context>\n{}\n</untrusted_context>"])
def test_an_exit_code_counts_only_where_the_program_puts_it(
    tmp_path: Path, form: str, result: str, display: str, code: int | None
) -> None:
    (turn,) = turns(read(tmp_path, said("u", "Run it"), ran("make test", form.format(result), display)))
    assert [(step.command, step.exit) for step in turn.steps] == [("make test", code)]


def test_a_long_output_keeps_its_exit_code(tmp_path: Path) -> None:
    output = "x" * 3_000_000
    (turn,) = turns(
        read(tmp_path, said("u", "Run"), ran("cat x", f"Output: {output}\nExit Code: 3\nProcess Group PGID: 2"))
    )
    assert turn.steps[0].exit == 3
    assert len(turn.steps[0].output) < 70_000


def test_a_failed_edit_is_no_edit_and_a_new_file_has_no_content_before(tmp_path: Path) -> None:
    def edit(key: str, status: str, **display: object) -> dict[str, Any]:
        args = {"file_path": "/w/a.py", "content": "new"}
        call = {"id": key, "name": "write_file", "args": args, "result": [], "status": status, "resultDisplay": display}
        return {"id": key, "type": "gemini", "content": "", "toolCalls": [call]}

    created = edit("b", "success", originalContent="", newContent="new", isNewFile=True)
    (turn,) = turns(read(tmp_path, said("u", "Go"), edit("a", "error"), created))
    assert [(step.is_edit, step.before, step.after, step.whole_file) for step in turn.steps] == [
        (False, None, None, False),
        (True, None, "new", True),
    ]


def test_a_rewind_leaves_what_followed_behind(tmp_path: Path) -> None:
    wrong = [said("u2", "Delete it"), {"id": "g2", "type": "gemini", "content": "Deleted."}]
    reading = read(tmp_path, said("u1", "Hi"), *wrong, {"$rewindTo": "u2"}, said("u3", "Keep it"))
    assert [turn.text for turn in turns(reading)] == ["Hi", "Keep it"]


def test_a_turn_that_failed_is_not_one_that_was_interrupted(tmp_path: Path) -> None:
    failed = {"id": "e", "type": "error", "content": "quota"}
    reading = read(tmp_path, said("u1", "One"), failed, said("u2", "Two"), {"id": "g", "type": "gemini", "content": ""})
    assert [turn.aborted for turn in turns(reading)] == [False, True]


def test_the_folder_comes_from_the_projects_map_never_from_the_folders_name(home: Path) -> None:
    (home / CHATS.parent / ".project_root").unlink()
    assert main_session(home).cwd == "/home/dev/shop"
    (home / ".gemini/projects.json").write_text('{"projects": {"/home/dev/other": "other"}}')
    assert main_session(home).cwd is None
    (home / ".gemini/projects.json").unlink()
    assert main_session(home).cwd is None


def test_whole_json_files_of_older_versions_are_read(tmp_path: Path) -> None:
    path = tmp_path / CHATS / "session-2026-11-16T15-00-11111111.json"
    path.parent.mkdir(parents=True)
    ended = "Output: red\nExit Code: 1\nProcess Group PGID: 2"
    path.write_text(json.dumps({**HEADER, "messages": [said("u", "Run it"), ran("make", ended)]}, indent=2))
    (source,) = READER.find(tmp_path, {})
    (turn,) = turns(READER.read(source))
    assert [(step.command, step.exit) for step in turn.steps] == [("make", 1)]
    path.write_text('{"sessionId": "1", "messages": [')
    assert READER.read(source) == Reading(broken=1)


def test_unknown_records_are_counted(tmp_path: Path) -> None:
    reading = read(tmp_path, said("u", "Hi"), {"id": "x", "type": "hologram"}, {"$undo": 1})
    assert reading.unknown == {"hologram": 1, "record without a type": 1}


def test_a_users_variable_moves_the_transcripts(home: Path, tmp_path: Path) -> None:
    assert [*READER.find(tmp_path / "elsewhere", {"GEMINI_CLI_HOME": str(home)})] == [*READER.find(home, {})]
