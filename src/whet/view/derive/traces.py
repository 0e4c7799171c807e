"""Traces and full text for the pages. A worker process derives them and files keep them, so that only the first look at
a trace takes long, and no page waits for it."""

import itertools
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from whet.view.derive.cache import Cache, run_key
from whet.view.derive.jobs import DeriveTrace, Done, FillSearch, Job, Refused, Reply
from whet.view.derive.search import find_missing, find_text
from whet.view.derive.trace_file import TraceFile
from whet.view.derive.worker_process import WorkerProcess

CLOSING_SEC = 5.0
SLICE_SEC = 0.5
"""How long the worker fills the full text of a run before it looks for other jobs."""
FILL_SEC = 60.0
"""How long it goes on doing so after a search."""


@dataclass(frozen=True, slots=True)
class Pending:
    """It is not derived yet. Ask again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be derived."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunHit:
    """A step of a rollout that holds a text."""

    rollout: str
    step: int
    before: str
    hit: str
    """Empty when the place is not known to the character."""
    after: str
    steps: int
    """How many steps of the rollout hold it. Only the first few of them are hits."""


@dataclass(frozen=True, slots=True)
class RunHits:
    """What a search in a run gives."""

    hits: tuple[RunHit, ...]
    """The newest rollouts first."""
    complete: bool
    """Whether all rollouts were looked at, and all hits are here."""
    problem: str = ""
    """Why rollouts cannot be looked at."""


@dataclass
class _Waiting:
    """A job, and those who wait for it."""

    job: Job
    until: float
    """A job in parts is continued up to this time."""
    done: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None


class Traces:
    """Derives traces in a worker process and keeps them. Safe to use from several threads.

    >>> with Traces() as traces:  # doctest: +SKIP
    ...     trace = traces.get(Path("runs/quiz"), attempt_id=1, exchanges=12, wait_sec=5.0)
    """

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = cache or Cache()
        self._worker = WorkerProcess()
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._queue: queue.PriorityQueue[tuple[int, int, str]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._queue.put((-1, next(self._order), ""))
        if thread is not None:
            thread.join(CLOSING_SEC)
        self._cache.close()

    def get(self, folder: Path, attempt_id: int, exchanges: int, wait_sec: float) -> TraceFile | Pending | Failed:
        """The trace of an attempt that has made this many model calls, open. When it is not derived yet, this waits
        for it up to `wait_sec`."""
        run = run_key(folder)
        name = f"{run}-{attempt_id}-{exchanges}.trace"
        if (trace := self._open(name)) is not None:
            return trace
        files = tuple(map(str, self._cache.places(name)))
        waiting = self._submit(name, DeriveTrace(run, str(folder.absolute()), attempt_id, files), priority=0)
        if not waiting.done.wait(wait_sec):
            return Pending()
        if isinstance(waiting.reply, Refused):
            return Failed(waiting.reply.reason)
        return self._open(name) or Failed("the file that was written cannot be read; is the disk full?")

    def search(
        self, folder: Path, attempts: Sequence[tuple[str, int, int]], text: str, wait_sec: float, limit: int
    ) -> RunHits:
        """The steps that hold all words of a text, of attempts that are given as rollout, id and number of model calls.
        Rollouts that are not in the full text yet are added to it, the newest first; this waits for it up to
        `wait_sec`, and the worker continues for a while."""
        newest = sorted(attempts, key=lambda one: -one[1])
        wanted = [(attempt, exchanges) for _, attempt, exchanges in newest]
        name = f"{run_key(folder)}.search"
        missing, problem = self._find_missing(name, wanted), ""
        if missing:
            files = tuple(map(str, self._cache.places(name)))
            job = FillSearch(str(folder.absolute()), files, missing, SLICE_SEC)
            waiting = self._submit(name, job, priority=1)
            waiting.done.wait(wait_sec)
            problem = waiting.reply.reason if isinstance(waiting.reply, Refused) else ""
            missing = self._find_missing(name, wanted)
        path = self._cache.find(name)
        try:
            found, whole = find_text(path, [one for one, _ in wanted], text, limit) if path else ((), True)
        except sqlite3.Error:  # damaged, or deleted meanwhile
            found, whole = (), False
        except TimeoutError as error:
            found, whole, problem = (), False, str(error)
        rollouts = {attempt: rollout for rollout, attempt, _ in attempts}
        hits = (RunHit(rollouts[one.attempt], one.step, one.before, one.hit, one.after, one.steps) for one in found)
        return RunHits(tuple(hits), whole and not missing, problem)

    def _find_missing(self, name: str, wanted: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        path = self._cache.find(name)
        try:
            return find_missing(path, wanted)
        except sqlite3.Error:  # damaged: the worker makes it anew
            return tuple(wanted)

    def _open(self, name: str) -> TraceFile | None:
        path = self._cache.find(name)
        if path is None:
            return None
        try:
            return TraceFile(path)
        except (sqlite3.Error, ValueError, OSError):  # damaged, or deleted meanwhile
            path.unlink(missing_ok=True)
            return None

    def _submit(self, name: str, job: Job, priority: int) -> _Waiting:
        """Have a job done; the same one that is under way already if there is one."""
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is None:
                waiting = self._waiting[name] = _Waiting(job, time.monotonic() + FILL_SEC)
                self._queue.put((priority, next(self._order), name))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
                self._thread.start()
        return waiting

    def _work(self) -> None:
        try:
            while not self._closed:
                _, _, name = self._queue.get()
                if name:
                    self._do(name)
        finally:
            self._worker.close()

    def _do(self, name: str) -> None:
        waiting = self._waiting[name]
        reply = self._worker.do(waiting.job)
        match waiting.job, reply:
            case FillSearch(attempts=attempts), Done(left=left) if left and time.monotonic() < waiting.until:
                # One part at a time: a trace that somebody waits for goes first.
                waiting.job = msgspec.structs.replace(waiting.job, attempts=attempts[-left:])
                self._queue.put((1, next(self._order), name))
                return
            case DeriveTrace(run=run, attempt=attempt), _:
                # Earlier states of an attempt that grows.
                self._cache.delete(f"{run}-{attempt}-*.trace", but=name)
        self._cache.trim()
        waiting.reply = reply
        with self._lock:
            del self._waiting[name]
        waiting.done.set()
