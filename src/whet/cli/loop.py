"""Runs a coroutine for a verb: on the fast event loop, ended cleanly by Ctrl-C and by a polite kill."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. SIGTERM counts as Ctrl-C."""

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(watched())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
