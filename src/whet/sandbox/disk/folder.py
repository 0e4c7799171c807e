"""The folder on the host that holds one box, and the removal of folders whose owner is dead."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from whet.box import SandboxError
from whet.errors import UserError
from whet.ids import new_name
from whet.sandbox.disk.files import copy_tree
from whet.sandbox.disk.storage import Disk, DiskUsage

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Users:
    """The host user ids that the parties in a box run as; None is the user of whet."""

    agent: int | None = None
    judge: int | None = None
    work: int | None = None
    """For the agent's work when the judge runs it."""


ROOT_RUNS_BOXES_AS = Users(64_055, 64_056, 64_057)
"""The users that boxes of root run as. Boxes do not run as root, which the limit on processes does not bind."""

MARK = "WHET_BOX"
"""Environment variable that marks the processes of a box, to find those that outlived whet."""

MAKING_SEC = 60
"""A box folder that is still unfinished after this time was abandoned."""


RESERVE_FILES = 24
RESERVE_SIZE = 256 << 10
"""Bytes reserved on a small disk while the agent runs, so that a box can be sealed after agents filled the disk."""
BOXES = 16
"""A disk without room for this number of full boxes is small."""


@dataclass(frozen=True, slots=True)
class BoxFolder:
    """The folder of one box on the host. It is locked while its owner lives."""

    name: str
    path: Path
    users: Users

    def make(self, name: str, owner: int | None) -> Path:
        """Create an empty folder that belongs to this user, by default the user of whet."""
        path = self.path / name
        path.mkdir()
        if owner is not None:
            os.chown(path, owner, owner)
        return path

    def hold_reserve(self, limit: DiskUsage) -> None:
        """Reserve disk space if boxes with this limit can fill the disk."""
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
        """Copy a host folder for the box's user to read, without access to the original."""
        copy = self.path / f"copy-{new_name()}"
        copy.mkdir(mode=0o755)
        copy_tree(source, copy, None)
        for name in omit:
            (copy / name).unlink()
        # A strict umask of the caller must not hide the copy from the box's user.
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
    """The users that boxes run as, if not the user of whet."""
    return ROOT_RUNS_BOXES_AS if os.getuid() == 0 else Users()


@asynccontextmanager
async def box_folder(users: Users) -> AsyncIterator[BoxFolder]:
    name = new_name()
    path = boxes_root() / f"box-{name}"
    with _lock_new(path):
        try:
            yield BoxFolder(name, path, users)
        finally:
            if path.exists():  # the box was never created
                await asyncio.shield(asyncio.to_thread(remove_tree, path))


async def make_in_thread(make: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Make a box in a thread: it is some forty files, and other rollouts wait for the event loop. Cancelled, this waits
    for the thread, so that nothing is made after the folder was removed."""
    making = asyncio.ensure_future(asyncio.to_thread(make, *args, **named))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.wait([making])
        raise


@contextlib.contextmanager
def _lock_new(path: Path) -> Iterator[None]:
    # The folder gets its name only after it is locked, so a sweep never sees an unfinished one.
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
    """Remove the boxes whose whet is dead, and kill their remaining processes. Returns the removed folders."""
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
    """Remove a folder despite missing permissions and deep nesting."""
    # Not shutil, which holds a descriptor per level: rm descends to any depth with a handful of them.
    remove: list[str | Path] = ["rm", "-rf", "--", path]
    if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        subprocess.run(["chmod", "-R", "u+rwX", "--", path], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(remove, stderr=subprocess.DEVNULL, check=True)


def kill_marked(mark: str) -> None:
    """Kill every process whose mark begins with this text, until none is left."""
    needle = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + 10  # a process stuck in the kernel dies later
    while (pids := _find_marked(needle)) and time.monotonic() < deadline:
        for step in (signal.SIGSTOP, signal.SIGKILL):
            # Stop them all first: a stopped process cannot escape the kill by forking.
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, step)


def _find_marked(needle: bytes) -> list[int]:
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
