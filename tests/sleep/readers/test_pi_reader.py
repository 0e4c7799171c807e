"""pi's transcripts: a tree of entries, and exit codes in texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from whet.sleep.readers.pi import PiReader
from whet.sleep.readers.reader import Reading
from whet.sleep.session import Session

READER = PiReader()
HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-11-16T15:00:00.000Z", "cwd": "/w"}


def entry(role: str, content: object, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": content, **fields}}


def said(text: str) -> dict[str, Any]:
    return entry("user", [{"type": "text", "text": text}])


def answered(text: str, **fields: Any) -> dict[str, Any]:
    return entry("assistant", [{"type": "text", "text": text}], **fields)


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    return entry("assistant", [{"type": "toolCall", "id": f"call of {tool}", "name": tool, "arguments": arguments}])


def result(tool: str, text: str, *, error: bool = False) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return entry("toolResult", content, toolCallId=f"call of {tool}", toolName=tool, isError=error)


def read(tmp_path: Path, *entries: dict[str, Any]) -> Reading:
    path = tmp_path / ".pi/agent/sessions/--not-this--/x_s.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    linked = [
        {"id": str(number), "parentId": str(number - 1) if number else None, **one}
        for number, one in enumerate(entries)
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in (HEADER, *linked)))
    (source,) = READER.find(tmp_path, {})
    return READER.read(source)


def only(reading: Reading) -> Session:
    (session,) = reading.sessions
    return session


def test_a_branch_that_was_left_is_not_read(tmp_path: Path) -> None:
    left = [said("Delete it"), answered("Deleted.")]
    back = {"type": "branch_summary", "parentId": "1", "summary": "It was deleted.", "fromId": "3"}
    session = only(read(tmp_path, said("Hi"), answered("Yes?"), *left, back, said("Keep it"), answered("Kept.")))
    assert [(turn.text, turn.answer) for turn in session.turns] == [("Hi", "Yes?"), ("Keep it", "Kept.")]


def test_the_version_of_the_form_is_not_that_of_the_program(tmp_path: Path) -> None:
    session = only(read(tmp_path, said("Hi")))
    assert (session.version, session.cwd) == (None, "/w")


@pytest.mark.parametrize(
    ("text", "error", "code", "printed"),
    [
        ("red\n\n\nCommand exited with code 254", True, 254, "red\n"),
        ("Command exited with code 1", True, 1, ""),
        ("Command exited with code 3\n", False, 0, "Command exited with code 3\n"),
        ("Command exited with code 3\n\nCommand exited with code 4", True, 4, "Command exited with code 3"),
        ("Command exited with code 0\n\nCommand aborted", True, None, "Command exited with code 0\n\nCommand aborted"),
        ("Command timed out after 5 seconds", True, None, "Command timed out after 5 seconds"),
    ],
)
def test_an_exit_code_counts_only_in_the_last_line_of_an_error(
    tmp_path: Path, text: str, error: bool, code: int | None, printed: str
) -> None:
    (turn,) = only(read(tmp_path, said("Go"), called("bash", command="x"), result("bash", text, error=error))).turns
    assert [(step.exit, step.output) for step in turn.steps] == [(code, printed)]


def test_calls_to_which_the_model_gave_the_same_id_are_kept_apart(tmp_path: Path) -> None:
    first = [called("bash", command="one"), result("bash", "\n\nCommand exited with code 1", error=True)]
    (turn,) = only(read(tmp_path, said("Go"), *first, called("bash", command="two"), result("bash", "ok"))).turns
    assert [(step.command, step.exit) for step in turn.steps] == [("one", 1), ("two", 0)]


def test_each_replaced_place_is_an_edit_and_a_failed_one_is_none(tmp_path: Path) -> None:
    edits = [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": "d"}]
    calls = [called("edit", path="src/x.py", edits=edits), result("edit", "ok")]
    failed = [called("write", path="/w/y.py", content="new"), result("write", "denied", error=True)]
    (turn,) = only(read(tmp_path, said("Go"), *calls, *failed)).turns
    assert [(step.path, step.before, step.after) for step in turn.steps] == [
        ("/w/src/x.py", "a", "b"),
        ("/w/src/x.py", "c", "d"),
        ("/w/y.py", None, None),
    ]


def test_an_interrupted_turn_is_told_from_a_failed_one(tmp_path: Path) -> None:
    interrupted = answered("Let me", stopReason="aborted")
    failed = entry("assistant", [], stopReason="error", errorMessage="overloaded")
    session = only(read(tmp_path, said("One"), interrupted, said("Two"), failed, said("Three"), answered("Done.")))
    assert [turn.aborted for turn in session.turns] == [True, False, False]


def test_what_the_person_ran_and_what_the_program_adds_is_no_turn(tmp_path: Path) -> None:
    own = {"type": "message", "message": {"role": "bashExecution", "command": "ls", "output": "", "exitCode": 0}}
    compaction = {"type": "compaction", "summary": "No, never.", "firstKeptEntryId": "0"}
    note = {"type": "custom_message", "customType": "note", "content": "Always obey."}
    session = only(read(tmp_path, said("One"), own, compaction, note, answered("Done.")))
    assert [(turn.text, turn.steps, turn.answer) for turn in session.turns] == [("One", (), "Done.")]


def test_unknown_entries_are_counted(tmp_path: Path) -> None:
    reading = read(tmp_path, said("Hi"), {"type": "dream"}, {"type": "label"}, entry("oracle", "x"))
    assert reading.unknown == {"dream": 1, "message/oracle": 1}
