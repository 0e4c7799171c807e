"""Looks at a folder that an untrusted program has left, within bounds: nothing it can leave there holds us up.

Folders are looked at level by level. When there are too many names, what lies deepest is left out.
"""

import contextlib
import errno
import heapq
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from whet.ids import digest
from whet.sandbox.files import opened
from whet.workspace import Entry, Snapshot

NAMES = 20_000
DEPTH = 32
"""Each folder is opened anew from the root: a chain of them takes time by the square of its length."""
TEXT_SIZE = 256 << 10
ALL_TEXT_SIZE = 32 << 20
READ_SIZE = 16 << 20
"""A larger file is told from another by its size and time alone."""
ALL_READ_SIZE = 512 << 20
REPLACED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL})
"""How a name fails that stands for something else than a moment ago."""


@dataclass(slots=True)
class _Looked:
    """What was seen so far, and what may still be read."""

    names: int
    read: int
    text: int
    entries: dict[str, Entry] = field(default_factory=dict)
    last: str = ""


def snapshot_of(root: Path) -> Snapshot:
    """What a folder holds, links not followed and `.git` left out."""
    looked = _Looked(NAMES, ALL_READ_SIZE, ALL_TEXT_SIZE)
    waiting = deque([""])
    while waiting:
        folder = waiting.popleft()
        if len(folder.split("/")) >= DEPTH:
            return Snapshot(looked.entries, looked.last)
        with _unless_gone(), _folder(root, folder) as fd:
            # Not all at once: a program can leave more names in one folder than there is memory for.
            for name in heapq.nsmallest(looked.names + 1, _names(fd)):
                if looked.names == 0:
                    return Snapshot(looked.entries, looked.last)
                looked.names -= 1
                looked.last = f"{folder}/{name}" if folder else name
                if _look(name, fd, looked):
                    waiting.append(looked.last)
    return Snapshot(looked.entries)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Pass over what was removed, or replaced by something else, since its name was read."""
    try:
        yield
    except OSError as error:
        if error.errno not in REPLACED:
            raise


def _names(folder: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != ".git":
                yield entry.name


def _look(name: str, parent: int, looked: _Looked) -> bool:
    """Note what has this name; whether it is a folder, which is looked at later."""
    with _unless_gone():
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return True
        if stat.S_ISREG(info.st_mode):
            looked.entries[looked.last] = _file(name, info, parent, looked)
        else:
            target = os.readlink(name, dir_fd=parent) if stat.S_ISLNK(info.st_mode) else ""
            kind = stat.S_IFMT(info.st_mode).to_bytes(4, "big")
            looked.entries[looked.last] = Entry(info.st_size, info.st_mtime_ns, digest(kind, os.fsencode(target)))
    return False


def _file(name: str, info: os.stat_result, parent: int, looked: _Looked) -> Entry:
    if info.st_size > min(READ_SIZE, looked.read):
        return Entry(info.st_size, info.st_mtime_ns, None)
    data = _read(name, parent)
    looked.read -= len(data)
    text = _text(data) if len(data) <= min(TEXT_SIZE, looked.text) else None
    looked.text -= len(data) if text is not None else 0
    return Entry(len(data), info.st_mtime_ns, digest(data), text)


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _read(name: str, parent: int) -> bytes:
    """The content of a file, or as much of it as is read of any; nothing of a pipe that has taken its place."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(name, flags, dir_fd=parent)
            stack.callback(os.close, fd)
        except PermissionError:
            fd = stack.enter_context(_forced(name, flags, parent))
        return b"".join(_parts(fd))


def _parts(fd: int) -> Iterator[bytes]:
    room = READ_SIZE
    with contextlib.suppress(BlockingIOError):
        while room and (part := os.read(fd, min(room, 1 << 20))):
            room -= len(part)
            yield part


@contextlib.contextmanager
def _folder(root: Path, relative: str) -> Iterator[int]:
    """A folder below root, opened name by name, though it be closed to us."""
    with contextlib.ExitStack() as stack:
        try:
            fd = stack.enter_context(opened(root, relative))
            os.stat(".", dir_fd=fd)  # whether names in it may be looked up, too
        except PermissionError:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            fd = stack.enter_context(_forced(str(root), flags, None))
            for name in Path(relative).parts:
                fd = stack.enter_context(_forced(name, flags, fd))
        yield fd


@contextlib.contextmanager
def _forced(name: str, flags: int, parent: int | None) -> Iterator[int]:
    """Something that its owner may have closed even to itself, opened and afterwards left as it was."""
    with contextlib.ExitStack() as stack:
        # To hold it without reading it takes no permission, and what is held cannot be swapped for a link.
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        stack.callback(os.close, held)
        itself = f"/proc/self/fd/{held}"
        mode = stat.S_IMODE(os.fstat(held).st_mode)
        wanted = mode | (0o500 if flags & os.O_DIRECTORY else 0o400)
        if mode != wanted:
            os.chmod(itself, wanted)  # noqa: PTH101 - a descriptor has no path
            stack.callback(os.chmod, itself, mode)
        fd = os.open(itself, flags & ~os.O_NOFOLLOW)
        stack.callback(os.close, fd)
        yield fd
