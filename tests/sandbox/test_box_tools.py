"""Programs that a task offers: called in the box, answered and remembered outside of it."""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import pytest
import uvloop

from support.box_helpers import FETCH, host_folder, model_port, open_descriptors, run_python
from support.waiting import until
from whet.box import Box, Sandbox, SandboxError, ToolAnswer, ToolUse
from whet.sandbox import sandbox_named
from whet.sandbox.tools import server
from whet.sandbox.tools.client import GRACE_SEC, LIMIT
from whet.tasks.task import TaskLimits


class Log:
    """Answers every call with what it was given, and remembers it."""

    def __init__(self, exit_code: int = 0) -> None:
        self.uses: list[ToolUse] = []
        self._exit_code = exit_code

    async def __call__(self, use: ToolUse) -> ToolAnswer:
        self.uses.append(use)
        return ToolAnswer(" ".join(use.argv).encode(errors="surrogateescape") + b"|" + use.stdin, self._exit_code)

    @property
    def arguments(self) -> list[tuple[str, ...]]:
        return [use.argv for use in self.uses]


async def shell(box: Box, script: str) -> str:
    """What a script of bash wrote to its output and errors."""
    done = await box.exec(["bash", "-c", f"exec 2>&1; {script}"], timeout=30)
    return done.stdout.text


async def test_a_call_is_answered_and_known_to_the_host(box: Box) -> None:
    log = Log(exit_code=7)
    await box.offer("weather", log)
    before = time.time()
    done = await box.exec(["weather", "--in", "Zürich"], stdin=b"today")
    assert (done.exit_code, done.stdout.text, done.stderr.text) == (7, "--in Zürich|today", "")
    (use,) = log.uses
    assert (use.name, use.argv, use.stdin) == ("weather", ("--in", "Zürich"), b"today")
    assert before <= use.started <= time.time()


async def test_words_and_bytes_of_every_kind_come_through(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    words = ("", "a b", "new\nline", "$HOME", "'\"\\", "-I", "*", "\udcff", "☃")
    data = bytes(range(256)) * 1000
    done = await box.exec(["tool", *words], stdin=data)
    assert done.stdout.data == os.fsencode(" ".join(words)) + b"|" + data
    assert log.arguments == [words]


async def test_a_call_without_arguments_or_input_is_a_call(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    assert await shell(box, "tool; tool < /dev/null; tool <&-") == "|||"
    assert log.arguments == [(), (), ()]


async def test_every_program_has_its_own_answer(box: Box) -> None:
    one, other = Log(1), Log(2)
    await box.offer("one", one)
    await box.offer("other.v2", other)
    assert await shell(box, "one a; echo $?; other.v2 b; echo $?") == "a|1\nb|2\n"
    assert (one.arguments, other.arguments) == ([("a",)], [("b",)])


async def test_a_program_is_found_whatever_path_a_command_is_given(box: Box) -> None:
    await box.offer("tool", Log())
    done = await box.exec(["sh", "-c", "cd / && tool"], env={"PATH": "/usr/bin:/bin"})
    assert done.stdout.data == b"|"


async def test_programs_under_names_of_the_boxs_own_do_not_hinder_it(box: Box) -> None:
    logs = {name: Log() for name in ("prlimit", "python3", "sh")}
    for name, log in logs.items():
        await box.offer(name, log)
    async with model_port(box) as url:
        assert await run_python(box, FETCH, url) == "model\n"
        assert not any(log.uses for log in logs.values())
        for name, log in logs.items():
            assert (await box.exec([name, "x"])).stdout.data == b"x|"
            assert log.arguments == [("x",)]


async def test_calls_side_by_side_each_get_their_answer(box: Box) -> None:
    meeting = asyncio.Barrier(8)

    async def answer(use: ToolUse) -> ToolAnswer:
        await meeting.wait()
        return ToolAnswer(use.argv[0].encode())

    await box.offer("tool", answer)
    said = await shell(box, "for n in 1 2 3 4 5 6 7 8; do tool $n > out$n & done; wait; cat out*")
    assert said == "12345678"


@pytest.mark.parametrize("name", ["", "..", "../up", "a/b", "/bin/x", "a b", "-rf", "new\nline", "nul\0", "☃"])
async def test_what_cannot_be_the_name_of_a_program_is_refused(box: Box, name: str) -> None:
    with pytest.raises(SandboxError, match="name of a program"):
        await box.offer(name, Log())


async def test_a_pipe_is_read_to_its_end(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    assert await shell(box, "(echo a; sleep 0.2; echo b) | tool") == "|a\nb\n"


async def test_a_silent_pipe_of_the_caller_counts_as_empty_at_once_and_without_a_word(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    code = """
import subprocess, time
for argv in (["tool", "x"], ["bash", "-c", "tool y; true"]):
    started = time.monotonic()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.STDOUT) as tool:
        tool.wait(20)
    assert time.monotonic() - started < 2
print("ok")
"""
    assert await run_python(box, code) == "x|y|ok\n"
    assert [use.stdin for use in log.uses] == [b"", b""]


async def test_a_program_in_front_of_it_may_be_silent_for_long(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    assert await shell(box, f"(sleep {4 * GRACE_SEC}; echo late) | tool") == "|late\n"


async def test_a_loop_over_a_file_keeps_its_lines(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    await shell(box, "printf '1\\n2\\n3\\n' > lines; while read line; do tool $line; done < lines")
    assert log.arguments == [("1",), ("2",), ("3",)]
    assert [use.stdin for use in log.uses] == [b"2\n3\n", b"3\n", b""]


async def test_a_call_that_is_too_large_fails_and_says_why(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    for feed in ("tool < big", "cat big | tool"):
        said = await shell(box, f"truncate -s {LIMIT} big; {feed}; echo $?")
        assert said.endswith(f"tool: more than {LIMIT} bytes of arguments and standard input\n69\n")
    assert log.uses == []
    done = await box.exec(["sh", "-c", f"truncate -s {LIMIT - 5} big; tool < big | wc -c"])
    assert done.stdout.text == f"{LIMIT - 4}\n"


async def test_nobody_needs_to_read_a_long_answer(box: Box) -> None:
    async def answer(use: ToolUse) -> ToolAnswer:
        return ToolAnswer(b"x" * (8 << 20))

    await box.offer("tool", answer)
    assert await shell(box, "tool | head -c 3; echo ${PIPESTATUS[0]}; tool | wc -c") == f"xxx141\n{8 << 20}\n"


TALK = """
import os, shutil, socket, sys
os.chdir(os.path.dirname(os.path.dirname(shutil.which("tool"))))
def talk(data, stop=True):
    with socket.socket(socket.AF_UNIX) as host:
        host.settimeout(20)
        host.connect("socket")
        try:
            host.sendall(data)
            if stop:
                host.shutdown(socket.SHUT_WR)
            return host.recv(1 << 16)
        except (BrokenPipeError, ConnectionResetError):
            return b""
def call(words, stdin=b""):
    return len(words).to_bytes(4, "big") + len(stdin).to_bytes(4, "big") + words + stdin
"""
"""Speaks to the host without the client."""


async def test_a_call_made_without_the_client_is_a_call(box: Box) -> None:
    log = Log(exit_code=3)
    await box.offer("tool", log)
    said = await run_python(box, TALK + "print(talk(call(b'tool\\0x\\0', b'in'), stop=False))")
    assert said == repr(bytes([3]) + (4).to_bytes(8, "big") + bytes(8) + b"x|in") + "\n"
    assert log.arguments == [("x",)]


async def test_talk_that_is_no_call_is_hung_up_on_and_harms_nothing(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    code = """
for data in (
    b"", b"GET / HTTP/1.1\\r\\n\\r\\n", b"\\0" * 8, b"\\xff" * 4096, call(b"tool"), call(b"other\\0"), call(b"\\0"),
    call(b"tool\\0", b"half")[:-1], call(b"tool\\0")[:5], call(b"\\xff\\0"), call(b"../tool\\0"),
):
    print(talk(data))
print(talk((5).to_bytes(4, "big") + (16 << 20).to_bytes(4, "big") + b"tool\\0", stop=False))
"""
    assert set((await run_python(box, TALK + code)).split("\n")) == {"b''", ""}
    assert log.uses == []
    assert (await box.exec(["tool", "still", "there"])).stdout.data == b"still there|"


async def test_connections_that_say_nothing_are_ended(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TALK_SEC", 0.5)
    log = Log()
    await box.offer("tool", log)
    code = """
held = [socket.socket(socket.AF_UNIX) for _ in range(100)]
for host in held:
    host.connect("socket")
print(talk(call(b"tool\\0x\\0"))[17:].decode())
print({host.recv(1) for host in held})
"""
    assert await run_python(box, TALK + code) == "x|\n{b''}\n"


async def test_only_so_many_calls_are_under_way_at_once(box: Box) -> None:
    under_way, most = 0, 0

    async def answer(use: ToolUse) -> ToolAnswer:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        return ToolAnswer()

    await box.offer("tool", answer)
    code = """
held = [socket.socket(socket.AF_UNIX) for _ in range(150)]
for host in held:
    host.connect("socket")
    host.sendall(call(b"tool\\0"))
print({host.recv(17) for host in held} == {bytes(17)})
"""
    assert await run_python(box, TALK + code) == "True\n"
    assert 2 <= most <= server.CONNECTIONS


async def test_the_agent_cannot_change_a_program_nor_take_its_socket_away(sealed_box: Box) -> None:
    log = Log()
    await sealed_box.offer("tool", log)
    folder = "$(dirname $(dirname $(command -v tool)))"
    for attempt in ("echo > bin/tool", "rm bin/tool", "rm socket", "mv socket x", "touch bin/new", "echo > client.py"):
        assert "Read-only" in await shell(sealed_box, f"cd {folder} && {attempt}")
    assert (await sealed_box.exec(["tool", "x"])).stdout.data == b"x|"


async def test_nothing_of_a_program_is_among_the_files_of_the_agent(box: Box) -> None:
    await box.offer("tool", Log())
    assert await shell(box, 'ls -A . "$HOME" "$TMPDIR" | grep -v :') == "\n\n"


async def test_no_call_is_answered_in_a_sealed_box(box: Box) -> None:
    log = Log()
    await box.offer("tool", log)
    path = (await shell(box, "command -v tool")).strip()
    await box.seal()
    assert (await box.exec(["sh", "-c", "tool"])).exit_code == 127
    done = await box.exec([path, "late"])
    assert (done.exit_code, done.stdout.data) == (69, b"")
    assert done.stderr.text.startswith("tool: not available")
    with pytest.raises(SandboxError, match="sealed"):
        await box.offer("another", log)
    assert log.uses == []


async def test_an_answer_under_way_is_ended_when_the_box_is_sealed(box: Box) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answer(use: ToolUse) -> ToolAnswer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ToolAnswer()

    await box.offer("tool", answer)
    process = await box.start(["tool"])
    await asyncio.wait_for(begun.wait(), 15)
    await box.seal()
    assert ended.is_set()
    assert process.exit_code in {69, 137}


async def test_an_answer_that_fails_fails_the_call_and_the_rollout(box: Box) -> None:
    async def answer(use: ToolUse) -> ToolAnswer:
        if use.argv:
            raise LookupError("no such city")
        return ToolAnswer(b"fine")

    await box.offer("weather", answer)
    assert (
        await shell(box, "weather; weather x; echo $?; weather")
        == "fineweather: not available: no answer came\n69\nfine"
    )
    with pytest.raises(SandboxError, match=r"'weather'.*no such city"):
        await box.seal()
    assert (await box.exec(["sh", "-c", 'ls -A "$HOME"'])).stdout.data == b""


@pytest.mark.parametrize("code", [-1, 256])
def test_an_exit_code_that_no_program_has_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match=str(code)):
        ToolAnswer(exit_code=code)


async def test_a_closed_box_leaves_no_socket_and_no_descriptor(sandbox: Sandbox) -> None:
    async def open_and_close() -> Path:
        async with sandbox.open(TaskLimits()) as box:
            await box.offer("tool", Log())
            assert (await box.exec(["tool"])).exit_code == 0
            assert (host_folder(box) / "tools" / "socket").exists()
            return host_folder(box)

    await open_and_close()  # what the loop opens once for all
    before = open_descriptors()
    folder = await open_and_close()
    assert not folder.exists()
    await until(lambda: open_descriptors() <= before)


async def test_a_box_may_lie_deeper_than_a_sockets_path_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    async with sandbox_named("local").open(TaskLimits()) as box:
        await box.offer("tool", Log())
        assert (await box.exec(["tool", "x"])).stdout.data == b"x|"


def test_calls_are_answered_on_the_loop_that_whet_runs_on(sandbox: Sandbox) -> None:
    async def main() -> None:
        async with sandbox.open(TaskLimits()) as box:
            log = Log()
            await box.offer("tool", log)
            assert (await box.exec(["tool"], stdin=b"x" * 1_000_000)).stdout.total == 1_000_001
            assert await shell(box, "for n in 1 2 3; do tool $n & done; wait") != ""
            assert len(log.uses) == 4

    uvloop.run(main())
