"""Writing from an event loop: commits are shared, failures are not, and nothing awaited is lost to kill -9."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter

WRITE_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from whet.exchange import Exchange
from whet.runs.store.writer import StoreWriter

async def main():
    async with StoreWriter(Path(sys.argv[1])) as writer:
        attempt = await writer.do(lambda store: store.start_attempt("r", 0.0))

        async def lane(start):
            for index in range(start, 1_000_000, 4):
                body = b"%d" % index * 500
                exchange = Exchange("1", index, "chat", "/", (), body, "", 200, (), body, 1, None, 0.0, None, 1.0, None)
                await writer.do(lambda store: store.add_exchange(attempt, exchange))
                print(index, flush=True)

        await asyncio.gather(*map(lane, range(4)))

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.create(tmp_path) as store:
        store.add_tasks([TaskRow("t", "d", "", "{}")])
        store.add_rollouts([RolloutRow("r", 0, "t", "agent", "model", None, 0)])
    return tmp_path


def setting(key: str) -> Callable[[Store], None]:
    return lambda store: store.set(key, True)


@asynccontextmanager
async def held_up(writer: StoreWriter) -> AsyncIterator[None]:
    """The writer's thread is busy within, so that requests queue up; at the end they are in the queue."""
    busy, go_on = threading.Event(), threading.Event()

    def hold(_: Store) -> None:
        busy.set()
        go_on.wait()

    holding = asyncio.create_task(writer.do(hold))
    await asyncio.to_thread(busy.wait)
    yield
    await asyncio.sleep(0)  # tasks made within start now, and queue their requests
    go_on.set()
    await holding


async def test_work_returns_its_result_and_is_committed_when_awaited(folder: Path) -> None:
    async with StoreWriter(folder) as writer:
        attempt = await writer.do(lambda store: store.start_attempt("r", 1.0))
        with Store.open_read(folder) as reader:
            assert [row.id for row in reader.attempts_of("r")] == [attempt]


async def test_requests_that_queue_up_are_committed_together(folder: Path) -> None:
    def seen_from_outside(_: Store) -> object:
        with Store.open_read(folder) as reader:
            return reader.get("a"), first.done()

    async with StoreWriter(folder) as writer:
        async with held_up(writer):
            first = asyncio.create_task(writer.do(setting("a")))
            second = asyncio.create_task(writer.do(seen_from_outside))
        assert await second == (None, False)
        await first
        assert await writer.do(seen_from_outside) == (True, True)


async def test_a_failing_request_undoes_only_itself(folder: Path) -> None:
    def fail_late(store: Store) -> None:
        store.set("half", True)
        raise ValueError("mine")

    async with StoreWriter(folder) as writer:
        async with held_up(writer):
            works = [setting("a"), fail_late, lambda store: store.start_attempt("nobody", 0.0), setting("b")]
            outcomes = asyncio.gather(*(writer.do(work) for work in works), return_exceptions=True)
        first, second, third, fourth = await outcomes
    assert (first, fourth) == (None, None)
    assert isinstance(second, ValueError)
    assert isinstance(third, sqlite3.IntegrityError)
    with Store.open_read(folder) as reader:
        assert (reader.get("a"), reader.get("half"), reader.get("b")) == (True, None, True)


async def test_full_disk_fails_what_does_not_fit_and_later_writes_work(folder: Path) -> None:
    def limit_pages(store: Store, spare: int) -> None:
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages + spare}")

    large = random.Random(1).randbytes(1 << 20)
    async with StoreWriter(folder) as writer:
        attempt = await writer.do(lambda store: store.start_attempt("r", 0.0))
        await writer.do(lambda store: limit_pages(store, 3))
        async with held_up(writer):
            works = [setting("a"), lambda store: store.add_log(attempt, "large", large), setting("b")]
            outcomes = asyncio.gather(*(writer.do(work) for work in works), return_exceptions=True)
        first, second, third = await outcomes
        assert isinstance(second, sqlite3.OperationalError)
        assert "full" in str(second)
        assert (first, third) == (None, None)
        await writer.do(lambda store: limit_pages(store, 1 << 20))
        await writer.do(lambda store: store.add_log(attempt, "large", large))
    with Store.open_read(folder) as reader:
        assert (reader.get("a"), reader.get("b")) == (True, True)
        assert reader.logs(attempt) == {"large": large}


async def test_closing_writes_all_that_was_asked_for(folder: Path) -> None:
    async with StoreWriter(folder) as writer, held_up(writer):
        waiting = [asyncio.create_task(writer.do(setting(str(key)))) for key in range(50)]
    await asyncio.gather(*waiting)
    with Store.open_read(folder) as reader:
        assert all(reader.get(str(key)) for key in range(50))


async def test_closing_while_the_thread_is_at_work_loses_nothing(folder: Path) -> None:
    opened = AsyncExitStack()
    writer = await opened.enter_async_context(StoreWriter(folder))
    async with held_up(writer):
        late = asyncio.create_task(writer.do(setting("late")))
        await asyncio.sleep(0)
        closing = asyncio.create_task(opened.aclose())
    await closing
    with Store.open_read(folder) as reader:
        assert reader.get("late")
    await late


async def test_what_fails_at_closing_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = Store.close

    def fail_after(store: Store) -> None:
        close(store)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Store, "close", fail_after)
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        async with StoreWriter(folder):
            pass


async def test_a_cancelled_caller_loses_neither_its_write_nor_the_answer_to_others(folder: Path) -> None:
    async with StoreWriter(folder) as writer:
        async with held_up(writer):
            cancelled, other = (asyncio.create_task(writer.do(setting(key))) for key in ("paid", "other"))
            await asyncio.sleep(0)
            cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        async with asyncio.timeout(30):
            await other
    with Store.open_read(folder) as reader:
        assert (reader.get("paid"), reader.get("other")) == (True, True)


async def test_second_writer_and_missing_run_are_refused(folder: Path, tmp_path: Path) -> None:
    async with StoreWriter(folder):
        with pytest.raises(UserError, match="is being written by another process"):
            async with StoreWriter(folder):
                pass
    with pytest.raises(UserError, match="expected a run folder"):
        async with StoreWriter(tmp_path / "elsewhere"):
            pass


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_loses_nothing_that_was_awaited(folder: Path, seed: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", WRITE_UNTIL_KILLED, str(folder)], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        awaited = [int(child.stdout.readline()) for _ in range(random.Random(seed).randint(1, 300))]
        child.send_signal(signal.SIGKILL)
        awaited += [int(line) for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL

    files = {path.name for path in folder.iterdir()}
    with Store.open_read(folder) as reader:
        (attempt,) = reader.attempts_of("r")
        assert attempt.ended is None
        stored = {exchange.index: exchange.request for exchange in reader.exchanges(attempt.id)}
        assert {path.name for path in folder.iterdir()} == files
    assert {path.name for path in folder.iterdir()} == files
    assert stored.keys() >= set(awaited)
    assert all(body == b"%d" % index * 500 for index, body in stored.items())
    with Store.open_write(folder) as store:
        assert store.interrupt_open_attempts() == 1
        assert len(store.exchanges(attempt.id)) == len(stored)
        assert store._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
