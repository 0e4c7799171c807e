"""Commands in a box: what they are given, what comes back, and that nothing of them stays behind."""

import asyncio
import contextlib
import os
import tracemalloc

import pytest

from support.box_helpers import TREE, carriers, model_port, new_marker, open_descriptors, start_tree, until_written
from support.waiting import until
from whet.box import Box, Sandbox, SandboxError
from whet.sandbox import sandbox_named
from whet.tasks.task import TaskLimits

ODD_WORDS = ["", " ", "two words", "-n", "--", "$HOME", "*", "'\"", "a\nb", "Zoë ☃ 日本", "\udcff"]


async def test_arguments_arrive_as_they_are(box: Box) -> None:
    code = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(os.fsencode(a) for a in sys.argv[1:]))"
    done = await box.exec([box.python, "-c", code, *ODD_WORDS])
    assert done.stdout.data.split(b"\0") == [os.fsencode(word) for word in ODD_WORDS]


async def test_variables_arrive_as_they_are(box: Box) -> None:
    value = "Zoë = ☃\n--bind / /"
    done = await box.exec(["sh", "-c", 'printf %s "$ODD"'], env={"ODD": value})
    assert done.stdout.text == value


async def test_a_command_has_its_home_and_temporary_folder(box: Box) -> None:
    done = await box.exec(["sh", "-c", 'echo "$HOME"; touch "$HOME/a" "$TMPDIR/b" && echo written'])
    assert done.stdout.text.split() == [box.home, "written"]


async def test_commands_start_in_the_working_directory_or_where_told(box: Box) -> None:
    await box.exec(["mkdir", "-p", "déjà vu"])
    assert (await box.exec(["pwd"])).stdout.text == f"{box.workdir}\n"
    assert (await box.exec(["pwd"], cwd=f"{box.workdir}/déjà vu")).stdout.text == f"{box.workdir}/déjà vu\n"


@pytest.mark.parametrize("stdin", [b"", b"one line\n", os.urandom(1 << 20)], ids=["empty", "line", "1 MB"])
async def test_standard_input_arrives_and_ends(box: Box, stdin: bytes) -> None:
    done = await box.exec(["cat"], stdin=stdin, timeout=20, output_limit=4 << 20)
    assert done.stdout.data == stdin


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
async def test_exit_codes_are_those_of_a_shell(box: Box, script: str, code: int) -> None:
    done = await box.exec(["sh", "-c", script])
    assert (done.exit_code, done.timed_out, done.over_storage) == (code, False, False)


async def test_a_program_that_does_not_exist_gives_127(box: Box) -> None:
    done = await box.exec(["no-such-program"])
    assert done.exit_code == 127
    assert "no-such-program" in done.stderr.text


async def test_a_missing_program_gives_127_behind_a_model_port(box: Box) -> None:
    async with model_port(box):
        assert (await box.exec(["no-such-program"])).exit_code == 127


async def test_both_streams_are_kept_apart_and_byte_exact(box: Box) -> None:
    out, err = bytes(range(256)) * 40, bytes(reversed(range(256))) * 30
    code = """
import sys
data = sys.stdin.buffer.read()
sys.stdout.buffer.write(data[:10240])
sys.stderr.buffer.write(data[10240:])
"""
    done = await box.exec([box.python, "-c", code], stdin=out + err)
    assert (done.stdout.data, done.stderr.data) == (out, err)
    assert (done.stdout.total, done.stdout.dropped) == (len(out), 0)


async def test_100_mb_of_output_are_counted_but_not_held(box: Box) -> None:
    code = """
import sys
out = sys.stdout.buffer
out.write(b"begin" + b"a" * 10_000)
for _ in range(100):
    out.write(b"x" * 1_000_000)
out.write(b"b" * 10_000 + b"end")
"""
    tracemalloc.start()
    try:
        done = await box.exec([box.python, "-c", code], timeout=60, output_limit=10_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert done.exit_code == 0
    assert done.stdout.head == b"begin" + b"a" * 4_995
    assert done.stdout.tail == b"b" * 4_997 + b"end"
    assert done.stdout.total == 100_020_008
    assert b"[... 100010008 bytes left out ...]" in done.stdout.data
    assert peak < 5_000_000


@pytest.mark.parametrize(
    ("argv", "env", "cwd"),
    [
        ([], {}, None),
        ([""], {}, None),
        (["echo", "a\0b"], {}, None),
        (["echo", "\ud800"], {}, None),
        (["true"], {"A": "x\0--bind\0/\0/mnt"}, None),
        (["true"], {"A=B": "x"}, None),
        (["true"], {"": "x"}, None),
        (["true"], {}, "/tmp\0--bind"),
    ],
)
async def test_words_that_no_command_can_have_are_refused(
    box: Box, argv: list[str], env: dict[str, str], cwd: str | None
) -> None:
    with pytest.raises(SandboxError):
        await box.exec(argv, env=env, cwd=cwd)


async def test_a_command_too_long_for_the_kernel_is_refused_and_leaks_nothing(box: Box) -> None:
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(SandboxError, match="too long"):
            await box.exec(["echo", "x" * 5_000_000])
    assert open_descriptors() == before


async def test_commands_leave_no_descriptor_open_in_whet_and_have_none_of_its(box: Box) -> None:
    before = None
    for _ in range(3):
        done = await box.exec([box.python, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"])
        assert done.stdout.text.strip() == "['0', '1', '2', '3']"  # 3 is the listing itself
        before = before or open_descriptors()
    assert open_descriptors() == before


async def test_the_time_limit_kills_the_whole_tree(box: Box) -> None:
    marker = new_marker()
    process = await start_tree(box, marker)
    done = await process.wait(timeout=0.1)
    assert done.timed_out
    assert done.exit_code == 137
    assert carriers(marker) == []


async def test_what_was_written_before_the_time_limit_is_kept(box: Box) -> None:
    done = await box.exec(["sh", "-c", "echo early; exec sleep 60"], timeout=0.7)
    assert done.timed_out
    assert done.stdout.data == b"early\n"
    assert done.seconds < 10


async def test_a_daemon_is_gone_when_its_command_has_ended_normally(box: Box) -> None:
    marker = new_marker()
    done = await box.exec([box.python, "-c", TREE, marker, "leave"], timeout=30)
    assert (done.exit_code, done.stdout.data, done.timed_out) == (0, b"ready\n", False)
    assert carriers(marker) == []


async def test_a_daemon_does_not_hold_up_the_end(box: Box) -> None:
    done = await box.exec(["sh", "-c", "setsid sleep 60 & echo done"], timeout=30)
    assert done.stdout.data == b"done\n"
    assert not done.timed_out
    assert done.seconds < 20


async def test_a_process_can_be_followed_while_it_runs(box: Box) -> None:
    process = await box.start(["sh", "-c", "echo one; until [ -e go ]; do sleep 0.05; done; echo two; exit 4"])
    await until_written(process, b"one\n")
    assert process.exit_code is None
    assert process.stdout().data == b"one\n"
    await box.write_file("go", b"")
    done = await process.wait(timeout=30)
    assert (done.exit_code, done.stdout.data) == (4, b"one\ntwo\n")
    assert process.exit_code == 4


async def test_waiting_twice_gives_the_same_end(box: Box) -> None:
    process = await box.start(["sh", "-c", "echo a; exit 2"])
    first, second = await asyncio.gather(process.wait(), process.wait())
    assert first == second
    assert first.exit_code == 2


async def test_kill_ends_the_whole_tree_and_may_be_repeated(box: Box) -> None:
    marker = new_marker()
    process = await start_tree(box, marker)
    await asyncio.gather(process.kill(), process.kill())
    assert carriers(marker) == []
    assert process.exit_code == 137
    await process.kill()


async def test_cancelling_whoever_waits_kills_the_tree(box: Box) -> None:
    marker = new_marker()
    waiting = asyncio.create_task(box.exec([box.python, "-c", TREE, marker, "stay"]))
    await until(lambda: len(carriers(marker)) >= 4)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert carriers(marker) == []


async def test_cancelling_a_start_at_any_moment_leaves_nothing(box: Box) -> None:
    marker = new_marker()
    for steps in range(12):
        starting = asyncio.create_task(box.exec(["sleep", "60"], env={"MARKER": marker}))
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
    await until(lambda: not carriers(marker))


async def test_commands_run_side_by_side_in_one_box(box: Box) -> None:
    done = await asyncio.gather(*(box.exec(["sh", "-c", f"echo {n}"]) for n in range(8)))
    assert [d.stdout.text for d in done] == [f"{n}\n" for n in range(8)]


async def test_closing_the_box_ends_every_process(sandbox: Sandbox) -> None:
    marker = new_marker()
    async with sandbox.open(TaskLimits()) as box:
        process = await start_tree(box, marker)
    assert carriers(marker) == []
    assert process.exit_code == 137


async def test_check_passes_where_the_sandbox_works(sandbox: Sandbox) -> None:
    await sandbox.check()


def test_an_unknown_sandbox_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(Exception, match="did you mean 'bubblewrap'"):
        sandbox_named("bublewrap")
