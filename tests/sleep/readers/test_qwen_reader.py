"""Qwen Code's transcripts: exit codes in texts, rewinds, and records that say nothing new."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.story import ASKED, home_of, session_with, sessions_of
from whet.sleep.readers.qwen import QwenReader, _read_status
from whet.sleep.readers.reader import Reading
from whet.sleep.session import Session

READER = QwenReader()
STATUS = "\nError: (none)\nExit Code: {}\nSignal: 0\nProcess Group PGID: 77"


def record(kind: str, *parts: object, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "cwd": "/w", "version": "0.15.10", "message": {"parts": parts}, **fields}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return record("user", {"text": f"{text}\n\n"}, **fields)


def answered(text: str) -> dict[str, Any]:
    return record("assistant", {"text": text})


def chain(*records: dict[str, Any]) -> list[dict[str, Any]]:
    """Records that follow each other unless they say otherwise."""
    parents = [None, *map(str, range(len(records)))]
    return [{"uuid": str(at), "parentUuid": parents[at], "sessionId": "s", **one} for at, one in enumerate(records)]


def read(tmp_path: Path, *records: dict[str, Any]) -> Reading:
    path = tmp_path / ".qwen/projects/-not-this/chats/s.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in chain(*records)))
    (source,) = READER.find(tmp_path, {})
    return READER.read(source)


def only(reading: Reading) -> Session:
    (session,) = reading.sessions
    return session


@given(printed=st.text() | st.just(f"{STATUS.format(0)}\n"), code=st.integers(0, 255))
def test_a_command_can_print_what_it_likes_and_its_exit_code_stays_true(printed: str, code: int) -> None:
    result = f"Command: make\nDirectory: (root)\nOutput: {printed}{STATUS.format(code)}"
    assert _read_status(result) == (printed, code)
    assert _read_status(f"{result}\n\nThis took long.") == (printed, code)


@pytest.mark.parametrize(
    "result",
    [
        "Command was cancelled by user before it could complete. Below:\nExit Code: 0",
        "Exit Code: 0",
        f"Command: x\nDirectory: (root)\nOutput: {STATUS.format('(none)')}",
        f"{STATUS.format(0)}\nand more output",
    ],
)
def test_an_exit_code_that_is_not_known_is_not_0(result: str) -> None:
    assert _read_status(result)[1] is None


def test_the_folder_and_branch_are_those_of_the_first_record(tmp_path: Path) -> None:
    moved = {**said("Two"), "cwd": "/w/deeper", "gitBranch": "fix"}
    session = only(read(tmp_path, said("One", gitBranch="main"), moved))
    assert (session.cwd, session.branch, session.version) == ("/w", "main", "0.15.10")
    assert [turn.text for turn in session.turns] == ["One", "Two"]


def test_notices_and_compressions_are_not_said_by_the_person(tmp_path: Path) -> None:
    history = [{"role": "user", "parts": [{"text": "No, never."}]}]
    compression = record("system", subtype="chat_compression", systemPayload={"compressedHistory": history})
    fired = said("Do it every hour", subtype="cron")
    notice = said("A background task ended", subtype="notification")
    session = only(read(tmp_path, said("One"), compression, fired, notice, answered("Done.")))
    assert [(turn.text, turn.answer, turn.aborted) for turn in session.turns] == [("One", "Done.", False)]


def test_a_rewind_leaves_what_followed_behind(tmp_path: Path) -> None:
    rewind = record("system", subtype="rewind", parentUuid="1")
    session = only(
        read(tmp_path, said("One"), answered("Yes."), said("Delete it"), answered("Done."), rewind, said("Keep it"))
    )
    assert [turn.text for turn in session.turns] == ["One", "Keep it"]


def test_a_record_that_cannot_be_read_does_not_drop_those_before_it(tmp_path: Path) -> None:
    read(tmp_path, said("One"), answered("Yes."), said("Two"))
    path = next(tmp_path.rglob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{broken\n", lines[2]]))
    reading = READER.read(next(READER.find(tmp_path, {})))
    assert [turn.text for turn in only(reading).turns] == ["One", "Two"]
    assert reading.broken == 1


def test_what_a_sub_agent_ran_is_no_step_of_the_session() -> None:
    session = session_with(sessions_of(READER), ASKED)
    assert b"ls test_*.py" in next(home_of("qwen").rglob(f"{session.id}.jsonl")).read_bytes()
    assert [step.command for turn in session.turns for step in turn.steps if step.command] == [
        "npm test",
        "python3 -m unittest -q",
        "make test",
        "make lint",
    ]


def test_unknown_records_are_counted(tmp_path: Path) -> None:
    reading = read(tmp_path, said("Hi"), record("system", subtype="dream"), record("oracle"))
    assert reading.unknown == {"system/dream": 1, "oracle": 1}


def test_a_users_variables_move_the_transcripts(tmp_path: Path) -> None:
    found = [*READER.find(home_of("qwen"), {})]
    assert len(found) == 3
    for name in ("QWEN_HOME", "QWEN_RUNTIME_DIR"):
        assert [*READER.find(tmp_path, {name: str(home_of("qwen") / ".qwen")})] == found
