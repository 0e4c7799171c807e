"""A process whose output is captured up to a limit, watched without threads. Both sandboxes use it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from whet.box import Captured, Finished, SandboxError

READ_SIZE = 1 << 18


class OutputCapture:
    """Reads a pipe as data arrives; keeps the first and the last half of the limit, counts all."""

    def __init__(self, fd: int, limit: int, on_excess: Callable[[], None]) -> None:
        self._fd = fd
        self._limit = limit
        self._half = limit // 2
        self._on_excess = on_excess
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        """Read the available data. Returns False if no more can be read now."""
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._total += len(data)
        if self._total > self._limit:
            self._on_excess()
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        # Trim rarely: trimming at every read would move the tail each time.
        if len(self._tail) > 2 * self._half + READ_SIZE:
            del self._tail[: len(self._tail) - self._half]
        return True

    def finish(self) -> None:
        """Read the rest of the pipe and close it. Call after every writer is dead."""
        while self._fd >= 0 and self._read():
            pass
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def captured(self) -> Captured:
        tail = self._tail[-self._half :] if self._half else b""
        return Captured(bytes(self._head), bytes(tail), self._total)


class ProcessEnd:
    """Waits for the end of a process through a pidfd: no thread, no signal handler, no reuse of ids."""

    def __init__(self, pid: int) -> None:
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1
            self._ended.set()
        else:
            self._loop.add_reader(self._fd, self._on_end)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._ended.set()

    async def wait(self) -> None:
        await self._ended.wait()

    async def kill(self) -> None:
        """End the process and return when it is gone."""
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
        await self._ended.wait()


def stdin_file(data: bytes) -> IO[bytes]:
    """An unnamed file to use as standard input. Unlike a pipe, it needs no writer, whatever its size."""
    file = os.fdopen(os.memfd_create("stdin"), "w+b")
    file.write(data)
    file.seek(0)
    return file


class TreeProcess:
    """A command and all its descendants.

    `kill_tree` ends every descendant and returns when they are gone. Each sandbox implements it.
    """

    def __init__(
        self, popen: "subprocess.Popen[bytes]", kill_tree: Callable[[], Awaitable[None]], output_limit: int
    ) -> None:
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._popen = popen
        self._kill_tree = kill_tree
        self.wrote_too_much = asyncio.Event()
        """Set when a stream exceeds the output limit."""
        self._out = OutputCapture(_detach(popen.stdout), output_limit, self.wrote_too_much.set)
        self._err = OutputCapture(_detach(popen.stderr), output_limit, self.wrote_too_much.set)
        self._started = time.monotonic()
        self._end = ProcessEnd(popen.pid)
        self._finish = asyncio.create_task(self._until_gone())
        self._timed_out = False
        self.over_storage = False

    @property
    def exit_code(self) -> int | None:
        return shell_code(self._popen.returncode) if self._finish.done() else None

    def stdout(self) -> Captured:
        return self._out.captured()

    def stderr(self) -> Captured:
        return self._err.captured()

    async def wait(self, timeout: float | None = None) -> Finished:
        try:
            async with asyncio.timeout(timeout):
                seconds = await asyncio.shield(self._finish)
        except TimeoutError:
            self._timed_out = True
            await self.kill()
            seconds = await self._finish
        except asyncio.CancelledError:
            await asyncio.shield(self.kill())
            raise
        code = self.exit_code
        assert code is not None
        return Finished(code, self.stdout(), self.stderr(), seconds, self._timed_out, self.over_storage)

    async def kill(self) -> None:
        if not self._finish.done():
            await self._end.kill()
        await asyncio.shield(self._finish)

    def has_started_since(self, seconds: float) -> bool:
        """Whether it runs a process that it started in the last `seconds`. False for a command younger than that."""
        is_old = time.monotonic() - self._started > seconds
        return is_old and not self._finish.done() and any(age <= seconds for _, age in processes_below(self._popen.pid))

    def pids(self) -> list[int]:
        """The host ids of all its processes."""
        return [self._popen.pid, *(pid for pid, _ in processes_below(self._popen.pid))]

    def on_end(self, forget: Callable[["TreeProcess"], None]) -> None:
        """Call `forget` with this process when all its processes are gone."""
        self._finish.add_done_callback(lambda _: forget(self))

    async def _until_gone(self) -> float:
        await self._end.wait()
        self._popen.wait()
        await self._kill_tree()
        self._out.finish()
        self._err.finish()
        return time.monotonic() - self._started


def spawn(
    argv: Sequence[str],
    *,
    stdin: IO[bytes],
    env: dict[str, str],
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start a program in its own session.

    Uses plain Popen because it starts the child by vfork, which is an order of magnitude cheaper than fork.
    """
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"{argv[0]} could not be started: {error}") from error


def processes_below(root: int) -> Iterator[tuple[int, float]]:
    """The descendants of a process, with the seconds since each was started."""
    tick = os.sysconf("SC_CLK_TCK")
    now = time.clock_gettime(time.CLOCK_BOOTTIME) - 1 / tick  # the kernel rounds the start time down
    children: dict[int, list[tuple[int, float]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The process name comes first, in parentheses, and may contain any character.
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if state[0] != b"Z":
                    children.setdefault(int(state[1]), []).append((int(entry.name), now - int(state[19]) / tick))
    waiting = [root]
    while waiting:
        for pid, age in children.get(waiting.pop(), []):
            waiting.append(pid)
            yield pid, age


def shell_code(returncode: int) -> int:
    """An exit code as a shell returns it: 128 + n if signal n ended the process."""
    return 128 - returncode if returncode < 0 else returncode


def _detach(stream: IO[bytes]) -> int:
    """Duplicate the descriptor of a pipe, so that only we close it."""
    fd = os.dup(stream.fileno())
    stream.close()
    return fd
