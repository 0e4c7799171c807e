"""Runs a coroutine to its end from code that is not asynchronous: the command line, a script or a notebook."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Ctrl-C, and SIGTERM in the main thread, cancel the work, and raise KeyboardInterrupt when it has
    cleaned up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(work)
    return _run_in_thread(work)


def _run_here(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    async def watch_signals() -> T:
        task = asyncio.current_task()
        assert task is not None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(watch_signals())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """In a notebook this thread's loop is running already, so the work gets a thread with a loop of its own."""
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def begin() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    with ThreadPoolExecutor(1, thread_name_prefix="whet-run") as thread:
        done = thread.submit(lambda: _run_here(begin()))
        try:
            return done.result()
        except KeyboardInterrupt:
            loop, task = begun.result()
            # Leaving the block waits until what is finished is stored and the boxes are gone.
            loop.call_soon_threadsafe(task.cancel)
            raise
