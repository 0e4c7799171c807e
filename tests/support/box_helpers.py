"""What the tests of boxes share: processes to leave behind, and a box as the host sees it."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from support.waiting import until
from whet.box import Box, Process
from whet.sandbox.hostbox import HostBox
from whet.sandbox.local import LocalBox

TREE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def live():
    while True:
        time.sleep(0.05)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        live()  # a daemon: forked twice, in a session of its own
    os._exit(0)
os.wait()
if os.fork() == 0:
    os.fork()
    live()  # a child and a grandchild
print("ready", flush=True)
if sys.argv[2] == "stay":
    live()
"""
"""A program that leaves a daemon, a child and a grandchild, all deaf to SIGTERM. Arguments: a marker, stay | leave."""


def new_marker() -> str:
    return f"marker-{uuid.uuid4().hex}"


def carriers(marker: str) -> list[int]:
    """The processes of the host whose command line or environment holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if marker.encode() in seen:
                found.append(int(entry.name))
    return found


async def until_written(process: Process, words: bytes) -> None:
    """Wait until a process has written these words to its standard output."""
    await until(lambda: words in process.stdout().data or process.exit_code is not None)
    assert words in process.stdout().data, process.stderr().text


async def start_tree(box: Box, marker: str) -> Process:
    """A command under way with a daemon, a child and a grandchild."""
    process = await box.start([box.python, "-c", TREE, marker, "stay"])
    await until_written(process, b"ready")
    await until(lambda: len(carriers(marker)) >= 4)
    return process


def host_folder(box: Box) -> Path:
    """Where the box lies on the host."""
    return cast("HostBox", box)._folder.path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def open_descriptors() -> int:
    """How many descriptors this process holds."""
    return len(names_in(Path("/proc/self/fd")))


def host_workdir(box: Box) -> Path:
    return host_folder(box) / "work"


def logs_of(box: Box) -> str:
    """The folder of logs, as commands in the box see it."""
    return str(host_folder(box) / "logs") if isinstance(box, LocalBox) else "/logs"


async def run_python(box: Box, code: str, *arguments: str, stdin: bytes = b"") -> str:
    """What a Python program printed in the box; it must end well."""
    done = await box.exec([box.python, "-c", code, *arguments], stdin=stdin, timeout=30)
    assert done.exit_code == 0, done.stderr.text
    return done.stdout.text


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nmodel"

FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
"""A program that prints what the model port at an address answers."""


@asynccontextmanager
async def model_port(box: Box) -> AsyncIterator[str]:
    """The address of a model port that answers every request with `model`."""
    servers: list[asyncio.Server] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    async def serve(listener: socket.socket) -> None:
        servers.append(await asyncio.start_server(answer, sock=listener))

    try:
        yield await box.connect(serve)
    finally:
        for server in servers:
            server.close()
