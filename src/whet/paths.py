"""The folders that whet keeps between runs, for what was fetched once; and the lock that lets only one whet make it."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """The folder that holds everything of a kind, such as `agents`; WHET_AGENTS names another one."""
    if chosen := os.environ.get(f"WHET_{kind.upper()}"):
        return Path(chosen).absolute()
    if os.getuid() == 0:
        # Not below the home: boxes of root run as another user, who could not pass through it.
        return Path("/var/cache/whet", kind)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whet" / kind


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until nobody else makes something in this folder, and keep others waiting. It blocks."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
