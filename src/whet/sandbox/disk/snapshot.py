"""Takes a snapshot of a folder that an untrusted program left. Limits bound the time and memory it takes.

Folders are read level by level. If there are too many names, the deepest are left out, and the snapshot is marked as
incomplete. Every file is hashed, because the program can forge its time and size.
"""

import contextlib
import errno
import hashlib
import heapq
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from whet.ids import digest
from whet.sandbox.disk.files import open_inside
from whet.workspace import Entry, Snapshot

NAMES = 300_000
"""More than a box holds by default, so that only snapshots of boxes with a higher limit can be incomplete."""
DEPTH = 200
"""Each folder is opened from the root again, so a chain of folders takes quadratic time."""
TEXT_SIZE = 256 << 10
ALL_TEXT_SIZE = 32 << 20
READ_SIZE = 16 << 20
"""A larger file is hashed block by block, without its holes."""
ALL_READ_SIZE = 32 << 30
BLOCK = 1 << 18
_ZEROS = bytes(BLOCK)
REPLACED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL})
"""Errors from a name that was removed or replaced a moment ago."""


@dataclass(slots=True)
class _Looked:
    """The entries so far, and the remaining limits."""

    names: int
    read: int
    text: int
    entries: dict[str, Entry] = field(default_factory=dict)
    last: str = ""
    unread: str = ""
    """The first file that was not read because the read limit was reached."""
    linked: dict[tuple[int, int], Entry] = field(default_factory=dict)
    """Entries of files with several names, which are read once."""


def snapshot_of(root: Path) -> Snapshot:
    """Take a snapshot of a folder. Links are not followed, and `.git` folders are not entered."""
    looked = _Looked(NAMES, ALL_READ_SIZE, ALL_TEXT_SIZE)
    waiting = deque([""])
    while waiting:
        folder = waiting.popleft()
        if len(folder.split("/")) >= DEPTH:
            return Snapshot(looked.entries, looked.last, f"folders are nested more than {DEPTH} deep")
        with _unless_gone(), _folder(root, folder) as fd:
            # Not all at once: the names in one folder may not fit into memory.
            for name in heapq.nsmallest(looked.names + 1, _names(fd)):
                if looked.names == 0:
                    return Snapshot(looked.entries, looked.last, f"there are more than {NAMES} names")
                looked.names -= 1
                looked.last = f"{folder}/{name}" if folder else name
                if _look(name, fd, looked):
                    waiting.append(looked.last)
    unseen = f"{looked.unread} and what follows was too much to read" if looked.unread else None
    return Snapshot(looked.entries, unseen=unseen)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Skip an entry that was removed or replaced since its name was read."""
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
    """Record the entry of this name. Returns True for a folder, which is read later."""
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
    itself = info.st_dev, info.st_ino
    if itself in looked.linked:
        return looked.linked[itself]
    if min(info.st_size, info.st_blocks * 512) > looked.read:
        looked.unread = looked.unread or looked.last
        return Entry(info.st_size, info.st_mtime_ns, None)
    with _open_file(name, parent) as fd:
        entry = _large(fd, info, looked) if info.st_size > READ_SIZE else _small(fd, info, looked)
    if info.st_nlink > 1:
        looked.linked[itself] = entry
    return entry


def _small(fd: int, info: os.stat_result, looked: _Looked) -> Entry:
    data = b"".join(_parts(fd))
    looked.read -= len(data)
    if len(data) > min(TEXT_SIZE, looked.text):
        return Entry(len(data), info.st_mtime_ns, digest(data))
    looked.text -= len(data)
    text = _text(data)
    raw = data.decode(errors="replace") if text is None else None
    return Entry(len(data), info.st_mtime_ns, digest(data), text, raw)


def _large(fd: int, info: os.stat_result, looked: _Looked) -> Entry:
    hashed = hashlib.blake2b(info.st_size.to_bytes(8, "big"), digest_size=16)
    for place, block in _blocks(fd):
        looked.read -= len(block)
        # Written zeros and holes are the same content.
        if block != _ZEROS[: len(block)]:
            hashed.update(place.to_bytes(8, "big"))
            hashed.update(block)
    return Entry(info.st_size, info.st_mtime_ns, f"large {hashed.hexdigest()}")


def _blocks(fd: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a file that are on disk, with their offsets."""
    place = 0
    while (place := _next_data(fd, place)) >= 0:
        place -= place % BLOCK
        block = os.pread(fd, BLOCK, place)
        if not block:
            return
        yield place, block
        place += BLOCK


def _next_data(fd: int, place: int) -> int:
    """Offset of the next data from here on; -1 if there is none."""
    try:
        return os.lseek(fd, place, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return -1
        return place  # a file system without holes


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@contextlib.contextmanager
def _open_file(name: str, parent: int) -> Iterator[int]:
    """Open a file, even without permission. A pipe in its place does not block."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(name, flags, dir_fd=parent)
            stack.callback(os.close, fd)
        except PermissionError:
            fd = stack.enter_context(_force_open(name, flags, parent))
        yield fd


def _parts(fd: int) -> Iterator[bytes]:
    room = READ_SIZE
    with contextlib.suppress(BlockingIOError):
        while room and (part := os.read(fd, min(room, 1 << 20))):
            room -= len(part)
            yield part


@contextlib.contextmanager
def _folder(root: Path, relative: str) -> Iterator[int]:
    """Open a folder below root, name by name, even without permission."""
    with contextlib.ExitStack() as stack:
        try:
            fd = stack.enter_context(open_inside(root, relative))
            os.stat(".", dir_fd=fd)  # whether names in it can be looked up, too
        except PermissionError:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            fd = stack.enter_context(_force_open(str(root), flags, None))
            for name in Path(relative).parts:
                fd = stack.enter_context(_force_open(name, flags, fd))
        yield fd


@contextlib.contextmanager
def _force_open(name: str, flags: int, parent: int | None) -> Iterator[int]:
    """Open an entry whose permissions may exclude even its owner, and restore them afterwards."""
    with contextlib.ExitStack() as stack:
        # A path descriptor needs no read permission, and its target cannot be replaced by a link.
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
