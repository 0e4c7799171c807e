"""Limits of a box: processes, memory and storage. Reaching one ends the command, never whet."""

import resource

import pytest
from box_helpers import carriers, host_workdir, new_marker, until

from whet.box import Sandbox
from whet.sandbox import sandbox_named
from whet.tasks.task import Limits


async def test_a_fork_bomb_is_held_by_the_limit_and_gone_after_the_time_limit() -> None:
    marker = new_marker()
    async with sandbox_named("bubblewrap").open(Limits(processes=64)) as box:
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
    async with sandbox_named("local").open(Limits()) as box:
        script = "b() { if [ $1 -gt 0 ]; then b $(($1 - 1)) & b $(($1 - 1)) & fi; sleep 60; }; b 5"
        bomb = await box.start(["bash", "-c", script], env={"MARKER": marker})
        await until(lambda: len(carriers(marker)) > 60)
        done = await bomb.wait(timeout=0.1)
        assert done.timed_out
        assert carriers(marker) == []
        assert (await box.exec(["echo", "well"], timeout=10)).stdout.data == b"well\n"


async def test_one_file_of_10_gb_is_stopped_at_the_limit(sandbox: Sandbox) -> None:
    async with sandbox.open(Limits(storage_mb=64)) as box:
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
    async with sandbox.open(Limits(storage_mb=64)) as box:
        done = await box.exec([box.python, "-c", MANY_FILES, str(depth)], timeout=40)
        assert done.over_storage
        assert not done.timed_out
        assert done.exit_code == 137


async def test_hard_links_to_one_file_are_stored_once(sandbox: Sandbox) -> None:
    async with sandbox.open(Limits(storage_mb=64)) as box:
        script = "head -c 30M /dev/zero > a; for n in 1 2 3 4 5; do ln a b$n; done; sleep 0.6"
        done = await box.exec(["sh", "-c", script], timeout=30)
        assert (done.exit_code, done.over_storage) == (0, False)


async def test_a_process_that_takes_too_much_memory_fails_inside(sandbox: Sandbox) -> None:
    async with sandbox.open(Limits(memory_mb=256)) as box:
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
    async with sandbox.open(Limits(processes=100_000)) as box:
        assert (await box.exec(["sh", "-c", "ulimit -n"])).stdout.data == b"500\n"
