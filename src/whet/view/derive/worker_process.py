"""The server's end of the worker process: starts it, hands it jobs, and replaces it when it is gone."""

import os
import select
import subprocess
import sys
import time

import msgspec

from whet.view.derive import worker
from whet.view.derive.jobs import Job, Refused, Reply

WAIT_SEC = 60.0
"""How long a reply may take. The worker counts its own computing time; this is for one that hangs."""
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(128 << 20)}
"""The requests of a conversation are large, and each is a little larger than the one before. By default glibc gives
each of them new pages and takes these back, which takes longer than reading the requests."""
TRIES = 2
"""A worker that was killed, as when memory runs out, is replaced once for the same job."""


class WorkerLostError(Exception):
    """The worker ended, or does not answer."""


class WorkerProcess:
    """A worker that is started for its first job. It belongs to one thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)

    @property
    def id(self) -> int | None:
        """Of the process; None before the first job."""
        return self._process.pid if self._process else None

    def do(self, job: Job) -> Reply:
        """Have a job done."""
        reason = ""
        for _ in range(TRIES):
            try:
                return self._try(job)
            except WorkerLostError as error:
                reason = str(error)
                self.close()
        return Refused(reason)

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process, self._received = self._process, None, b""
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:  # a job that it never read
                continue

    def _try(self, job: Job) -> Reply:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise WorkerLostError(f"the process that reads traces has ended: {error}") from error
        return self._decoder.decode(self._read_line(process, time.monotonic() + WAIT_SEC))

    def _read_line(self, process: "subprocess.Popen[bytes]", until: float) -> bytes:
        assert process.stdout is not None
        while b"\n" not in self._received:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise WorkerLostError(f"the process that reads traces did not answer within {WAIT_SEC:.0f} s")
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise WorkerLostError("the process that reads traces was killed; is there enough memory?")
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        return line


def _start() -> "subprocess.Popen[bytes]":
    # -P: what lies in the current folder must not take the place of a module. In a session of its own, an interrupt of
    # the terminal reaches the server alone, which then ends the worker.
    argv = [sys.executable, "-P", "-m", worker.__name__]
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **_MEMORY}, start_new_session=True
    )
