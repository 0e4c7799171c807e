"""How long a night has worked, in all of its processes if it was killed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

TICK_SEC = 15.0
"""How often the time is put on record. A night that is killed loses at most so much of it."""


class NightClock:
    """Counts the minutes of a night, whatever they are used for.

    Args:
        before: What earlier processes of the night took.
    """

    def __init__(self, before: float) -> None:
        self._before = before
        self._began: float | None = None

    @property
    def minutes(self) -> float:
        return self._before + (0.0 if self._began is None else (time.monotonic() - self._began) / 60)

    @asynccontextmanager
    async def run(self, record: Callable[[float], None]) -> AsyncIterator[None]:
        """Count from now on. `record` gets the minutes every now and then."""
        self._began = time.monotonic()
        ticking = asyncio.create_task(self._tick(record))
        try:
            yield
        finally:
            ticking.cancel()

    async def _tick(self, record: Callable[[float], None]) -> None:
        while True:
            await asyncio.sleep(TICK_SEC)
            record(self.minutes)
