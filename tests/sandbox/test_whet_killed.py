"""whet itself killed without a word: nothing of its boxes may stay."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.box_helpers import TREE, carriers, host_folder, new_marker
from support.waiting import until
from whet.box import Box, Sandbox
from whet.sandbox import remove_stale
from whet.sandbox.disk.folder import boxes_root
from whet.tasks.task import TaskLimits

WHET = """
import asyncio, sys
from whet.sandbox import sandbox_named
from whet.tasks.task import TaskLimits

async def main(kind, tree, marker):
    async with sandbox_named(kind).open(TaskLimits()) as box:
        process = await box.start([box.python, "-c", tree, marker, "stay"])
        while b"ready" not in process.stdout().data:
            await asyncio.sleep(0.02)
        await box.write_file("file", b"x")
        print(box._folder.path, flush=True)
        await process.wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def killed_whet(kind: str, marker: str) -> Path:
    """The folder of a box whose whet was killed while a command ran in it."""
    whet = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", WHET, kind, TREE, marker], stdout=subprocess.PIPE
    )
    assert whet.stdout is not None
    async with asyncio.timeout(30):
        folder = Path((await whet.stdout.readline()).decode().strip())
    await until(lambda: len(carriers(marker)) > 4)
    whet.send_signal(signal.SIGKILL)
    await whet.wait()
    return folder


async def test_a_killed_whet_leaves_no_process_in_bubblewrap() -> None:
    marker = new_marker()
    await killed_whet("bubblewrap", marker)
    await until(lambda: not carriers(marker))


async def test_the_sweep_removes_what_a_killed_whet_left_and_nothing_that_lives(sandbox: Sandbox) -> None:
    marker, living = new_marker(), new_marker()
    async with sandbox.open(TaskLimits()) as box:
        process = await box.start([box.python, "-c", TREE, living, "stay"])
        await until(lambda: len(carriers(living)) >= 4)
        folder = await killed_whet(sandbox.name, marker)
        assert (folder / "work" / "file").exists()
        removed = await asyncio.to_thread(remove_stale)
        assert folder in removed
        assert not folder.exists()
        await until(lambda: not carriers(marker))
        assert host_folder(box) not in removed
        assert host_folder(box).exists()
        assert process.exit_code is None
        assert len(carriers(living)) >= 4
        assert (await box.exec(["echo", "well"])).stdout.data == b"well\n"


async def test_the_sweep_finds_nothing_where_every_box_was_closed(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits()) as box:
        folder = host_folder(box)
    assert folder not in await asyncio.to_thread(remove_stale)


@pytest.mark.parametrize(("age", "locked", "swept"), [(61, False, True), (61, True, False), (0, False, False)])
def test_the_sweep_removes_what_was_never_made_to_the_end(age: int, locked: bool, swept: bool) -> None:
    folder = boxes_root() / f".box-{new_marker()}"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    try:
        if locked:
            fcntl.flock(fd, fcntl.LOCK_EX)
        os.utime(folder, (time.time() - age,) * 2)
        assert (folder in remove_stale()) == swept
        assert folder.exists() != swept
    finally:
        os.close(fd)
        shutil.rmtree(folder, ignore_errors=True)


async def test_boxes_of_others_cannot_be_listed(box: Box) -> None:
    assert boxes_root().stat().st_mode & 0o077 == 0o011
    assert boxes_root().stat().st_uid == os.getuid()


async def test_a_task_cancelled_inside_the_context_still_removes_the_box(sandbox: Sandbox) -> None:
    marker = new_marker()
    opened: list[Path] = []

    async def rollout() -> None:
        async with sandbox.open(TaskLimits()) as box:
            opened.append(host_folder(box))
            await box.exec([box.python, "-c", TREE, marker, "stay"])

    task = asyncio.create_task(rollout())
    await until(lambda: len(carriers(marker)) >= 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert carriers(marker) == []
    assert not opened[0].exists()
