"""What a box of bubblewrap cannot see or reach: the host's network, processes, files, variables and names."""

import asyncio
import json
import socket
import tempfile
from pathlib import Path

import pytest

from support.box_helpers import FETCH, carriers, model_port, new_marker, run_python, until_written
from support.waiting import until
from whet.box import Box, Sandbox, SandboxError
from whet.errors import UserError
from whet.sandbox import sandbox_named
from whet.tasks.task import TaskLimits


async def test_a_process_in_the_box_reaches_the_model_port(box: Box) -> None:
    async with model_port(box) as url:
        for _ in range(2):
            assert await run_python(box, FETCH, url) == "model\n"


async def test_commands_side_by_side_each_reach_the_model_port(box: Box) -> None:
    async with model_port(box) as url:
        answers = await asyncio.gather(*(run_python(box, FETCH, url) for _ in range(3)))
    assert answers == ["model\n"] * 3


DIAL = """
import json, socket, sys, time
def outcome(family, address):
    began = time.monotonic()
    try:
        with socket.socket(family) as dialled:
            dialled.settimeout(5)
            dialled.connect(address)
        ending = "connected"
    except OSError as error:
        ending = error.strerror or str(error)
    return [ending, time.monotonic() - began]
def resolved(name):
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        return "not found"
port, abstract = int(sys.argv[1]), sys.argv[2]
print(json.dumps({
    "host loopback": outcome(socket.AF_INET, ("127.0.0.1", port)),
    "host loopback, v6": outcome(socket.AF_INET6, ("::1", port)),
    "abstract": outcome(socket.AF_UNIX, "\\0" + abstract),
    "10.0.0.1": outcome(socket.AF_INET, ("10.0.0.1", 80)),
    "192.0.2.1": outcome(socket.AF_INET, ("192.0.2.1", 80)),
    "169.254.169.254": outcome(socket.AF_INET, ("169.254.169.254", 80)),
    "name": resolved("example.org"),
    "localhost": resolved("localhost"),
    "interfaces": [name for _, name in socket.if_nameindex()],
}))
"""


async def test_nothing_but_the_model_port_can_be_reached(sealed_box: Box) -> None:
    abstract = new_marker()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0" + abstract)
        unix.listen()
        async with model_port(sealed_box):
            port = str(listener.getsockname()[1])
            seen = json.loads(await run_python(sealed_box, DIAL, port, abstract))
    assert seen.pop("localhost") == "127.0.0.1"
    assert seen.pop("name") == "not found"
    assert seen.pop("interfaces") == ["lo"]
    for where, (ending, seconds) in seen.items():
        assert ending in {"Connection refused", "Network is unreachable", "Cannot assign requested address"}, where
        assert seconds < 2, where
    assert seen["192.0.2.1"][0] == "Network is unreachable"


async def test_the_root_is_read_only_and_made_for_the_box(sealed_box: Box) -> None:
    listing = (await sealed_box.exec(["ls", "-A", "/"])).stdout.text.split()
    assert {"sys", "root", "mnt", "srv", "boot"}.isdisjoint(listing)
    for path in ("/new", "/usr/new", "/etc/new", "/home/new", "/dev/new", "/run/new", "/var/new"):
        done = await sealed_box.exec(["touch", path])
        assert "Read-only file system" in done.stderr.text, path
    assert (await sealed_box.exec(["sh", "-c", "echo x >> /etc/passwd"])).exit_code != 0
    assert (await sealed_box.exec(["ls", "/home"])).stdout.data == b"agent\n"


async def test_the_box_has_a_name_and_a_user_of_its_own(sealed_box: Box) -> None:
    code = "import getpass, os, socket; print(socket.gethostname(), os.getuid(), getpass.getuser())"
    assert await run_python(sealed_box, code) == "box 1000 agent\n"


async def test_a_box_has_no_privileges(sealed_box: Box) -> None:
    status = (await sealed_box.exec(["cat", "/proc/self/status"])).stdout.text
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["CapEff"] == "0000000000000000"
    assert fields["NoNewPrivs"] == "1"


async def test_processes_of_the_host_are_not_visible(sealed_box: Box) -> None:
    done = await sealed_box.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert "pytest" not in done.stdout.text
    pids = (await sealed_box.exec(["sh", "-c", "echo /proc/[0-9]*"])).stdout.text.split()
    assert len(pids) <= 3


HUNT = """
import os, stat, sys
needle = sys.stdin.buffer.read()
found = []
def look(path):
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                if needle in file.read(1 << 20):
                    found.append(path)
    except OSError:
        pass
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [name for name in folders if name not in ("usr", "proc", "dev")]
    for name in files:
        look(os.path.join(folder, name))
for pid in os.listdir("/proc"):
    for name in ("environ", "cmdline", "maps", "mountinfo"):
        look(f"/proc/{pid}/{name}")
print(found)
"""


async def test_secrets_of_the_host_are_nowhere_in_the_box(sealed_box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = new_marker()
    monkeypatch.setenv("WHET_TEST_KEY", canary)
    with tempfile.NamedTemporaryFile(dir=Path.home(), prefix=".whet-test-") as file:
        file.write(canary.encode())
        file.flush()
        async with model_port(sealed_box):
            assert await run_python(sealed_box, HUNT, stdin=canary.encode()) == "[]\n"
            assert (await sealed_box.exec(["cat", file.name])).exit_code != 0
            assert (await sealed_box.exec(["ls", "-A", tempfile.gettempdir()])).stdout.data == b""
            assert "WHET_TEST_KEY" not in (await sealed_box.exec(["env"])).stdout.text


async def test_the_hunt_for_secrets_finds_what_is_there(sealed_box: Box) -> None:
    canary = new_marker()
    await sealed_box.write_file("deep/in/it", canary.encode())
    assert "/workspace/deep/in/it" in await run_python(sealed_box, HUNT, stdin=canary.encode())


async def test_variables_of_a_command_are_in_no_command_line_of_the_host(box: Box) -> None:
    secret = new_marker()
    process = await box.start(["sh", "-c", "echo ${#KEY}; exec sleep 60"], env={"KEY": secret})
    await until_written(process, f"{len(secret)}\n".encode())
    assert carriers(secret)
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret.encode() not in entry.read_bytes()
        except OSError:
            continue
    await process.kill()


async def test_two_boxes_see_nothing_of_each_other() -> None:
    sandbox = sandbox_named("bubblewrap")
    marker = new_marker()
    async with sandbox.open(TaskLimits()) as one, sandbox.open(TaskLimits()) as other:
        await one.write_file("mine", b"one")
        await one.write_file("/tmp/mine", b"one")
        sleeper = await one.start(["sh", "-c", "sleep 60; :"], env={"MARKER": marker})
        await until(lambda: len(carriers(marker)) >= 2)
        seen = (await other.exec(["sh", "-c", "ls -A . /tmp $HOME; cat /proc/[0-9]*/cmdline"])).stdout.text
        assert "mine" not in seen
        assert "sleep 60" not in seen
        await other.exec(["sh", "-c", "kill -9 -1"])
        assert sleeper.exit_code is None
        await sleeper.kill()


async def test_a_working_directory_elsewhere_is_made(tmp_path: Path) -> None:
    async with sandbox_named("bubblewrap").open(TaskLimits(), workdir="/srv/app/src") as box:
        await box.write_file("a", b"x")
        assert (await box.exec(["sh", "-c", "pwd; cat a"])).stdout.text == "/srv/app/src\nx"


@pytest.mark.parametrize("workdir", ["/usr/src", "/etc", "/proc/x", "/dev", "/tmp", "/logs", "/run"])
async def test_a_working_directory_that_the_box_needs_itself_is_refused(workdir: str) -> None:
    with pytest.raises(SandboxError, match=workdir):
        async with sandbox_named("bubblewrap").open(TaskLimits(), workdir=workdir):
            pass


async def test_check_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"'bwrap'; install it: apt-get install bubblewrap"):
        await sandbox_named("bubblewrap").check()


async def test_only_a_box_with_a_root_of_its_own_promises_one(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits()) as box:
        done = await box.exec(["ls", "-d", "/logs/verifier"])
    assert sandbox.own_root == (done.exit_code == 0)
