"""Reads the store in threads, beside the one that writes it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from whet.runs.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class StoreReader:
    """Runs functions on a store that is open for reading. They must not raise for what is not there: an error makes the
    store look for damage, which takes long.

    Its threads are its own: in those of the event loop, callers would wait for the boxes of rollouts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = [_ReaderThread(folder) for _ in range(THREADS)]
        self._workers = ThreadPoolExecutor(THREADS, "whet-serve")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.close()
        self._workers.shutdown()

    async def __call__(self, read: Callable[[Store], T]) -> T:
        """What the function returns."""
        thread = min(self._threads, key=lambda one: one.waiting)
        thread.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(thread.executor, thread.read, read)
        finally:
            thread.waiting -= 1

    async def run(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run something short that needs no store in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, partial(work, *args, **named))


class _ReaderThread:
    """One thread, and its connection: to open one takes as long as to read a rollout."""

    def __init__(self, folder: Path) -> None:
        self.executor = ThreadPoolExecutor(1, "whet-read")
        self.waiting = 0
        """Reads that are under way or wait, for the event loop."""
        self._folder = folder
        self._store: Store | None = None

    def read(self, read: Callable[[Store], T]) -> T:
        """In the thread: what the function returns."""
        if self._store is None:
            self._store = Store.open_read(self._folder)
        try:
            return read(self._store)
        except BaseException as error:
            store, self._store = self._store, None
            store.__exit__(type(error), error, None)  # explains damage, and closes it
            raise

    def close(self) -> None:
        """Close the connection, which only its thread may do, and end the thread."""
        self.executor.submit(self._close).result()
        self.executor.shutdown()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
