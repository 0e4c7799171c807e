"""The process that derives traces and full text, so that the server answers meanwhile: `python -m` this module.

It reads jobs from its standard input, one line each, and writes a line for each to its standard output. It ends when
its input does, which is when the server ends.
"""

import os
import queue
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from whet.errors import UserError
from whet.runs.results import LiveTrace
from whet.runs.store.store import Store
from whet.trace.steps.steps import Step, steps
from whet.view.derive.jobs import DeriveTrace, Done, FillSearch, Job, Refused, Reply
from whet.view.derive.search import MOST_BYTES, SearchWriter
from whet.view.derive.trace_writer import TraceSource, call_row, write_trace

LIMIT_SEC = 10.0
"""Computing time of one job."""
READING_SEC = 6.0
"""Of which reading the calls of a trace gets this much. The rest is for writing."""
MOST_GROWING = 4
"""Attempts that still run and whose conversations are kept, so that an update reads only what is new."""
NICE = 5
"""The server goes first."""


class TimeLimitError(Exception):
    """A job takes too long."""


class Worker:
    """Does jobs, one after the other."""

    def __init__(self) -> None:
        self._growing: dict[tuple[str, int], LiveTrace] = {}

    def do(self, job: Job) -> Reply:
        """Do a job. What is wrong with its run is a reply, what is wrong with whet an exception."""
        try:
            with _time_limit():
                match job:
                    case DeriveTrace():
                        self._derive(job)
                        return Done()
                    case FillSearch():
                        return Done(_fill(job))
        except TimeLimitError:
            return Refused(f"it takes more than {LIMIT_SEC:.0f} s to read")
        except (UserError, OSError, sqlite3.Error, ValueError, RecursionError) as error:
            return Refused(str(error) or type(error).__name__)
        except MemoryError:
            return Refused("it does not fit into memory")

    def _derive(self, job: DeriveTrace) -> None:
        source = self._read(job)
        problem: OSError | sqlite3.Error | None = None
        for file in map(Path, job.files):
            part = file.with_suffix(".part")
            try:
                write_trace(part, source)
                part.replace(file)
                return
            except (OSError, sqlite3.Error) as error:  # the disk is full, or the folder cannot be written
                problem = error
            finally:
                with suppress(OSError):
                    part.unlink(missing_ok=True)
        raise problem or OSError("there is no folder to write to")

    def _read(self, job: DeriveTrace) -> TraceSource:
        key = (job.run, job.attempt)
        live = self._growing.pop(key, None) or LiveTrace(job.attempt)
        until = time.process_time() + READING_SEC
        with Store.open_read(Path(job.folder)) as store:
            graph = live.update(store, lambda: time.process_time() < until)
            heads = store.exchange_heads(job.attempt)
            rollout = store.rollout_of(job.attempt)
            running = any(row.id == job.attempt and row.ended is None for row in store.attempts_of(rollout))
        if running:
            self._keep(key, live)
        calls = [call_row(head) for head in heads if head.index in live.read]
        incomplete = ""
        if len(calls) < len(heads):
            incomplete = f"the first {len(calls):,} of {len(heads):,} were read in {READING_SEC:.0f} s"
        return TraceSource(graph, calls, len(heads), incomplete)

    def _keep(self, key: tuple[str, int], live: LiveTrace) -> None:
        self._growing[key] = live
        while len(self._growing) > MOST_GROWING:
            del self._growing[next(iter(self._growing))]


def _fill(job: FillSearch) -> int:
    """Add attempts to the full text of a run until the time is over; how many are left. What of an attempt cannot be
    read is left out, because it would be left out the next time too."""
    until = time.monotonic() + job.seconds
    Store.open_read(Path(job.folder)).close()  # a run that is gone is another matter
    with closing(_open_search(job.files)) as search:
        for place, (attempt, exchanges) in enumerate(job.attempts):
            if search.is_full:
                raise UserError(f"the full text has reached {MOST_BYTES >> 20} MB and takes no more rollouts")
            if place and time.monotonic() > until:
                return len(job.attempts) - place
            try:
                search.add(attempt, exchanges, _read_steps(Path(job.folder), attempt))
            except (UserError, ValueError, RecursionError, TimeLimitError):
                search.add(attempt, exchanges, ())
    return 0


def _open_search(files: Sequence[str]) -> SearchWriter:
    for file in map(Path, files[:-1]):
        with suppress(OSError, sqlite3.Error):
            return SearchWriter(file)
    return SearchWriter(Path(files[-1]))


def _read_steps(folder: Path, attempt: int) -> list[Step]:
    until = time.process_time() + READING_SEC
    with Store.open_read(folder) as store:
        return steps(LiveTrace(attempt).update(store, lambda: time.process_time() < until))


@contextmanager
def _time_limit() -> Iterator[None]:
    """TimeLimitError in what runs within, when it has computed for too long."""

    def stop(*_: object) -> NoReturn:
        raise TimeLimitError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SEC)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main() -> None:
    """Do jobs until there are no more."""
    os.nice(NICE)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    worker, decoder, encoder = Worker(), msgspec.json.Decoder(Job), msgspec.json.Encoder()
    while True:
        reply = worker.do(decoder.decode(lines.get()))
        sys.stdout.buffer.write(encoder.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


def _read_lines(lines: "queue.SimpleQueue[bytes]") -> NoReturn:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # also in the middle of a job: nobody waits for it


if __name__ == "__main__":
    main()
