"""The one thread that writes a run, for code in an event loop."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from whet.runs.store.store import Store

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Request(Generic[T]):
    work: Callable[[Store], T]
    done: "asyncio.Future[T]"


@dataclass(slots=True, eq=False)
class _Outcome(Generic[T]):
    """The outcome of a request, delivered to its caller after the commit."""

    request: _Request[T]
    result: T | None = None
    error: Exception | None = None

    def tell(self) -> None:
        done = self.request.done
        if done.done():  # the caller was cancelled meanwhile
            return
        if self.error is None:
            done.set_result(self.result)  # type: ignore[arg-type] # T may be None
        else:
            done.set_exception(self.error)


class StoreWriter:
    """Writes a run from an event loop. One thread owns the store; what is asked for while it is busy is committed
    together in its next transaction.

    >>> async with StoreWriter(folder) as writer:
    ...     attempt = await writer.do(lambda store: store.start_attempt("r1", time.time()))
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: deque[_Request[Any]] = deque()
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Calls the thread to work: once for all that waits, and not while it is at work. False is the last."""
        self._at_work = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._opened, self._closed = self._loop.create_future(), self._loop.create_future()
        # Not a daemon: what was asked for is written even when nobody waits for it any more.
        threading.Thread(target=self._serve, name="whet-store", daemon=False).start()
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            self._calls.put(False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        # All that was asked for is written first, even if this is cancelled.
        self._calls.put(False)
        await asyncio.shield(self._closed)

    async def do(self, work: Callable[[Store], T]) -> T:
        """Run `work` in the writer's thread, all or nothing; return when it is committed. It is done even if the
        caller is cancelled meanwhile. It may run twice (only the last time counts), so it should only use the store.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Request(work, done))
        self._call()
        return await done

    def _call(self) -> None:
        """Have the thread write all that waits. What comes while it is at work waits for the next call, so that a busy
        loop and the thread seldom stand in each other's way."""
        if self._waiting and not self._at_work:
            self._at_work = True
            self._calls.put(True)

    def _serve(self) -> None:
        """The thread: open the store, run the requests, close it."""
        try:
            store = Store.open_write(self._folder)
        except Exception as error:  # noqa: BLE001 - handed to the caller of __aenter__
            self._in_loop(_Outcome(_Request(_do_nothing, self._opened), error=error).tell)
            return
        self._in_loop(_Outcome(_Request(_do_nothing, self._opened)).tell)
        failure: Exception | None = None
        try:
            with store:
                while self._write_batch(store):
                    pass
        except Exception as error:  # noqa: BLE001 - handed to the caller of __aexit__
            failure = error
        self._in_loop(_Outcome(_Request(_do_nothing, self._closed), error=failure).tell)

    def _write_batch(self, store: Store) -> bool:
        """Write what waits; whether more may follow. What was written is not held while the thread waits for more."""
        batch = self._batch()
        if batch:
            self._in_loop(self._tell, _commit(store, batch))
        return bool(batch)

    def _batch(self) -> list[_Request[Any]]:
        """All that waits, as soon as the thread is called; empty when nothing will follow."""
        goes_on = self._calls.get()
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not goes_on and batch:
            self._calls.put(False)
        # Called for what an earlier call has brought already, it waits for the next one.
        return batch or (self._batch() if goes_on else [])

    def _tell(self, outcomes: "list[_Outcome[Any]]") -> None:
        """In the loop: deliver the outcomes of a batch."""
        self._at_work = False
        for outcome in outcomes:
            outcome.tell()
        self._call()

    def _in_loop(self, what: Callable[..., None], *values: object) -> None:
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *values)


def _do_nothing(store: Store) -> None: ...


def _commit(store: Store, batch: list[_Request[Any]]) -> "list[_Outcome[Any]]":
    """Run the requests in one transaction; when that fails, each in its own, so that the one that fails fails alone."""
    try:
        with store.atomic():
            return [_Outcome(request, request.work(store)) for request in batch]
    except Exception as error:  # noqa: BLE001 - handed to the caller
        if len(batch) == 1:
            return [_Outcome(batch[0], error=error)]
        return [outcome for request in batch for outcome in _commit(store, [request])]
