"""The lock of a run folder: one process at a time may write a run."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.errors import UserError

LOCK = "run.lock"
LOCK_TABLE = Path("/proc/locks")
"""Where Linux lists all locks of files."""


@contextmanager
def lock_run(folder: Path) -> Iterator[int]:
    """The right to write a run, given back when the set-up fails or the file descriptor is closed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"{folder}: expected a folder that can be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    except BlockingIOError as error:
        os.close(lock)
        raise UserError(f"run {folder} is being written by another process") from error
    except BaseException:
        os.close(lock)
        raise


def is_being_written(folder: Path) -> bool:
    """Whether another process runs the rollouts of this folder now. Where the system lists its locks, none is taken
    for the answer: a run that starts at this moment would find it taken."""
    path = folder / LOCK
    try:
        file = path.stat()
        lines = [line.split() for line in LOCK_TABLE.read_text().splitlines()]
    except OSError:  # no lock file, or no list of locks
        return _is_lock_taken(path)
    # A line is such as this one: 4: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
    places = {fields[5] for fields in lines if fields[1] == "FLOCK" and fields[5].endswith(f":{file.st_ino}")}
    if f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}" in places:
        return True
    # Some file systems are listed by another device number than their files have.
    return bool(places) and _is_lock_taken(path)


def _is_lock_taken(path: Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock, or a file system without locks
        return False
    return False
