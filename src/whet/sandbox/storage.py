"""The limit on what a box may write in all.

No file system quota is to be had without privileges, so the box is measured. A walk over its files is dear; the
free space of the disk costs one system call. The walk is made when the disk has lost a part of the limit since the
last walk, and from time to time in any case. One file alone can never pass the limit: the kernel refuses that.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

LOOK_SEC = 0.2
WALK_SEC = 10.0


async def guard_storage(folder: Path, limit: int, on_excess: Callable[[], Awaitable[None]]) -> None:
    """Watch a folder, and call `on_excess` whenever it holds more than the limit."""
    free, walked = _free(folder), time.monotonic()
    while True:
        await asyncio.sleep(LOOK_SEC)
        if free - _free(folder) < limit / 4 and time.monotonic() - walked < WALK_SEC:
            continue
        free, walked = _free(folder), time.monotonic()
        if await asyncio.to_thread(disk_usage, folder) > limit:
            await on_excess()


def disk_usage(folder: Path) -> int:
    """Bytes on disk below a folder, links not followed."""
    # du, because a program can nest folders deeper than any path reaches, and hide there what it writes.
    done = subprocess.run(
        ["du", "-s", "--block-size=1", "--", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what vanishes while it looks is no matter
        check=False,
    )
    size, _, _ = done.stdout.partition(b"\t")
    return int(size or 0)


def _free(folder: Path) -> int:
    info = os.statvfs(folder)
    return info.f_bavail * info.f_frsize
