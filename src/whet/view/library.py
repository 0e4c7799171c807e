"""The runs that the view shows: found below its roots, opened for a moment to be read, their indexes kept.

The name of a run in an address is looked up here. It is never joined to a path.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from whet.errors import UserError
from whet.runs.index import RunIndex
from whet.runs.store.lock import is_being_written
from whet.runs.store.store import DATABASE, Store
from whet.skills.certificates.certificate import CERTIFICATE
from whet.skills.measurement import RunPart
from whet.skills.run_folders import RunKind, kind_of, parts_of
from whet.view.snapshot import FileStamp, Snapshot, Stamp, read_facts

FRESH_SEC = 1.0
"""How long a list of runs is used before the folders are looked at again; and how long it is believed that a run is
being written, or is not."""
DEPTH = 2
"""How many folders deep runs are looked for below a root."""
MOST_INDEXES = 64
"""Indexes that are kept; the one that was used longest ago is dropped."""
HIDDEN_PARTS = (RunPart.EXAM, RunPart.TEST)
"""Parts of a run of sharpening that nobody may see before it has ended: who reads them can teach to the exam."""


class NoSuchRunError(LookupError):
    """No run has this name."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run folder, or one part of a run of sharpening: whatever has rollouts of its own."""

    name: str
    path: Path
    kind: RunKind
    parts: tuple[str, ...] = ()
    """The names of its parts, when its rollouts are in parts."""
    parent: str | None = None
    """The run that it is a part of."""
    hidden: bool = False
    """Nobody may read its rollouts yet."""

    @property
    def has_rollouts(self) -> bool:
        """Whether it has rollouts of its own."""
        return (self.path / DATABASE).is_file()

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of what holds its rollouts: itself, or its parts."""
        return self.parts or (self.name,)


class Library:
    """The runs below some folders. Safe to use from several threads.

    >>> library = Library([Path("runs")])  # doctest: +SKIP
    >>> [row.value for row in library.snapshot("quiz").rows]  # doctest: +SKIP
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._lock = threading.Lock()
        self._entries: dict[str, RunEntry] = {}
        self._found_at = float("-inf")
        self._indexes: dict[str, _KeptIndex] = {}
        self._running: dict[str, tuple[float, bool]] = {}

    def entries(self) -> list[RunEntry]:
        """Every run, without parts, by name."""
        return [entry for entry in self._find().values() if entry.parent is None]

    def entry(self, name: str) -> RunEntry:
        """The run, or the part of a run, with this name. NoSuchRunError when there is none."""
        found = self._find().get(name)
        if found is None or kind_of(found.path) is None:  # new, or deleted meanwhile
            found = self._find(anew=True).get(name)
        if found is None:
            raise NoSuchRunError(name)
        return found

    def find_folder(self, folder: Path) -> RunEntry | None:
        """The run in this folder; None when it is not among those that are shown."""
        path = folder.resolve()
        return next((entry for entry in self._find().values() if entry.path.resolve() == path), None)

    def is_running(self, entry: RunEntry) -> bool:
        """Whether a process writes it now."""
        return any(is_being_written(part) for part in parts_of(entry.path))

    def was_running(self, entry: RunEntry) -> bool:
        """The same, as of a moment ago: for those who ask several times a second, and need not know at once."""
        at, running = self._running.get(entry.name, (float("-inf"), False))
        if time.monotonic() - at > FRESH_SEC:
            at, running = self._running[entry.name] = time.monotonic(), self.is_running(entry)
        return running

    @contextmanager
    def open(self, name: str) -> Iterator[Store]:
        """The store of a run, for a moment. UserError when it cannot be read, or may not be read yet."""
        with Store.open_read(self._visible(name).path) as store:
            yield store

    def snapshot(self, name: str) -> Snapshot:
        """The rollouts of a run as they are now. Only what was written since the last time is read. UserError when it
        cannot be read, or may not be read yet."""
        return self._kept(name).snapshot(self._visible(name))

    def count(self, name: str) -> Snapshot:
        """The same, also of parts that are hidden: how many rollouts these have, and what they cost, is no secret."""
        return self._kept(name).snapshot(self.entry(name))

    def stamp(self, name: str) -> Stamp:
        """Something that changes when the run is written to. Cheap; opens nothing."""
        return read_stamp(self.entry(name).path)

    def _visible(self, name: str) -> RunEntry:
        entry = self.entry(name)
        if entry.hidden:
            raise UserError(f"the {entry.path.name} of '{entry.parent}' stays hidden until that run has ended")
        return entry

    def _kept(self, name: str) -> "_KeptIndex":
        with self._lock:
            kept = self._indexes.pop(name, None) or _KeptIndex()
            self._indexes[name] = kept
            while len(self._indexes) > MOST_INDEXES:
                del self._indexes[next(iter(self._indexes))]
        return kept

    def _find(self, *, anew: bool = False) -> dict[str, RunEntry]:
        with self._lock:
            if anew or time.monotonic() - self._found_at > FRESH_SEC:
                self._entries = dict(_find_entries(self.roots))
                self._found_at = time.monotonic()
            return self._entries


class _KeptIndex:
    """The index of one run, and the file that it was read from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index = RunIndex()
        self._file: int | None = None
        self._snapshot: Snapshot | None = None

    def snapshot(self, entry: RunEntry) -> Snapshot:
        """The rollouts as they are now."""
        with self._lock:
            stamp, running = read_stamp(entry.path), is_being_written(entry.path)
            if self._snapshot is None or (self._snapshot.stamp, self._snapshot.running) != (stamp, running):
                self._snapshot = self._read(entry, stamp, running=running)
            return self._snapshot

    def _read(self, entry: RunEntry, stamp: Stamp, *, running: bool) -> Snapshot:
        if self._file != (file := stamp[0][2]):  # deleted, and made again
            self._index, self._file = RunIndex(), file
        with Store.open_read(entry.path) as store:
            self._index.update(store)
            return Snapshot(stamp, running, self._index.rows, read_facts(store))


def read_stamp(folder: Path) -> Stamp:
    """The times, sizes and numbers of the files that a store consists of."""
    return tuple(read_file_stamp(folder / f"{DATABASE}{suffix}") for suffix in ("", "-wal"))


def read_file_stamp(path: Path) -> FileStamp:
    """The time, size and number of a file; zeros when there is none."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _find_entries(roots: Sequence[Path]) -> Iterator[tuple[str, RunEntry]]:
    found = [(root, path) for root in roots for path in _run_folders(root, DEPTH)]
    names = [_relative_name(root, path) for root, path in found]
    times = Counter(names)
    for (root, path), name in zip(found, names, strict=True):
        yield from _entry_with_parts(name if times[name] == 1 else f"{root.absolute().name}/{name}", path)


def _relative_name(root: Path, path: Path) -> str:
    return path.absolute().name if root == path else path.relative_to(root).as_posix()


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    """The run folders at or below a folder. Symbolic links are not followed."""
    if kind_of(folder) is not None:
        yield folder
        return
    if not depth:
        return
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return
    for path in inside:
        yield from _run_folders(path, depth - 1)


def _entry_with_parts(name: str, path: Path) -> Iterator[tuple[str, RunEntry]]:
    kind = kind_of(path)
    assert kind is not None
    parts = [part for part in parts_of(path) if part != path]
    entry = RunEntry(name, path, kind, tuple(f"{name}/{part.name}" for part in parts))
    yield name, entry
    # A run with a certificate may be resumed with a larger budget, and its exam go on.
    closed = (path / CERTIFICATE).is_file() and not any(is_being_written(part) for part in parts)
    for part in parts:
        hidden = not closed and part.name in HIDDEN_PARTS
        own = f"{name}/{part.name}"
        yield own, replace(entry, name=own, path=part, parts=(), parent=name, hidden=hidden)
