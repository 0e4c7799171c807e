"""One process at a time harvests, mines or runs a night in a store."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from whet.errors import UserError
from whet.sleep.store import SleepStore

FILE = "lock"


class HeldError(UserError):
    """Another process is at work in the store."""


@contextmanager
def hold_lock(store: SleepStore, now: datetime) -> Iterator[None]:
    """Hold the lock of a store. HeldError says which process holds it, and since when. The lock ends with the process.

    >>> with hold_lock(store, datetime.now(UTC)):  # doctest: +SKIP
    ...     harvest(options, store, ...)
    """
    path = store.folder / FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldError(f"{store.folder}: whet sleep is at work already ({_read_holder(descriptor)})") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"process": os.getpid(), "since": f"{now:%Y-%m-%d %H:%M %Z}"}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _read_holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {holder['process']}, since {holder['since']}"
    except (ValueError, TypeError, KeyError):  # it has only just begun
        return "another process"
