"""The storage limits of a box: bytes on disk, and number of files.

File system quotas need privileges, so whet measures the box. A walk over its files is expensive; reading the free space
of the disk is one system call. whet walks when the free space has dropped by a part of the limit since the last walk,
and from time to time in any case. A single file cannot pass the limit: the kernel refuses that.

Bytes are those of blocks, not apparent sizes: copies keep the holes of files, so a hole costs neither disk nor time.
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
"""A box whose processes have more open descriptors than this counts as hiding files in them."""
NEARLY_FULL = 16
"""A disk with less than 1 / NEARLY_FULL left is nearly full."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of data, and files: each file, folder and link takes one inode."""

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
    """The capacity and the free space of a file system."""

    total: DiskUsage
    left: DiskUsage

    @classmethod
    def of(cls, folder: Path) -> Self:
        info = os.statvfs(folder)
        # A file system that creates inodes on demand reports 0.
        inodes, free = (info.f_files, info.f_favail) if info.f_files else (math.inf, math.inf)
        return cls(DiskUsage(info.f_blocks * info.f_frsize, inodes), DiskUsage(info.f_bavail * info.f_frsize, free))

    def is_filled_by(self, usage: DiskUsage) -> bool:
        """Whether the disk is nearly full and this usage exceeds the space left for all others."""
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
    """Watch a folder, and call `on_excess` whenever it exceeds the limit or leaves no room for others.

    Removed files that a process still has open count as well. Files that whet gave to the box count towards the
    limit, but do not end the box on their own.
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
    """Usage of removed files on a folder's disk that processes still have open."""
    device, sizes, looked = folder.stat().st_dev, dict[int, int](), 0
    for pid in pids:
        for kind in ("fd", "map_files"):  # only root can inspect files that are only mapped
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
    # du, because a program can hide files in folders that are nested deeper than any path reaches.
    done = subprocess.run(
        ["du", "-s", unit, "--", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # files that vanish during the walk do not matter
        check=False,
    )
    size, _, _ = done.stdout.partition(b"\t")
    return int(size or 0)
