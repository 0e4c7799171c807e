"""The folder on the host that holds one box, and the removal of those whose owner is gone."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from whet.box import SandboxError
from whet.errors import UserError
from whet.ids import new_name
from whet.sandbox.disk.files import copy_tree
from whet.sandbox.disk.storage import Disk, DiskUsage


@dataclass(frozen=True, slots=True)
class Users:
    """The user ids of the host that the parties in a box run as; None is our own."""

    agent: int | None = None
    judge: int | None = None
    work: int | None = None
    """The agent's work, when the judge runs it."""


ROOT_RUNS_BOXES_AS = Users(64_055, 64_056, 64_057)
"""The users that boxes of root run as. The kernel exempts root from the limit on processes; no box needs it."""

MARK = "WHET_BOX"
"""Environment variable that marks the processes of a box, to find those that outlived their whet."""

MAKING_SEC = 60
"""The making of a box's folder takes a moment; one that is still being made after this long was left behind."""


RESERVE_FILES = 24
RESERVE_SIZE = 256 << 10
"""Held back of a small disk while the agent runs, so that a box can be sealed when agents have filled the disk."""
BOXES = 16
"""A disk that has not room for so many full boxes is small."""


@dataclass(frozen=True, slots=True)
class BoxFolder:
    """Where the files of one box are on the host. It is locked as long as its owner lives."""

    name: str
    path: Path
    users: Users

    def make(self, name: str, owner: int | None) -> Path:
        """A new empty folder that belongs to this user, or to ourselves."""
        path = self.path / name
        path.mkdir()
        if owner is not None:
            os.chown(path, owner, owner)
        return path

    def hold_reserve(self, limit: DiskUsage) -> None:
        """Take some of the disk for later, if boxes of this limit may fill it."""
        left = Disk.of(self.path).left
        if not (limit * BOXES).passes(left):
            return
        reserve = self.path / "reserve"
        try:
            reserve.mkdir(mode=0o700)
            for number in range(RESERVE_FILES):
                (reserve / str(number)).touch()
            with (reserve / "0").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_SIZE)
        except OSError as error:
            raise SandboxError(f"{self.path.parent}: no room for another box: {error.strerror}") from error

    def release_reserve(self) -> None:
        shutil.rmtree(self.path / "reserve", ignore_errors=True)

    def hold_copy(self, source: Path, omit: Sequence[str]) -> Path:
        """A copy of a host folder that the box's user can read but whose original it never sees."""
        copy = self.path / f"copy-{new_name()}"
        copy.mkdir(mode=0o755)
        copy_tree(source, copy, None)
        for name in omit:
            (copy / name).unlink()
        # A private umask of the caller must not hide the copy from the box's user.
        for folder, _, files in os.walk(copy):
            _let_read(Path(folder))
            for file in files:
                _let_read(Path(folder, file))
        return copy


def boxes_root() -> Path:
    """The folder that holds all boxes of this user."""
    # Not below the home: boxes of root run as another user, who could not pass through it.
    root = Path(tempfile.gettempdir()) / f"whet-{os.getuid()}"
    try:
        root.mkdir(mode=0o711, exist_ok=True)
        info = root.lstat()
        if root.is_symlink() or info.st_uid != os.getuid():
            raise UserError(f"{root} belongs to somebody else; set TMPDIR to a folder of your own")
        root.chmod(0o711)
    except OSError as error:
        raise UserError(f"{root}: {error.strerror}; set TMPDIR to a folder where whet can write") from error
    return root


def box_users() -> Users:
    """The users that boxes run as when they are not our own."""
    return ROOT_RUNS_BOXES_AS if os.getuid() == 0 else Users()


@asynccontextmanager
async def box_folder(users: Users) -> AsyncIterator[BoxFolder]:
    name = new_name()
    path = boxes_root() / f"box-{name}"
    with _lock_new(path):
        try:
            yield BoxFolder(name, path, users)
        finally:
            if path.exists():  # the box was never made
                await asyncio.shield(asyncio.to_thread(remove_tree, path))


@contextlib.contextmanager
def _lock_new(path: Path) -> Iterator[None]:
    # The folder appears under its name only when it is locked: a sweep never sees one that is being made.
    making = path.with_name(f".{path.name}")
    making.mkdir(mode=0o711)
    making.chmod(0o711)
    fd = os.open(making, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        making.rename(path)
        yield
    finally:
        os.close(fd)


def remove_stale() -> list[Path]:
    """Remove the boxes whose whet is gone, with what is left of their processes. Returns what was removed."""
    removed = []
    for path in (*sorted(boxes_root().glob("box-*")), *sorted(boxes_root().glob(".box-*"))):
        with contextlib.suppress(FileNotFoundError), _lock_if_free(path) as free:
            if free and not _is_being_made(path):
                kill_marked(path.name.lstrip(".").removeprefix("box-"))
                remove_tree(path)
                removed.append(path)
    return removed


def _is_being_made(path: Path) -> bool:
    return path.name.startswith(".") and time.time() - path.stat().st_mtime < MAKING_SEC


@contextlib.contextmanager
def _lock_if_free(path: Path) -> Iterator[bool]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def remove_tree(path: Path) -> None:
    """Remove a folder whatever a program did to it: closed folders, endless nesting."""
    # Not shutil, which holds a descriptor for each level: rm descends to any depth with a handful of them.
    remove: list[str | Path] = ["rm", "-rf", "--", path]
    if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        subprocess.run(["chmod", "-R", "u+rwX", "--", path], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(remove, stderr=subprocess.DEVNULL, check=True)


def kill_marked(mark: str) -> None:
    """Kill every process whose environment carries a mark that begins so, until none is left."""
    needle = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + 10  # a process stuck in the kernel dies later, by itself
    while (pids := _marked(needle)) and time.monotonic() < deadline:
        for step in (signal.SIGSTOP, signal.SIGKILL):
            # First stop them all: what is stopped cannot fork away from the kill.
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, step)


def _marked(needle: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if any(line.startswith(needle) for line in (entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found


def _let_read(path: Path) -> None:
    if not path.is_symlink():
        mode = path.stat().st_mode
        path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
