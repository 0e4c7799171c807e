"""Programs that a task offers in a box. The host answers the calls, so the agent can neither forge nor hide one.

A program in the box is two lines of shell that run `client.py`, which connects to a Unix socket of the host.
The agent may use the socket directly: a well-formed call counts, and anything else is disconnected.
"""

import asyncio
import contextlib
import functools
import os
import re
import shlex
import socket
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from whet.box import Answer, SandboxError, ToolAnswer, ToolUse
from whet.sandbox.disk.folder import BoxFolder
from whet.sandbox.tools.client import LIMIT, SOCKET, WAIT

CONNECTIONS = 64
"""Maximum concurrent calls; further ones wait in the kernel's queue."""
TALK_SEC = 60.0
"""Time limit to receive a call, and to deliver its answer."""


class Malformed(Exception):  # noqa: N818 - no error of ours
    """The data on the socket is not a call."""


class Tools:
    """The offered programs of one box, and the server that answers their calls."""

    def __init__(self, folder: BoxFolder, python: str, name: str = "tools", owner: int | None = None) -> None:
        self.path = folder.path / name
        self.failure: tuple[str, Exception] | None = None
        """The first program whose answer failed, and the exception."""
        self._python = python
        for path in (self.path, self.path / "bin"):
            path.mkdir()
            path.chmod(0o755)
        _write(self.path / "client.py", files("whet.sandbox.tools").joinpath("client.py").read_text(), 0o644)
        self._answers: dict[str, Answer] = {}
        self._attached: set[str] = set()
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._calls: set[asyncio.Task[None]] = set()
        self._listener = _listener(self.path, owner)
        self._accepting = asyncio.create_task(self._accept())

    def add(self, name: str, answer: Answer, seen_at: str, *, attached: bool = False) -> None:
        """Add a program; `seen_at` is the folder of all programs, as commands in the box see it.

        An attached program gets the caller's working directory as its first argument and all of its standard input,
        however long that takes. Its answer is cancelled when the caller disconnects.
        """
        if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is None:
            raise SandboxError(f"{name!a} cannot be the name of a program; expected letters, digits, '.', '_' and '-'")
        wait, where = ([WAIT], ' "$PWD"') if attached else ([], "")
        client = shlex.join([self._python, "-I", "-S", f"{seen_at}/client.py", *wait, name])
        _write(self.path / "bin" / name, f'#!/bin/sh\nexec {client}{where} "$@"\n', 0o755)
        self._answers[name] = answer
        if attached:
            self._attached.add(name)

    async def hang_up(self) -> None:
        """End the running calls."""
        await _end(*self._calls)

    async def close(self) -> None:
        """Stop the server and end the running calls."""
        await _end(self._accepting, *self._calls)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            connection = await _connection(loop, self._listener)
            call = asyncio.create_task(self._call(connection))
            self._calls.add(call)
            call.add_done_callback(functools.partial(self._over, connection))

    def _over(self, connection: socket.socket, call: "asyncio.Task[None]") -> None:
        connection.close()
        self._calls.discard(call)
        self._free.release()

    async def _call(self, connection: socket.socket) -> None:
        started = time.time()
        with contextlib.suppress(Malformed, OSError, TimeoutError):
            async with asyncio.timeout(TALK_SEC):
                name, argv, stdin = await _receive(connection)
            if name not in self._answers:
                raise Malformed
            answering = asyncio.ensure_future(self._answer(ToolUse(name, argv, stdin, started)))
            if name in self._attached:
                answer = await _while_connected(connection, answering)
            else:
                answer = await answering
            if answer is not None:
                async with asyncio.timeout(TALK_SEC):
                    await _send(connection, answer)

    async def _answer(self, use: ToolUse) -> ToolAnswer | None:
        try:
            return await self._answers[use.name](use)
        except Exception as error:  # noqa: BLE001 - kept, and raised when the box is sealed
            self.failure = self.failure or (use.name, error)
            return None


async def _while_connected(
    connection: socket.socket, answering: "asyncio.Future[ToolAnswer | None]"
) -> ToolAnswer | None:
    """Wait for the answer. If the caller disconnects first, cancel it and return None."""
    # A caller sends nothing more: any data, or the end of the connection, means that it is gone.
    gone = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(connection, 1))
    either: list[asyncio.Future[Any]] = [answering, gone]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        await _end(*either)


async def _end(*futures: "asyncio.Future[Any]") -> None:
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)


def _write(path: Path, text: str, mode: int) -> None:
    path.write_text(text)
    path.chmod(mode)


def _listener(folder: Path, owner: int | None) -> socket.socket:
    """Create a listening socket in a folder, for the box's user only."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    # The path of a socket is limited to 107 bytes, and the path of the box may be longer.
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{fd}/{SOCKET}")
    finally:
        os.close(fd)
    path = folder / SOCKET
    path.chmod(0o600)
    if owner is not None:
        os.chown(path, owner, owner)
    listener.listen(2 * CONNECTIONS)
    return listener


async def _connection(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> socket.socket:
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError:
            await asyncio.sleep(0.1)  # whet is out of descriptors: the caller waits until one is free
        else:
            return connection


async def _receive(connection: socket.socket) -> tuple[str, tuple[str, ...], bytes]:
    """Receive the name, the arguments and the standard input of a call."""
    head = await _exactly(connection, 8)
    words_size, stdin_size = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
    if words_size + stdin_size > LIMIT:
        raise Malformed
    words = await _exactly(connection, words_size)
    if not words.endswith(b"\0"):
        raise Malformed
    name, *argv = (os.fsdecode(word) for word in words[:-1].split(b"\0"))
    return name, tuple(argv), await _exactly(connection, stdin_size)


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        part = await loop.sock_recv(connection, min(size - len(data), 1 << 18))
        if not part:
            raise Malformed
        data += part
    return bytes(data)


async def _send(connection: socket.socket, answer: ToolAnswer) -> None:
    sizes = b"".join(len(stream).to_bytes(8, "big") for stream in (answer.stdout, answer.stderr))
    head = answer.exit_code.to_bytes(1, "big") + sizes
    await asyncio.get_running_loop().sock_sendall(connection, head + answer.stdout + answer.stderr)
