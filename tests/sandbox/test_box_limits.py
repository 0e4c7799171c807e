"""Limits of a box: processes, memory and storage. Reaching one ends the command, never whet."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from support.box_helpers import carriers, host_workdir, new_marker
from support.waiting import until
from whet.box import Sandbox
from whet.sandbox import sandbox_named
from whet.sandbox.disk.storage import Disk, DiskUsage
from whet.tasks.task import TaskLimits


async def test_a_fork_bomb_is_limited_and_ended() -> None:
    marker = new_marker()
    async with sandbox_named("bubblewrap").open(TaskLimits(processes=64)) as box:
        bomb = await box.start(["bash", "-c", ":(){ :|:& };:; exec sleep 60"], env={"MARKER": marker})
        await until(lambda: len(carriers(marker)) > 30)
        counts = [len(carriers(marker)) for _ in range(10)]
        done = await bomb.wait(timeout=0.5)
        assert done.timed_out
        assert max(counts) <= 64 + 4  # and those of bwrap around it
        assert carriers(marker) == []
        assert (await box.exec(["echo", "well"], timeout=10)).stdout.data == b"well\n"


async def test_many_processes_of_a_local_box_are_gone_after_the_time_limit() -> None:
    marker = new_marker()
    async with sandbox_named("local").open(TaskLimits()) as box:
        script = "b() { if [ $1 -gt 0 ]; then b $(($1 - 1)) & b $(($1 - 1)) & fi; sleep 60; }; b 5"
        bomb = await box.start(["bash", "-c", script], env={"MARKER": marker})
        await until(lambda: len(carriers(marker)) > 60)
        done = await bomb.wait(timeout=0.1)
        assert done.timed_out
        assert carriers(marker) == []
        assert (await box.exec(["echo", "well"], timeout=10)).stdout.data == b"well\n"


async def test_one_file_of_10_gb_is_stopped_at_the_limit(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits(storage_mb=64)) as box:
        done = await box.exec(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=10240"], timeout=60)
        assert done.exit_code != 0
        assert not done.timed_out
        assert (host_workdir(box) / "big").stat().st_size <= 64 << 20
        assert (await box.exec(["truncate", "-s", "10G", "hollow"])).exit_code != 0


MANY_FILES = """
import os, sys, time
for n in range(int(sys.argv[1])):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
for n in range(1000):
    with open(str(n), "wb") as file:
        file.write(bytes(4 << 20))
    time.sleep(0.02)
"""


@pytest.mark.parametrize("depth", [0, 30], ids=["in plain sight", "deeper than any path reaches"])
async def test_files_that_pass_the_limit_together_end_the_command(sandbox: Sandbox, depth: int) -> None:
    async with sandbox.open(TaskLimits(storage_mb=64)) as box:
        done = await box.exec([box.python, "-c", MANY_FILES, str(depth)], timeout=40)
        assert done.over_storage
        assert not done.timed_out
        assert done.exit_code == 137


REMOVED = """
import mmap, os, sys, time
kept = []
for n in range(1000):
    fd = os.open("hidden", os.O_CREAT | os.O_RDWR)
    os.unlink("hidden")
    os.write(fd, bytes(4 << 20))
    if sys.argv[1] == "mapped":
        kept.append(mmap.mmap(fd, 4 << 20))
        os.close(fd)
    time.sleep(0.02)
"""


@pytest.mark.parametrize("how", ["open", "mapped"] if os.getuid() == 0 else ["open"])
async def test_files_that_have_no_name_any_more_count(sandbox: Sandbox, how: str) -> None:
    async with sandbox.open(TaskLimits(storage_mb=64)) as box:
        done = await box.exec([box.python, "-c", REMOVED, how], timeout=40)
        assert (done.over_storage, done.timed_out) == (True, False)


async def test_hard_links_to_one_file_are_stored_once(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits(storage_mb=64)) as box:
        script = "head -c 30M /dev/zero > a; for n in 1 2 3 4 5; do ln a b$n; done; sleep 0.6"
        done = await box.exec(["sh", "-c", script], timeout=30)
        assert (done.exit_code, done.over_storage) == (0, False)


async def test_a_process_that_takes_too_much_memory_fails_inside(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits(memory_mb=256)) as box:
        code = "hog = bytearray(50 << 20); print('modest', flush=True); bytearray(3 * 256 << 20)"
        done = await box.exec([box.python, "-c", code], timeout=30)
        assert done.exit_code == 1
        assert done.stdout.data == b"modest\n"
        assert "MemoryError" in done.stderr.text


async def test_limits_above_those_of_whet_itself_do_not_stop_commands(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = resource.getrlimit

    def lower(kind: int) -> tuple[int, int]:
        return (500, 500) if kind in {resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC} else real(kind)

    monkeypatch.setattr(resource, "getrlimit", lower)
    async with sandbox.open(TaskLimits(processes=100_000)) as box:
        assert (await box.exec(["sh", "-c", "ulimit -n"])).stdout.data == b"500\n"


HOARD = """
import os, sys
for n in range(int(sys.argv[1])):
    if n % 1000 == 0:
        os.mkdir(f"d{n}")
        os.chdir(f"d{n}")
    os.close(os.open(str(n), os.O_CREAT))
print("all made", flush=True)
import time
time.sleep(60)
"""


async def test_a_box_that_holds_too_many_files_is_ended_and_others_work(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits(files=2000)) as box, sandbox.open(TaskLimits(files=2000)) as other:
        hoard = await box.start([box.python, "-c", HOARD, "20000"])
        beside = await other.start(["sh", "-c", "read word; echo $word"], stdin=b"well\n")
        done = await hoard.wait(timeout=40)
        assert (done.over_storage, done.timed_out, done.exit_code) == (True, False, 137)
        assert (await beside.wait(20)).stdout.data == b"well\n"
        assert await box.seal() == ()
        assert await other.seal() == ()


async def test_files_below_the_limit_are_no_matter(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits(files=2000)) as box:
        script = "for n in $(seq 1500); do : > $n; done; rm *; for n in $(seq 1500); do : > $n; done; sleep 0.6"
        done = await box.exec(["sh", "-c", script], timeout=30)
        assert (done.exit_code, done.over_storage) == (0, False)


def test_the_limit_on_files_follows_the_storage_unless_it_is_given() -> None:
    assert TaskLimits(storage_mb=4096).max_files == 262_144
    assert TaskLimits(storage_mb=1).max_files == 20_000
    assert TaskLimits(storage_mb=4096, files=7).max_files == 7


@pytest.mark.parametrize("kind", ["size", "files"])
def test_a_disk_is_filled_by_whoever_holds_more_than_it_has_left(kind: str) -> None:
    def disk(left: int) -> Disk:
        return Disk(
            DiskUsage(**{"size": 1e9, "files": 1e9, kind: 1000}), DiskUsage(**{"size": 1e9, "files": 1e9, kind: left})
        )

    assert disk(left=50).is_filled_by(DiskUsage(**{kind: 51}))
    assert not disk(left=50).is_filled_by(DiskUsage(**{kind: 50}))
    assert not disk(left=100).is_filled_by(DiskUsage(**{kind: 900}))


async def test_a_box_that_fills_the_disk_is_ended(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def small_disk(folder: Path) -> Disk:
        held = sum(len(names) for _, *two in os.walk(folder) for names in two)
        return Disk(DiskUsage(1e12, 2000), DiskUsage(1e12, 2000 - held))

    monkeypatch.setattr(Disk, "of", small_disk)
    async with sandbox.open(TaskLimits()) as box:
        done = await box.exec([box.python, "-c", HOARD, "1900"], timeout=40)
        assert (done.over_storage, done.timed_out) == (True, False)


FILLED = """
import asyncio, os, sys
from whet.sandbox import sandbox_named
from whet.tasks.task import TaskLimits

async def main():
    async with sandbox_named("local").open(TaskLimits()) as box, sandbox_named("local").open(TaskLimits()) as other:
        fill = "for n in $(seq 5000); do : > $n || exit 3; done 2> /dev/null"
        done = await box.exec(["sh", "-c", fill], timeout=60)
        print(done.exit_code or done.over_storage, os.statvfs(os.environ["TMPDIR"]).f_favail)
        print(await box.seal(), await other.seal())

asyncio.run(main())
"""


def test_boxes_on_a_disk_without_a_free_inode_can_be_sealed(tmp_path: Path) -> None:
    command = 'mount -t tmpfs -o nr_inodes=2000 tmpfs "$0" && TMPDIR="$0" exec "$@"'
    inside = ["sh", "-c", command, str(tmp_path), sys.executable, "-c", FILLED]
    done = subprocess.run(["unshare", "-rm", *inside], capture_output=True, text=True, timeout=90, check=False)
    first, *rest = done.stdout.splitlines()
    assert first in {"3 0", "2 0", "True 0"}, done.stderr
    assert rest == ["() ()"], done.stderr
