"""Run folders that are damaged, or made to do damage: one clear line, exit code 2, bounded memory."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from support.whet_program import Project, new_project
from whet.runs.store.store import Store

SCRIPT = """
[[scene]]
[[scene.reply]]
text = "I write it."
tools = [{ name = "bash", arguments = { command = "echo 42 > answer" } }]
[[scene.reply]]
text = "42"
"""
PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""
"""Runs a program and prints its peak of memory. The kernel counts a process from its fork on, when it still is as large
as its parent: so a small parent starts it."""
RUN = ["run", "q.jsonl", "--agent", "loop", "--model", "scripted:script.toml", "--out", "out"]


@pytest.fixture(name="good", scope="module")
def good_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project with a run of three rollouts in `good`, of which one has not been done."""
    with new_project(tmp_path_factory.mktemp("damaged")) as project:
        project.write("script.toml", SCRIPT)
        long = "Write 42 into the file answer. " * 300
        rows = [{"id": f"t{n}", "instruction": f"{n}: {long}", "verify": ["grep 42 answer"]} for n in range(3)]
        project.rows("q.jsonl", *rows)
        assert project.whet(*RUN).returncode == 0
        with closing(sqlite3.connect(project.path / "out" / "run.db")) as db, db:
            db.execute("UPDATE attempt SET final = 0, value = NULL, cause = 'interrupted' WHERE id = 3")
        (project.path / "out").rename(project.path / "good")
        yield project


def rollout_of(folder: Path) -> str:
    with Store.open_read(folder) as store:
        return store.rollouts()[0].id


def verbs(rollout: str) -> list[list[str]]:
    return [
        ["show", "out"],
        ["show", "out", "--summaries"],
        ["show", "out", rollout],
        ["export", "out", "--format", "chat", "--out", "exported"],
        ["compare", "out", "good"],
        ["rejudge", "out"],
        ["fork", "out", rollout, "--at", "2", "--out", "forked"],
        ["runs", "."],
        [*RUN, "--resume"],
    ]


def sql(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            db.execute("PRAGMA writable_schema = ON")
            for statement in statements:
                db.execute(statement)

    return change


def blob(table: str, column: str, data: bytes) -> Callable[[Path], None]:
    """Another content for the blobs that a table refers to."""

    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"UPDATE blob SET data = ? WHERE id IN (SELECT {column} FROM {table})", (data,))

    return change


def cut(size: float) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * size) if size <= 1 else int(size))

    return change


def scribble(path: Path) -> None:
    with path.open("r+b") as file:
        for page in range(1, path.stat().st_size // 4096, 2):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)


def packed(data: bytes) -> bytes:
    return zstandard.compress(data)


def bomb(size: int) -> bytes:
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    zeros = bytes(16 << 20)
    return b"".join([*(compressor.compress(zeros) for _ in range(size >> 24)), compressor.flush()])


DEEP = b"[" * 100_000
ENDLESS = """CREATE VIEW blob AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT i AS id, i AS hash, i AS data FROM n"""

DAMAGES = {
    "cut in half": cut(0.5),
    "cut to a header": cut(100),
    "empty": cut(0),
    "pages overwritten": scribble,
    "no database": lambda path: path.write_bytes(b"garbage" * 1000),
    "no zstd": blob("attempt", "result", b"garbage"),
    "zstd of no size": blob("attempt", "result", zstandard.ZstdCompressor(write_content_size=False).compress(b"{}")),
    "zstd cut": blob("log", "blob", packed(os.urandom(1000))[:-100]),
    "size that lies": blob("piece", "blob", packed(bytes(1000))[:4] + b"\x60\xff\xff" + packed(bytes(1000))[7:]),
    "no JSON": blob("attempt", "result", packed(b"garbage")),
    "JSON of no result": blob("attempt", "result", packed(b'{"score": 7}')),
    "deep JSON": blob("attempt", "result", packed(DEEP)),
    "result that is not there": sql("PRAGMA foreign_keys = OFF", "UPDATE attempt SET result = 999999"),
    "no such cause": sql("UPDATE attempt SET cause = 'bad luck', value = NULL, final = 0"),
    "text for a number": sql("UPDATE rollout SET sample = 'x' || rowid", "UPDATE attempt SET value = 'x', final = 1"),
    "number for a text": sql("UPDATE rollout SET agent = x'00ff', model = x'ff'"),
    "spec of no task": sql("UPDATE task SET spec = '['"),
    "spec that is a list": sql("UPDATE task SET spec = '[]'"),
    "settings of no JSON": sql("UPDATE run SET value = '{'"),
    "headers of no JSON": sql("UPDATE exchange SET request_headers = 'x', warnings = '{'"),
    "speaker of no kind": sql("""UPDATE exchange SET speaker = '{"kind": "ghost"}'"""),
    "no dialect": sql("UPDATE exchange SET dialect = 'klingon', status = 'x', started = 'now'"),
    "pieces in a circle": sql("UPDATE piece SET parent = id"),
    "a table that is gone": sql("DROP TABLE log"),
    "a column that is gone": sql("ALTER TABLE exchange DROP COLUMN tokens"),
    "a view in place of a table": sql("DROP TABLE blob", ENDLESS),
    "a trigger": sql("CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM attempt; END"),
    "a generated column": sql("ALTER TABLE run ADD COLUMN more AS (randomblob(1000000000))"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_one_line(good: Project, name: str) -> None:
    rollout = rollout_of(good.path / "good")
    ended = {}
    always, others = verbs(rollout)[2:4], [*verbs(rollout)[:2], *verbs(rollout)[4:]]
    turn = list(DAMAGES).index(name)
    for arguments in (*always, others[turn % len(others)], others[(turn + 3) % len(others)]):
        with copied(good) as out:
            DAMAGES[name](out / "run.db")
            done = good.whet(*arguments)
        assert done.returncode in {0, 2}, done.stderr
        if done.returncode == 2:
            (line,) = done.stderr.splitlines()
            assert line.startswith("whet: ")
            assert "run.db" in line or "out" in line
        ended[" ".join(arguments)] = done.returncode
    assert 2 in ended.values(), ended


@contextlib.contextmanager
def copied(project: Project) -> Iterator[Path]:
    """The good run in `out`, and no trace of what a verb makes."""
    out = project.path / "out"
    shutil.copytree(project.path / "good", out)
    try:
        yield out
    finally:
        for name in ("out", "exported", "forked"):
            path = project.path / name
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


@pytest.mark.parametrize(("table", "column"), [("attempt", "result"), ("piece", "blob")])
def test_a_bomb_takes_no_memory(good: Project, table: str, column: str) -> None:
    rollout = rollout_of(good.path / "good")
    with copied(good) as out:
        blob(table, column, bomb(2 << 30))(out / "run.db")
        show = [sys.executable, "-m", "whet", "show", "out", rollout]
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *show],
            cwd=good.path,
            env=good.environ(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "the run is damaged" in line
    assert int(done.stdout) < 400 << 10  # KiB


def test_bombs_that_are_small_one_by_one_take_no_memory_together(good: Project) -> None:
    with copied(good) as out:
        blob("attempt", "result", bomb(400 << 20))(out / "run.db")
        done = good.whet("show", "out")
    assert done.returncode == 2
    assert "the run is damaged" in done.stderr


def test_a_defect_of_whet_is_not_taken_for_damage(good: Project) -> None:
    with pytest.raises(ZeroDivisionError), Store.open_read(good.path / "good"):
        _ = 1 / 0
