"""Traces are derived in a process of their own, whatever becomes of it, and kept in a cache that may be lost."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.view_worlds import EPOCH, add_calls, finish, long_trace, write_long_trace, write_trace
from support.waiting import wait_until
from whet.runs.store.store import Store
from whet.trace.conversations.graph import build
from whet.trace.steps.steps import Step, steps
from whet.view.derive import worker_process
from whet.view.derive.cache import Cache
from whet.view.derive.jobs import DeriveTrace, Done, Refused
from whet.view.derive.trace_data import TraceStep
from whet.view.derive.trace_file import TraceFile
from whet.view.derive.trace_schema import DamagedTraceError
from whet.view.derive.traces import Failed, Pending, Traces
from whet.view.derive.worker import Worker

WAIT_SEC = 60.0
CALLS = [*long_trace(12, 300, subagents=(4,))]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one rollout of 37 calls."""
    write_trace(tmp_path / "run", CALLS)
    return tmp_path / "run"


def get(traces: Traces, folder: Path, exchanges: int = len(CALLS)) -> TraceFile:
    found = traces.get(folder, 1, exchanges, WAIT_SEC)
    assert isinstance(found, TraceFile), found
    return found


def facts_of(step: Step | TraceStep) -> tuple[object, ...]:
    """What a step of a trace file and one of the conversations have in common."""
    return (step.number, step.kind, step.name, step.call, step.error, step.depth, step.thread, step.exchange)


def texts_of(trace: TraceFile) -> list[tuple[object, ...]]:
    """All steps of a trace, as far as they are also in `steps`."""
    found, first = [], 1
    while (chunk := trace.chunk(first, cap=1 << 20)).steps:
        found += [(*facts_of(step), *(block.text for block in step.blocks)) for step in chunk.steps]
        first = chunk.steps[-1].number + 1
    return found


def test_a_trace_has_every_step_of_the_conversations(shared: Traces, run: Path) -> None:
    expected = [
        (*facts_of(step), *(getattr(part, "text", "") or getattr(part, "arguments", "") for part in step.parts))
        for step in steps(build(CALLS))
    ]
    with get(shared, run) as trace:
        assert texts_of(trace) == expected
        assert (trace.facts.exchanges, trace.facts.read, trace.facts.incomplete) == (len(CALLS), len(CALLS), "")


def test_nobody_has_to_wait_for_a_trace(shared: Traces, run: Path) -> None:
    assert isinstance(shared.get(run, 1, len(CALLS), 0.0), Pending)
    get(shared, run).close()
    assert isinstance(shared.get(run, 1, len(CALLS), 0.0), TraceFile)


def test_many_readers_wait_for_one_derivation(shared: Traces, run: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: get(shared, run).count, range(8)))
    assert found == [len(steps(build(CALLS)))] * 8


def test_a_trace_outlives_the_server(shared: Traces, cache_folder: Path, run: Path) -> None:
    get(shared, run).close()
    with Traces(Cache(cache_folder)) as traces:
        get(traces, run).close()
        assert traces._worker.id is None, "the second server had to derive it again"


def dump(path: Path) -> list[str]:
    """Everything that a trace file holds."""
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [f"{name}: {row}" for name in tables for row in db.execute(f"SELECT * FROM {name}")]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(1, len(CALLS) - 1), max_size=4), late=st.booleans())
def test_a_trace_that_grows_is_the_one_that_is_read_at_once(
    seed: int, cuts: list[int], late: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("growing")
    calls = list(CALLS)
    if late:  # calls are stored when they end, which may be in another order than they began
        at = random.Random(seed).randrange(len(calls) - 1)
        calls[at], calls[at + 1] = calls[at + 1], calls[at]
    attempt = write_trace(folder / "run", [], ended=False)
    growing, edges = Worker(), [0, *sorted(set(cuts)), len(calls)]
    files = [folder / f"{end}.trace" for end in edges[1:]]
    for file, (start, end) in zip(files, pairwise(edges), strict=True):
        add_calls(folder / "run", attempt, calls[start:end])
        job = DeriveTrace("run", str(folder / "run"), attempt, (str(file),))
        assert growing.do(job) == Done()
    once = folder / "once.trace"
    assert Worker().do(DeriveTrace("run", str(folder / "run"), attempt, (str(once),))) == Done()
    assert dump(files[-1]) == dump(once)


def test_new_calls_make_a_new_trace_and_the_old_file_goes(shared: Traces, tmp_path: Path) -> None:
    attempt = write_trace(tmp_path / "run", CALLS[:5], ended=False)
    with get(shared, tmp_path / "run", 5) as before:
        add_calls(tmp_path / "run", attempt, CALLS[5:])
        with get(shared, tmp_path / "run") as after:
            assert before.count < after.count
            assert before.chunk().steps, "a reader keeps what it has opened"
            assert (before._path.exists(), after._path.exists()) == (False, True)


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path, run: Path) -> None:
    write_long_trace(tmp_path / "long", 150, 2000)
    with Traces(Cache(tmp_path / "cache")) as traces, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(get, traces, tmp_path / "long", 200)
        wait_until(lambda: traces._worker.id)
        os.kill(traces._worker.id or 0, signal.SIGKILL)  # in the middle of its work
        waiting.result().close()
        os.kill(traces._worker.id or 0, signal.SIGKILL)  # while it has none
        get(traces, run).close()


def test_a_worker_that_cannot_live_is_a_sentence(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(worker_process, "_start", start)
    with Traces(Cache(tmp_path / "cache")) as traces:
        found = traces.get(run, 1, len(CALLS), WAIT_SEC)
        assert isinstance(found, Failed)
        assert "the process that reads traces" in found.reason


def test_a_worker_ends_when_its_server_is_killed(tmp_path: Path, run: Path) -> None:
    program = f"""
from pathlib import Path
from whet.view.derive.cache import Cache
from whet.view.derive.traces import Traces
traces = Traces(Cache(Path({str(tmp_path / "cache")!r})))
traces.get(Path({str(run)!r}), 1, {len(CALLS)}, 60).close()
print(traces._worker.id, flush=True)
input()
"""
    server = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    worker = Path("/proc", server.stdout.readline().decode().strip(), "cmdline")
    assert b"whet.view.derive.worker" in worker.read_bytes()
    server.kill()
    server.communicate()
    wait_until(lambda: not worker.exists() or not worker.read_bytes())


@pytest.mark.parametrize("damage", [b"", b"no database at all", None])
def test_a_file_that_is_no_trace_is_made_anew(damage: bytes | None, tmp_path: Path, run: Path, shared: Traces) -> None:
    with get(shared, run) as trace:
        path, count = trace._path, trace.count
    path.write_bytes(path.read_bytes()[:3000] if damage is None else damage)
    with get(shared, run) as trace:
        assert trace.count == count


def test_a_file_that_is_damaged_inside_is_deleted_and_says_so(run: Path, shared: Traces) -> None:
    with get(shared, run) as trace:
        path, count = trace._path, trace.count
    body = bytearray(path.read_bytes())
    body[8192:] = b"\xff" * (len(body) - 8192)
    path.write_bytes(body)
    with get(shared, run) as trace, pytest.raises(DamagedTraceError, match="reload"):
        texts_of(trace)
    with get(shared, run) as trace:
        assert trace.count == count
        assert trace.chunk().steps


def test_the_cache_may_be_deleted_at_any_time(shared: Traces, cache_folder: Path, run: Path) -> None:
    with get(shared, run) as trace:
        rmtree(cache_folder)
        assert trace.chunk().steps
    get(shared, run).close()


def test_a_run_that_was_deleted_is_a_sentence(run: Path, shared: Traces) -> None:
    rmtree(run)
    found = shared.get(run, 1, len(CALLS), WAIT_SEC)
    assert isinstance(found, Failed)
    assert str(run) in found.reason


def test_a_run_in_the_place_of_another_has_its_own_trace(run: Path, shared: Traces) -> None:
    get(shared, run).close()
    rmtree(run)
    write_trace(run, long_trace(len(CALLS), 300, seed=7))
    with get(shared, run) as trace:
        assert trace.threads()[0].turns == len(CALLS), "this is the trace of the run that was there before"


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, run: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    files = (tmp_path / "file" / "a.trace", tmp_path / "b.trace")
    assert Worker().do(DeriveTrace("run", str(run), 1, tuple(map(str, files)))) == Done()
    assert files[1].is_file()


def test_a_full_disk_is_a_sentence(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("whet.view.derive.worker.write_trace", fail)
    job = DeriveTrace("run", str(run), 1, (str(tmp_path / "a.trace"), str(tmp_path / "b.trace")))
    assert Worker().do(job) == Refused("database or disk is full")
    assert not list(tmp_path.glob("*.part"))


def test_a_trace_that_takes_too_long_shows_its_beginning(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.view.derive.worker.READING_SEC", 0.0)
    file = tmp_path / "x.trace"
    assert Worker().do(DeriveTrace("run", str(run), 1, (str(file),))) == Done()
    with TraceFile(file) as trace:
        assert trace.facts.read == 0
        assert "0 of 37" in trace.facts.incomplete


def test_a_job_that_takes_too_long_is_a_sentence(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr("whet.view.derive.worker.write_trace", compute)
    monkeypatch.setattr("whet.view.derive.worker.LIMIT_SEC", 0.2)
    assert isinstance(Worker().do(DeriveTrace("run", str(run), 1, (str(tmp_path / "x"),))), Refused)


def test_an_attempt_that_ended_is_not_kept_in_memory(tmp_path: Path) -> None:
    attempt = write_trace(tmp_path / "run", CALLS[:3], ended=False)
    worker, job = Worker(), DeriveTrace("run", str(tmp_path / "run"), 1, (str(tmp_path / "x"),))
    worker.do(job)
    assert len(worker._growing) == 1
    with Store.open_write(tmp_path / "run") as store:
        finish(store, attempt, 1.0, None)
        assert store.attempts_of("r0")[0].started == EPOCH
    worker.do(job)
    assert not worker._growing
