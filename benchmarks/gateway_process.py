"""A server of the gateway benchmark as a process: what it tells of itself, and how it is started, measured and ended.

Only the standard library is used here, so that servers of other environments can use it too.
"""

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WATCH_SEC = float(os.environ.get("BENCH_WATCH_SEC", "0.005"))

Endpoint = tuple[str, str]
"""An address, and the secret that it asks for."""
Endpoints = dict[str, list[Endpoint]]
"""By the dialect of the model behind them."""


async def stay(endpoints: Endpoints) -> None:
    """Say where the server is; then, for each line that is received, how long the event loop was blocked at most since
    the line before. Returns when nothing more will be received."""
    # As the stand-alone gateway does, and so for all servers alike.
    gc.collect()
    gc.freeze()
    loop = asyncio.get_running_loop()
    longest = 0.0
    schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def waited() -> float:
        """For how long this thread was ready to run, but the machine ran others."""
        return int(os.pread(schedule, 100, 0).split()[1]) / 1e9

    def watch(due: float, waited_before: float) -> None:
        nonlocal longest
        now, waited_until_now = time.monotonic(), waited()
        longest = max(longest, now - due - (waited_until_now - waited_before))
        loop.call_later(WATCH_SEC, watch, now + WATCH_SEC, waited_until_now)

    watch(time.monotonic(), waited())
    print(json.dumps(endpoints), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(longest), flush=True)
        longest = 0.0


@dataclass(frozen=True)
class Server:
    """A server under way."""

    name: str
    process: "subprocess.Popen[str]"
    endpoints: Endpoints

    def cpu_sec(self) -> float:
        """User and system time of all its threads so far."""
        # The kernel's number for the clock of a process, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def blocked_sec(self) -> float:
        """For how long its event loop was blocked at most, since this was asked the last time."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._line())

    def forget_peak(self) -> None:
        """Count the peak of its memory from now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_mb(self) -> float:
        """The most memory that it held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s*(\d+) kB", status)
        assert peak
        return int(peak[1]) / 1024

    def _line(self) -> Any:
        assert self.process.stdout
        for line in self.process.stdout:
            try:
                return json.loads(line)
            except ValueError:  # a server of others may greet the world before
                continue
        raise RuntimeError(f"{self.name}: ended with {self.process.wait()}")


@contextmanager
def running(
    name: str, python: str, script: Path, *arguments: str, cores: set[int], prefix: tuple[str, ...] = ()
) -> Iterator[Server]:
    """Start a server in a process of its own, on these cores only. `prefix` is a command that runs it."""
    process = subprocess.Popen(
        [*prefix, python, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    os.sched_setaffinity(process.pid, cores)
    server = Server(name, process, {})
    try:
        server.endpoints.update(server._line())
        yield server
    finally:
        assert process.stdin
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
