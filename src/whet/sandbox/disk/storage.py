"""The limits on what a box may hold in all: bytes on disk, and files.

No file system quota is to be had without privileges, so the box is measured. A walk over its files is dear; what the
disk has left costs one system call. The walk is made when the disk has lost a part of the limit since the last walk,
and from time to time in any case. One file alone can never pass the limit: the kernel refuses that.

Bytes are those of blocks, not of apparent sizes: copies keep the holes of files, so a hole costs neither disk nor time.
"""

import asyncio
import contextlib
import math
import os
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LOOK_SEC = 0.2
WALK_SEC = 10.0
MOST_DESCRIPTORS = 500_000
"""A box whose processes have more open than this hides something among them."""
NEARLY_FULL = 16
"""A disk of which less than this part is left is nearly full."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of data, and files: each file, folder and link takes an inode of the disk."""

    size: float = 0
    files: float = 0

    def __add__(self, other: Self) -> "DiskUsage":
        return DiskUsage(self.size + other.size, self.files + other.files)

    def __sub__(self, other: Self) -> "DiskUsage":
        return DiskUsage(self.size - other.size, self.files - other.files)

    def __mul__(self, factor: float) -> "DiskUsage":
        return DiskUsage(self.size * factor, self.files * factor)

    def passes(self, limit: Self) -> bool:
        """Whether either is above its limit."""
        return self.size > limit.size or self.files > limit.files


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: what it can hold, and what is left."""

    total: DiskUsage
    left: DiskUsage

    @classmethod
    def of(cls, folder: Path) -> Self:
        info = os.statvfs(folder)
        # A file system that makes inodes as it needs them says 0.
        inodes, free = (info.f_files, info.f_favail) if info.f_files else (math.inf, math.inf)
        return cls(DiskUsage(info.f_blocks * info.f_frsize, inodes), DiskUsage(info.f_bavail * info.f_frsize, free))

    def is_filled_by(self, usage: DiskUsage) -> bool:
        """Whether the disk is nearly full and somebody holds more than what is left for all others."""
        return any(
            left < total / NEARLY_FULL and held > left
            for total, left, held in (
                (self.total.size, self.left.size, usage.size),
                (self.total.files, self.left.files, usage.files),
            )
        )


async def guard_storage(
    folder: Path,
    limit: DiskUsage,
    given: DiskUsage,
    on_excess: Callable[[], Awaitable[None]],
    pids: Callable[[], Iterable[int]] = tuple,
) -> None:
    """Watch a folder, and call `on_excess` whenever it holds more than the limit, or leaves no room to others.

    Files that have been removed and are still open in one of the processes count as well. What was given to the box
    counts towards the limit, but no box is ended because of it alone.
    """
    before, walked = Disk.of(folder), time.monotonic()
    while True:
        await asyncio.sleep(LOOK_SEC)
        disk = Disk.of(folder)
        lost = before.left - disk.left
        filled = disk.is_filled_by(lost)
        if not filled and not lost.passes(limit * 0.25) and time.monotonic() - walked < WALK_SEC:
            continue
        before, walked = disk, time.monotonic()
        usage = await asyncio.to_thread(lambda: usage_of(folder) + measure_removed_files(folder, pids()))
        if usage.passes(limit) or disk.is_filled_by(usage - given):
            await on_excess()


def usage_of(folder: Path) -> DiskUsage:
    return DiskUsage(disk_usage(folder), _du(folder, "--inodes"))


def measure_removed_files(folder: Path, pids: Iterable[int]) -> DiskUsage:
    """What processes hold of a folder's disk in files that have no name any more."""
    device, sizes, looked = folder.stat().st_dev, dict[int, int](), 0
    for pid in pids:
        for kind in ("fd", "map_files"):  # those that are only mapped can be looked at by root alone
            with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/{kind}") as entries:
                for entry in entries:
                    looked += 1
                    if looked > MOST_DESCRIPTORS:
                        return DiskUsage(math.inf)
                    with contextlib.suppress(OSError):
                        info = entry.stat()
                        if stat.S_ISREG(info.st_mode) and info.st_nlink == 0 and info.st_dev == device:
                            sizes[info.st_ino] = info.st_blocks * 512
    return DiskUsage(sum(sizes.values()), len(sizes))


def disk_usage(folder: Path) -> int:
    """Bytes on disk below a folder, links not followed."""
    return _du(folder, "--block-size=1")


def _du(folder: Path, unit: str) -> int:
    # du, because a program can nest folders deeper than any path reaches, and hide there what it writes.
    done = subprocess.run(
        ["du", "-s", unit, "--", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what vanishes while it looks is no matter
        check=False,
    )
    size, _, _ = done.stdout.partition(b"\t")
    return int(size or 0)
