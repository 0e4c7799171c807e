"""The store of `whet sleep`: private, one document per kind and id, and able to forget."""

import multiprocessing
import os
import sqlite3
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from whet.errors import UserError
from whet.sleep import store as module
from whet.sleep.report import Cost, NightRecord, Outcome
from whet.sleep.session import Origin, Session, Speaker, Turn
from whet.sleep.store import FILE, Kind, SleepStore, SourceRow

NOW = datetime(2026, 11, 17, 3, 0, tzinfo=UTC)


class Note(BaseModel):
    text: str
    sessions: tuple[str, ...] = ()
    repository: str | None = None
    folder: Path | None = None


class Proposed(Note):
    rule: str
    night: str


def a_session(name: str = "s1", *, cwd: str = "/r/src", age: timedelta = timedelta(), text: str = "Fix it.") -> Session:
    turn = Turn(number=1, text=text, said_by=Speaker.PERSON)
    return Session(
        cli="codex",
        version="0.166.0",
        id=name,
        origin=Origin.INTERACTIVE,
        cwd=cwd,
        started=NOW - age,
        ended=NOW - age,
        complete=True,
        turns=(turn,),
        digest="d1",
    )


def keep(store: SleepStore, session: Session, repository: str | None = "/r", path: str = "/t.jsonl") -> bool:
    place = repository and Path(repository)
    return store.put_session(session, repository=place or None, path=Path(path), digest=session.digest)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SleepStore]:
    with SleepStore(tmp_path / "sleep") as opened:
        yield opened


def test_only_the_user_can_read_it(store: SleepStore) -> None:
    store.put("rule", "r1", Note(text="x"))
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    files = list(store.folder.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_documents_are_kept_by_kind_and_name_in_the_order_they_came(store: SleepStore) -> None:
    for name in ("b", "a"):
        store.put("rule", name, Note(text=name))
    store.put("task", "a", Note(text="a task"))
    store.put("rule", "b", Note(text="changed"))
    assert [note.text for note in store.list("rule", Note)] == ["changed", "a"]
    assert store.get("task", "a", Note) == Note(text="a task")
    assert store.get("night", "a", Note) is None
    store.delete("rule", "b")
    assert [note.text for note in store.list("rule", Note)] == ["a"]


def test_what_was_put_is_there_after_it_is_opened_again(tmp_path: Path) -> None:
    with SleepStore(tmp_path) as store:
        store.put("rule", "r1", Note(text="x"))
        keep(store, a_session(), "/home/dev/shop")
        store.put_source(SourceRow("/t.jsonl", "", "1:2:3", "aa"))
    with SleepStore(tmp_path) as store:
        assert store.list("rule", Note) == [Note(text="x")]
        assert list(store.sessions()) == [a_session()]
        assert store.sources() == {("/t.jsonl", ""): SourceRow("/t.jsonl", "", "1:2:3", "aa")}


def test_sessions_are_listed_by_repository_and_time(store: SleepStore) -> None:
    for name, days, repository in (("new", 1, "/a"), ("old", 40, "/a"), ("other", 2, "/b"), ("nowhere", 3, None)):
        keep(store, a_session(name, age=timedelta(days=days)), repository)

    def names(repository: Path | None = None, since: datetime | None = None) -> list[str]:
        return [session.id for session in store.sessions(repository, since)]

    assert names() == ["old", "nowhere", "other", "new"]
    assert names(Path("/a")) == ["old", "new"]
    assert names(Path("/a"), NOW - timedelta(days=30)) == ["new"]
    assert store.repositories() == (Path("/a"), Path("/b"))


def test_of_two_files_with_one_session_the_later_state_is_kept(store: SleepStore) -> None:
    old, new = a_session(age=timedelta(hours=2)), a_session()
    assert keep(store, new, path="/a.jsonl")
    assert not keep(store, old, path="/b.jsonl")
    assert list(store.sessions()) == [new]
    assert keep(store, old, path="/a.jsonl")  # the same file was rewritten
    assert list(store.sessions()) == [old]


def test_a_forgotten_session_leaves_nothing_behind(store: SleepStore) -> None:
    folder = store.folder / "bank" / "t1"
    folder.mkdir(parents=True)
    for name in ("s1", "s2"):
        keep(store, a_session(name, text="XYZZY"), "/r")
    store.put("rule", "r1", Note(text="XYZZY", sessions=("s1", "s2")))
    store.put("rule", "r2", Note(text="other", sessions=("s2",)))
    store.put("task", "t1", Note(text="XYZZY", sessions=("s1",), folder=folder))

    forgotten = store.forget("s1")

    assert (forgotten.sessions, dict(forgotten.documents)) == (1, {"rule": 1, "task": 1})
    assert [session.id for session in store.sessions()] == ["s2"]
    assert store.list("rule", Note) == [Note(text="other", sessions=("s2",))]
    assert store.list("task", Note) == []
    assert not folder.exists()
    assert store.forgotten() == {("codex", "s1")}
    assert not any(b"XYZZY" in file.read_bytes() for file in store.folder.glob("sleep.db*"))


def test_what_nights_keep_is_forgotten_too(store: SleepStore) -> None:
    night = store.folder / "nights" / "2026-11-18"
    for name in (
        "r1/run/run.db",
        "r2/tasks/t1-r2/task.toml",
        "r3/tasks/t9-r3/task.toml",
        "reading/run.db",
        "report.md",
    ):
        (night / name).parent.mkdir(parents=True, exist_ok=True)
        (night / name).write_text("XYZZY")
    keep(store, a_session("s1"), "/home/dev/shop")
    keep(store, a_session("s2"), "/home/dev/cart")
    kinds: dict[str, Kind] = {"r1": "rule", "t1": "task", "m1": "meaning"}
    for name, kind in kinds.items():
        store.put(kind, name, Note(text="x", sessions=("s1",)))
    store.put("proposal", "1", Proposed(text="x", rule="r1", night="2026-11-18", sessions=("s1",)))
    store.put("rule", "r3", Note(text="x", sessions=("s2",)))

    store.forget("s1")

    assert [path.relative_to(night).parts[0] for path in night.rglob("*") if path.is_file()] == ["r3"]


def test_tasks_of_the_history_are_forgotten_with_the_repository(store: SleepStore) -> None:
    keep(store, a_session("s1"), "/home/dev/shop")
    shop, cart = (store.history_bank(Path("/home/dev") / name) for name in ("shop", "cart"))
    for folder in (shop, cart):
        folder.mkdir(parents=True)
    store.forget("/home/dev/shop")
    assert (shop.exists(), cart.exists()) == (False, True)


def test_a_session_may_be_named_with_its_agent_in_documents_and_by_the_user(store: SleepStore) -> None:
    keep(store, a_session("s1"))
    store.put("task", "t1", Note(text="x", sessions=("codex/s1",)))
    store.put("loss", "codex/s1", Note(text="no state"))
    assert dict(store.forget("codex/s1").documents) == {"task": 1, "loss": 1}
    assert list(store.sessions()) == []


def test_a_rejected_rule_stays_rejected_without_the_session(store: SleepStore) -> None:
    keep(store, a_session("s1"))
    store.put("rejection", "7", Note(text="not here", sessions=("codex/s1", "codex/s2")))
    assert dict(store.forget("s1").documents) == {}
    assert store.list("rejection", Note) == [Note(text="not here", sessions=("codex/s2",))]


def test_a_forgotten_repository_takes_its_sessions_along_and_no_neighbour(store: SleepStore) -> None:
    keep(store, a_session("in", cwd="/a/shop/src"), None)
    keep(store, a_session("near", cwd="/a/shop2"), "/a/shop2")
    store.put("proposal", "1", Note(text="x", repository="/a/shop"))
    store.put("proposal", "2", Note(text="x", repository="/a/shop2"))
    store.put("adoption", "1", Note(text="/a/shop/CLAUDE.md"))
    assert dict(store.forget("/a/shop").documents) == {"proposal": 1, "adoption": 1}
    assert [session.id for session in store.sessions()] == ["near"]
    assert store.list("proposal", Note) == [Note(text="x", repository="/a/shop2")]


def test_the_cost_of_a_night_stays_without_what_it_says_of_a_forgotten_repository(store: SleepStore) -> None:
    keep(store, a_session("s1"), "/a/shop")
    cost = Cost(rollouts=40, tokens=900, minutes=12, dollars=1.5)
    notes = ("/a/shop/whet.toml: not TOML", "other")
    store.put("night", "n", NightRecord(id="n", started=NOW, outcome=Outcome.NOISE, cost=cost, notes=notes))
    assert dict(store.forget("/a/shop").documents) == {}
    (night,) = store.list("night", NightRecord)
    assert (night.cost, night.notes) == (cost, ("other",))


def test_forgetting_removes_no_file_outside_the_store(store: SleepStore, tmp_path: Path) -> None:
    outside = tmp_path / "mine.txt"
    outside.write_text("mine")
    keep(store, a_session("s1"), "/r")
    escape = store.folder / ".." / "mine.txt"
    store.put("task", "t1", Note(text="x", sessions=("s1", str(outside), str(escape), str(store.folder))))
    store.forget("s1")
    assert outside.read_text() == "mine"
    assert (store.folder / FILE).exists()


def test_forgetting_something_unknown_is_a_mistake(store: SleepStore) -> None:
    with pytest.raises(UserError, match="'nobody' is not a session or repository"):
        store.forget("nobody")


def test_a_damaged_store_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 100)
    with pytest.raises(UserError, match=r"sleep\.db: damaged: .*move it away"):
        SleepStore(tmp_path)


def test_a_store_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    SleepStore(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match="has version 99, this whet knows 1"):
        SleepStore(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file.*: cannot be written"):
        SleepStore(tmp_path / "file" / "sleep")


def _hold(folder: Path, ready: "multiprocessing.Queue[bool]", done: "multiprocessing.Queue[bool]") -> None:
    db = sqlite3.connect(folder / FILE, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    ready.put(True)
    done.get()
    os._exit(0)


def test_a_store_that_another_process_writes_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_SEC", 0.05)
    context = multiprocessing.get_context("fork")
    ready, done = context.Queue(), context.Queue()
    with SleepStore(tmp_path) as store:
        holder = context.Process(target=_hold, args=(tmp_path, ready, done))
        holder.start()
        ready.get()
        with pytest.raises(UserError, match="another process has been writing"):
            store.put("rule", "r1", Note(text="x"))
        done.put(True)
        holder.join()
        store.put("rule", "r1", Note(text="x"))
