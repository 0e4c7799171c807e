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
        self._threads = ThreadPoolExecutor(THREADS, "whet-read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()

    async def __call__(self, read: Callable[[Store], T]) -> T:
        """What the function returns."""
        return await self.run(self._read, read)

    async def run(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **named))

    def _read(self, read: Callable[[Store], T]) -> T:
        with Store.open_read(self.folder) as store:
            return read(store)
