"""Waiting for what has no event of its own: until a condition holds, and not a moment longer."""

import asyncio
import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds after which a test fails that waits for something."""
PAUSE = 0.005


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(PAUSE)


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """The same where no event loop runs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(PAUSE)
