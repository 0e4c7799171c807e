"""Tells what blocks the event loop: for whoever debugs the gateway, with WHET_DEBUG=1."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

LIMIT_SEC = 0.020
"""A longer block is logged."""
BEAT_SEC = 0.005


@contextmanager
def watch_loop() -> Iterator[None]:
    """Log each time that the running event loop is blocked for longer than the limit, and where it hangs."""
    watchdog = Watchdog(asyncio.get_running_loop())
    try:
        yield
    finally:
        watchdog.stop()


class Watchdog:
    """Lets the loop beat, and listens from a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._stopped = threading.Event()
        self._beaten, self._waited = time.monotonic(), self._time_waited()
        self._beat()
        self._listener = threading.Thread(target=self._listen, name="whet-watchdog", daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        self._stopped.set()
        self._listener.join()

    def _beat(self) -> None:
        self._beaten, self._waited = time.monotonic(), self._time_waited()
        self._timer = self._loop.call_later(BEAT_SEC, self._beat)

    def _listen(self) -> None:
        hangs_at, last_beat = "", 0.0
        while not self._stopped.wait(BEAT_SEC):
            if self._beaten != last_beat and hangs_at:
                logger.warning("the event loop was blocked for more than %d ms here:\n%s", 1000 * LIMIT_SEC, hangs_at)
                hangs_at = ""
            last_beat = self._beaten
            if not hangs_at and self._silent_sec() > LIMIT_SEC:
                frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - its documented name
                hangs_at = "".join(traceback.format_stack(frame))

    def _silent_sec(self) -> float:
        """How long ago a beat was due, without the time in which the machine ran others."""
        return time.monotonic() - self._beaten - BEAT_SEC - (self._time_waited() - self._waited)

    def _time_waited(self) -> float:
        """For how long the loop's thread was ready to run and did not; unknown, and so 0, where there is no Linux."""
        try:
            return int(self._schedule.read_text().split()[1]) / 1e9
        except OSError:
            return 0.0
