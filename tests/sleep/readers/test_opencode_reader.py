"""OpenCode's database: read whole, left as it is, and its credentials never touched."""

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.opencode_home import DATABASE, NEWEST, TOKEN, story_rows, write_home
from support.story import ASKED, session_with, sessions_of
from whet.errors import UserError
from whet.sleep.readers.database import open_database
from whet.sleep.readers.opencode import OpenCodeReader
from whet.sleep.readers.reader import Reading
from whet.sleep.session import Session

READER = OpenCodeReader()
NOW = 1_794_843_000_000
SESSION = {
    "table": "session",
    "id": "ses_1",
    "project_id": "p",
    "slug": "s",
    "directory": "/w",
    "title": "t",
    "version": "1.18.33",
    "time_created": NOW,
    "time_updated": NOW,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which the story was done, as OpenCode left it."""
    write_home(tmp_path / "home")
    return tmp_path / "home"


def look(home: Path) -> dict[str, str]:
    """Every file of a home, by its content."""
    files = [path for path in sorted(home.rglob("*")) if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def message(key: str, role: str, *parts: dict[str, Any], **data: Any) -> list[dict[str, Any]]:
    """The rows of one message."""
    times = {"time_created": NOW, "time_updated": NOW}
    said = {"role": role, "time": {"created": NOW, "completed": NOW}, **data}
    of_message = {"session_id": "ses_1", "message_id": key, **times}
    return [
        {"table": "message", "id": key, "session_id": "ses_1", **times, "data": said},
        *({"table": "part", "id": f"{key}p{number}", **of_message, "data": part} for number, part in enumerate(parts)),
    ]


def text(words: str, **data: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **data}


def tool(name: str, status: str = "completed", **state: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": name, "callID": "k", "state": {"status": status, **state}}


def read(tmp_path: Path, *messages: list[dict[str, Any]], **columns: object) -> Reading:
    write_home(tmp_path, [{**SESSION, **columns}, *(row for rows in messages for row in rows)], newest=0)
    (source,) = READER.find(tmp_path, {})
    return READER.read(source)


def only(reading: Reading) -> Session:
    (session,) = reading.sessions
    return session


def test_rows_that_only_the_log_holds_are_read_and_no_file_is_changed(home: Path) -> None:
    before = look(home)
    assert set(before) == {"opencode.db", "opencode.db-wal", "opencode.db-shm"}
    with closing(sqlite3.connect(f"file:{home / DATABASE}?immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM part").fetchone()[0] < _parts()
    sessions = sessions_of(READER, home)
    assert sessions == _elsewhere(sessions_of(READER), home)
    assert sessions[-1].turns[-1].answer == "Still green."
    assert look(home) == before


def test_a_database_without_a_log_is_read_and_none_is_created(home: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (home / f"{DATABASE}{suffix}").unlink()
    before = look(home)
    assert session_with(sessions_of(READER, home), ASKED).turns
    assert look(home) == before


def test_a_log_without_its_index_is_read_in_a_private_copy_that_is_gone_at_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / f"{DATABASE}-shm").unlink()
    before = look(home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with open_database(home / DATABASE) as connection:
        assert connection.execute("SELECT count(*) FROM part").fetchone()[0] == _parts()
        (copy,) = tmp_path.glob("whet-*")
        assert copy.stat().st_mode & 0o777 == 0o700
        assert not any(copy.iterdir())
    assert not copy.exists()
    (whole,) = READER.find(home, {})
    assert list(READER.read(whole).sessions) == _elsewhere(sessions_of(READER), home)
    assert look(home) == before


def test_a_read_only_home_is_read(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("whole", "no-index", "no-log")]
    for home, missing in zip(homes, ([], ["-shm"], ["-shm", "-wal"]), strict=True):
        write_home(home)
        for suffix in missing:
            (home / f"{DATABASE}{suffix}").unlink()
    program = f"""
from pathlib import Path
from whet.sleep.readers.opencode import OpenCodeReader
reader = OpenCodeReader()
for home in map(Path, {[*map(str, homes)]}):
    print(sum(len(reader.read(source).sessions) for source in reader.find(home, {{}})))
"""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    box = ["bwrap", "--ro-bind", "/", "/", "--bind", str(scratch), str(scratch), "--setenv", "TMPDIR", str(scratch)]
    done = subprocess.run([*box, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "3\n3\n3\n")
    assert not any(scratch.iterdir())


def test_a_program_that_writes_meanwhile_is_not_disturbed(home: Path) -> None:
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE session SET version = 'next'")
        assert {session.version for session in sessions_of(READER, home)} == {"1.18.33"}
        writer.execute("COMMIT")
        assert {session.version for session in sessions_of(READER, home)} == {"next"}


def test_only_the_tables_of_transcripts_are_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = set[str]()

    def note(action: int, table: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ and table:
            tables.add(table)
        return sqlite3.SQLITE_OK

    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect_and_watch(*given: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*given, **options)
        connection.set_authorizer(note)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_and_watch)
    sessions = sessions_of(READER, home)
    assert tables == {"sqlite_master", "session", "message", "part"}
    assert TOKEN not in "".join(session.model_dump_json() for session in sessions)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"no database at all, but long enough to be one" * 100),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(b""),
    ],
    ids=["other content", "cut off", "empty"],
)
def test_a_corrupt_database_is_one_clear_error(home: Path, damage: Callable[[Path], object]) -> None:
    for suffix in ("-wal", "-shm"):
        (home / f"{DATABASE}{suffix}").unlink()
    damage(home / DATABASE)
    with pytest.raises(UserError, match=r"^cannot read the database .*/opencode\.db: [^\n]+$"):
        sessions_of(READER, home)


def test_a_corrupt_database_does_not_hide_another(home: Path) -> None:
    (home / DATABASE).with_name("opencode-dev.db").write_bytes(b"no database")
    sources = [*READER.find(home, {})]
    assert [source.path.name for source in sources if not source.key] == ["opencode-dev.db"]
    assert len([source for source in sources if source.key]) == 4


def test_a_session_says_the_tree_of_its_folder_at_the_start() -> None:
    session = session_with(sessions_of(READER), ASKED)
    assert session.tree == "c0f51a06273af06fa7e3746a2501874aaff105d3"


def test_a_session_of_which_nothing_was_kept_is_none() -> None:
    empty = {row["id"] for row in story_rows() if row["table"] == "session"} - {one.id for one in sessions_of(READER)}
    assert len(empty) == 1


def test_what_the_program_adds_is_not_said_by_the_person(tmp_path: Path) -> None:
    asked = message("a", "user", text("Look"), text("Contents of a file", synthetic=True), {"type": "file"})
    injected = message("b", "user", text("Go on.", synthetic=True))
    summary = message("c", "assistant", text("No, never."), summary=True)
    session = only(read(tmp_path, asked, injected, summary, message("d", "assistant", text("Done."))))
    assert [(turn.text, turn.answer) for turn in session.turns] == [("Look", "Done.")]


def test_status_completed_does_not_make_an_exit_code_0(tmp_path: Path) -> None:
    steps = [
        tool("bash", input={"command": "make"}, output="red", metadata={"exit": 2}),
        tool("bash", input={"command": "top"}, output="", metadata={}),
        tool("bash", "error", input={"command": "rm"}, error="denied"),
        tool("bash", "running", input={"command": "sleep 60"}),
    ]
    (turn,) = only(read(tmp_path, message("a", "user", text("Go")), message("b", "assistant", *steps))).turns
    assert [(step.command, step.exit) for step in turn.steps] == [
        ("make", 2),
        ("top", None),
        ("rm", None),
        ("sleep 60", None),
    ]
    assert turn.steps[2].output == "denied"
    assert turn.aborted


def test_edits_are_read_from_every_tool_that_edits(tmp_path: Path) -> None:
    patch = "Index: b.py\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n@@ -9,1 +9,1 @@\n-x\n+y\n"
    steps = [
        tool("edit", input={"filePath": "/w/a.py", "oldString": "a", "newString": "b"}),
        tool("edit", "error", input={"filePath": "/w/a.py", "oldString": "a", "newString": "b"}, error="not found"),
        tool("write", input={"filePath": "/w/c.py", "content": "whole"}),
        tool("apply_patch", input={"patchText": ".."}, metadata={"files": [{"filePath": "/w/b.py", "patch": patch}]}),
    ]
    (turn,) = only(read(tmp_path, message("a", "user", text("Go")), message("b", "assistant", *steps))).turns
    assert [(step.path, step.before, step.after, step.whole_file) for step in turn.steps] == [
        ("/w/a.py", "a", "b", False),
        ("/w/a.py", None, None, False),
        ("/w/c.py", None, "whole", True),
        ("/w/b.py", "same\nold\n", "same\nnew\n", False),
        ("/w/b.py", "x\n", "y\n", False),
    ]


def test_an_interrupted_message_is_told_from_a_failed_one(tmp_path: Path) -> None:
    session = only(
        read(
            tmp_path,
            message("a", "user", text("One")),
            message("b", "assistant", text("I"), error={"name": "MessageAbortedError"}),
            message("c", "user", text("Two")),
            message("d", "assistant", error={"name": "APIError"}),
            message("e", "user", text("Three")),
            message("f", "assistant", text("Cut"), time={"created": NOW}),
        )
    )
    assert [turn.aborted for turn in session.turns] == [True, False, True]


def test_messages_that_the_person_took_back_are_left_out(tmp_path: Path) -> None:
    kept = [message("a", "user", text("One")), message("b", "assistant", text("Done."))]
    taken_back = message("c", "user", text("Delete it"))
    session = only(read(tmp_path, *kept, taken_back, revert=json.dumps({"messageID": "c"})))
    assert [turn.text for turn in session.turns] == ["One"]


def test_unknown_parts_are_counted(tmp_path: Path) -> None:
    reading = read(tmp_path, message("a", "user", text("Hi"), {"type": "dream"}), message("b", "oracle"))
    assert reading.unknown == {"part dream": 1, "message oracle": 1}


def test_variables_and_channels_move_the_database(home: Path, tmp_path: Path) -> None:
    def find(**env: Path) -> set[Path]:
        return {source.path for source in READER.find(tmp_path, {name: str(path) for name, path in env.items()})}

    moved = shutil.copytree((home / DATABASE).parent, tmp_path / "data" / "opencode")
    assert find(XDG_DATA_HOME=moved.parent) == {moved / "opencode.db"}
    for file in moved.iterdir():
        file.rename(moved / file.name.replace("opencode.db", "opencode-dev.db"))
    assert find(XDG_DATA_HOME=moved.parent) == {moved / "opencode-dev.db"}
    assert find(OPENCODE_DB=home / DATABASE) == {home / DATABASE}
    assert find(XDG_DATA_HOME=moved.parent, OPENCODE_DB=Path("opencode-dev.db")) == {moved / "opencode-dev.db"}
    assert find() == set()


def _parts() -> int:
    rows = [row["table"] for row in story_rows()]
    assert rows[-NEWEST:] == ["part"] * NEWEST
    return rows.count("part")


def _elsewhere(sessions: list[Session], home: Path) -> list[Session]:
    """The same sessions, read in another home."""
    path = str(home / DATABASE)
    whole = [json.loads(session.model_dump_json()) for session in sessions]
    for step in (step for session in whole for turn in session["turns"] for step in turn["steps"]):
        step["output_at"]["path"] = path
    return [Session.model_validate(session) for session in whole]
