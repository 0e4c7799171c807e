"""Reads and writes files that an untrusted program can rearrange at any moment.

A path is resolved first and must stay inside its root; then it is opened one name at a time without following
links, so a link that is swapped in between the two steps is refused and never followed.
"""

import contextlib
import errno
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from whet.box import EscapeError, SandboxError
from whet.sandbox.disk.storage import DiskUsage

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

UNLIMITED = DiskUsage(math.inf, math.inf)

MAX_DEPTH = 100
"""Maximum nesting of copied folders: a walk holds one descriptor per level, and descriptors are limited."""


def read_inside(root: Path, relative: str, limit: int) -> bytes:
    """The content of a regular file below root."""
    # O_NONBLOCK: a named pipe in the file's place must not block.
    with _translate_errors(relative, keep=FileNotFoundError), _locate(root, relative) as (parent, name):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise SandboxError(f"{relative} is not a regular file")
            data = file.read(limit + 1)
            if len(data) > limit:
                raise SandboxError(f"{relative} is larger than {limit} bytes")
            return data


def write_inside(root: Path, relative: str, data: bytes, mode: int, owner: int | None) -> None:
    """Write a file below root and create missing folders. An existing entry is replaced, never written through."""
    with (
        _translate_errors(relative),
        _locate(root, relative, create=True, owner=owner) as (parent, name),
        _create(name, mode, parent, owner) as file,
    ):
        file.write(data)


def copy_tree(
    source: Path, target: Path, owner: int | None, *, inside: str = ".", below: str = ".", limit: DiskUsage = UNLIMITED
) -> DiskUsage:
    """Copy a folder inside source into one below target: files with their permissions, links as links, nothing else.

    No link is followed on either side, and holes in files stay holes. Returns the usage of the copy. Fails before
    it copies more than the limit.
    """
    copied = DiskUsage()
    with _translate_errors(inside), open_inside(source, inside) as top:
        for folder, folders, files, here in os.fwalk(".", onerror=_fail, dir_fd=top):
            if folder.count(os.sep) > MAX_DEPTH:
                raise SandboxError(f"{inside}: folders nested more than {MAX_DEPTH} deep")
            with open_inside(target, os.path.join(below, folder), create=True, owner=owner) as there:  # noqa: PTH118
                for name in [*folders, *files]:
                    copied += DiskUsage(files=1)
                    if copied.files > limit.files:
                        raise SandboxError(f"{inside}: more than {limit.files:.0f} files")
                    info = os.stat(name, dir_fd=here, follow_symlinks=False)
                    if stat.S_ISLNK(info.st_mode):
                        _unlink(name, there)
                        os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
                        if name in folders:
                            folders.remove(name)  # or the walk would follow it
                    elif stat.S_ISREG(info.st_mode):
                        room = limit.size - copied.size
                        size = _copy_file(name, info, here, there, owner, room)
                        if size is None:
                            raise SandboxError(f"{inside}: more than {limit.size:.0f} bytes of files")
                        copied += DiskUsage(size)
    return copied


def _fail(error: OSError) -> None:
    raise error


@contextlib.contextmanager
def _locate(root: Path, relative: str, *, create: bool = False, owner: int | None = None) -> Iterator[tuple[int, str]]:
    """The opened folder that holds a file, and the name of the file in it."""
    folder, name = os.path.split(_resolve(root, relative))
    with open_inside(root, folder, create=create, owner=owner) as parent:
        yield parent, name


def _resolve(root: Path, relative: str) -> str:
    base = os.path.realpath(root)
    real = os.path.realpath(os.path.join(base, relative))  # noqa: PTH118 - strings are what os.open takes
    if not real.startswith(base + os.sep):
        raise EscapeError(f"{relative} leaves the box")
    return os.path.relpath(real, base)


@contextlib.contextmanager
def open_inside(root: Path, relative: str, *, create: bool = False, owner: int | None = None) -> Iterator[int]:
    """Open a folder below root, name by name."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in Path(relative).parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=fd)
                    if owner is not None:
                        os.chown(name, owner, owner, dir_fd=fd, follow_symlinks=False)
            deeper = os.open(name, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = deeper
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _create(name: str, mode: int, parent: int, owner: int | None) -> Iterator[IO[bytes]]:
    _unlink(name, parent)
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=parent)
    with os.fdopen(fd, "wb") as file:
        if owner is not None:
            os.fchown(fd, owner, owner)
        os.fchmod(fd, mode)
        yield file


def _copy_file(name: str, info: os.stat_result, here: int, there: int, owner: int | None, room: float) -> int | None:
    """Copy a file. Returns its bytes of data, without holes; None if they exceed the limit."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    mode = stat.S_IMODE(info.st_mode) & 0o777
    with os.fdopen(fd, "rb", buffering=0) as source, _create(name, mode, there, owner) as copy:
        size = _copy_data(source.fileno(), copy.fileno(), room)
        # Tools detect changes by the time of a file; a new time could hide a change within the same second.
        os.utime(copy.fileno(), ns=(info.st_atime_ns, info.st_mtime_ns))
        return size


def _copy_data(source: int, target: int, room: float) -> int | None:
    """Copy a file up to its current size, so that a growing file cannot delay the copy."""
    copied, at, end = 0, 0, os.fstat(source).st_size
    while at < end and (at := _next_data(source, at, end)) < end:
        hole = min(os.lseek(source, at, os.SEEK_HOLE), end)
        copied += hole - at
        if copied > room:
            return None
        os.lseek(target, at, os.SEEK_SET)
        while at < hole and (sent := os.sendfile(target, source, at, hole - at)):
            at += sent
        if at < hole:
            break  # it was truncated meanwhile
    os.ftruncate(target, end)
    return copied


def _next_data(source: int, start: int, end: int) -> int:
    """Where the next data begins; the end if only a hole follows."""
    try:
        return os.lseek(source, start, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        raise


def _unlink(name: str, parent: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


@contextlib.contextmanager
def _translate_errors(what: str, *, keep: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Translate failures to those of a box; the kinds in `keep` pass unchanged."""
    try:
        yield
    except keep:
        raise
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise EscapeError(f"{what}: a link or file stands where a folder was expected") from error
        raise SandboxError(f"{what}: {error.strerror}") from error
    except ValueError as error:
        raise SandboxError(f"{what!a} cannot be the name of a file: {error}") from error
    except RecursionError as error:
        raise SandboxError(f"{what}: too many links to follow") from error
