"""The folder of files that are derived from runs: bounded in size, and deletable at any time."""

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from whet.paths import user_cache
from whet.runs.store.lock import LOCK
from whet.runs.store.store import DATABASE
from whet.version import __version__
from whet.view.derive.trace_schema import FORMAT

FOLDER = "view"
MOST_BYTES = 1 << 30
"""Of all files together. Those that were used longest ago are deleted first."""
_COMPANIONS = ("-wal", "-shm")
ABANDONED_SEC = 3600.0
"""A file that was begun this long ago and has no name yet is nobody's."""


class Cache:
    """The user's cache folder for traces and full text, and a temporary folder for when it cannot be written."""

    def __init__(self, folder: Path | None = None, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder or user_cache(os.environ) / FOLDER
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._temporary: Path | None = None

    def places(self, name: str) -> tuple[Path, ...]:
        """Where a file of this name is or can be written, the best place first."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / name, self._open_temporary() / name

    def find(self, name: str) -> Path | None:
        """The file of this name, which counts as used now; None when there is none."""
        folders = [self._folder, *([self._temporary] if self._temporary else [])]
        for path in (folder / name for folder in folders):
            with suppress(OSError):
                os.utime(path)
                return path
        return None

    def trim(self) -> None:
        """Delete what was used longest ago until the rest is small enough."""
        files = sorted(_files(self._folder), key=lambda file: file[1])
        total = sum(size for _, _, size in files)
        now = time.time()
        for path, used, size in files:
            abandoned = path.suffix == ".part" and now - used > ABANDONED_SEC
            if total > self._most_bytes or abandoned:
                _delete(path)
                total -= size

    def delete(self, pattern: str, *, but: str) -> None:
        """Delete files by the pattern of their names."""
        for path in self._folder.glob(pattern):
            if path.name != but:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Delete the temporary folder."""
        with self._lock:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def _open_temporary(self) -> Path:
        with self._lock:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="whet-view-"))
            return self._temporary


def run_key(folder: Path) -> str:
    """Names a run folder: another one as soon as it is deleted and made again, moved, or read by another whet."""
    stamps = [_identity(folder / name) for name in (DATABASE, LOCK)]
    about = (str(folder.absolute()), *stamps, __version__, FORMAT)
    return hashlib.blake2b(repr(about).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _identity(path: Path) -> tuple[int, ...]:
    """Numbers that stay while a run is written. The lock file is made once, so its time is that of the run."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, *([found.st_mtime_ns] if path.name == LOCK else []))


def _delete(path: Path) -> None:
    """Delete a file, and what SQLite keeps beside it."""
    for file in (path, *(path.with_name(path.name + companion) for companion in _COMPANIONS)):
        file.unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Every file with the time of its last use and its size."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in (one for one in entries if not one.name.endswith(_COMPANIONS)):
        with suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            yield Path(entry.path), found.st_mtime, found.st_size
