"""Reads the store in threads, beside the one that writes it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from whet.runs.store.store import Store

T = TypeVar("T")


class StoreReader:
    """Runs functions on a store that is open for reading. They must not raise for what is not there: an error makes the
    store look for damage, which takes long."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __call__(self, read: Callable[[Store], T]) -> T:
        """What the function returns."""
        return await asyncio.to_thread(self._read, read)

    def _read(self, read: Callable[[Store], T]) -> T:
        with Store.open_read(self.folder) as store:
            return read(store)
