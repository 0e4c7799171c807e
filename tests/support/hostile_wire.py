"""Sends hostile bytes over sockets of its own, byte by byte as they are given, and reads what comes back."""

import asyncio
import re
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

READ_SEC = 2.0
"""How long a client waits for the end of what it reads."""
MOST_READ = 1 << 20
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Za-z' -]*\r\n")
_DEFECTS = (
    b'"code":"internal"',
    b"the server failed",
    b"Traceback",
    b"Internal Server Error",
    b"Internal server error",
)
"""What a server answers whose own code has failed."""


class Ending(StrEnum):
    """How a client ends."""

    READ = "read"
    """It reads what it gets, to the end."""
    HALF_CLOSE = "half close"
    """It says that it sends nothing more, and reads."""
    LEAVE = "leave"
    """It closes without having read."""
    RESET = "reset"
    """It resets the connection."""
    NEVER_READ = "never read"
    """It keeps its connection for a while and takes nothing."""
    HOLD = "hold"
    """It keeps its connection until all attacks are over."""


@dataclass(frozen=True)
class Attack:
    """What one connection sends."""

    kind: str
    pieces: tuple[bytes, ...]
    frames: tuple[bytes, ...] = ()
    """Sent when the connection has become a WebSocket."""
    ending: Ending = Ending.READ


@dataclass
class Tally:
    """What came of attacks."""

    sent: Counter[str] = field(default_factory=Counter)
    """By kind. A connection with its request counts as one, and every frame that was sent."""
    statuses: Counter[int] = field(default_factory=Counter)
    closes: Counter[int] = field(default_factory=Counter)
    """Codes with which the server closed WebSockets."""
    defects: list[str] = field(default_factory=list)
    """Attacks that made the server fail, and how."""


def request(
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    close: bool = True,
    length: int | None = -1,
) -> bytes:
    """The bytes of a request. `length` is its Content-Length: by default that of the body, None for none."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers)]
    if length is not None and (body or method in {"POST", "PUT"}):
        lines.append(f"Content-Length: {len(body)}")
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def handshake(path: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """The request that asks for a WebSocket. A header that is given replaces the usual one."""
    usual = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    usual["Sec-WebSocket-Key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    given = {name for name, _ in headers}
    kept = [(name, value) for name, value in usual.items() if name not in given]
    return request("GET", path, [*kept, *headers], b"", close=False)


def frame(
    code: int, payload: bytes, *, last: bool = True, masked: bool = True, reserved: int = 0, length: int | None = None
) -> bytes:
    """A frame of a client. Its mask is zero, so that large ones cost nothing to make."""
    size, mask = len(payload) if length is None else length, 0x80 * masked
    head = bytes([0x80 * last | reserved << 4 | code])
    if size < 126:
        head += bytes([mask | size])
    elif size < 1 << 16:
        head += bytes([mask | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", size)
    return head + bytes(4 * masked) + payload


def close_frame(code: int) -> bytes:
    return frame(8, struct.pack(">H", code))


async def attack_server(port: int, attacks: Iterable[Attack], tally: Tally, at_once: int = 16) -> None:
    """Send all attacks, some at the same time, and note what came of them. All sockets are closed at the end."""
    coming, held = iter(attacks), list[socket.socket]()

    async def work() -> None:
        for attack in coming:
            await _attack(port, attack, tally, held)

    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(work())
    for one in held:
        one.close()


async def _attack(port: int, attack: Attack, tally: Tally, held: list[socket.socket]) -> None:
    tally.sent[attack.kind] += 1
    opened = socket.socket()
    if attack.ending is Ending.NEVER_READ:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    opened.setblocking(False)
    got = bytearray()
    try:
        async with asyncio.timeout(READ_SEC):
            loop = asyncio.get_running_loop()
            await loop.sock_connect(opened, ("127.0.0.1", port))
            await _converse(opened, attack, got, tally)
    except (TimeoutError, OSError):
        pass
    if attack.ending is Ending.HOLD:
        held.append(opened)
    else:
        if attack.ending is Ending.RESET:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()
    _note(attack, bytes(got), tally)


async def _converse(opened: socket.socket, attack: Attack, got: bytearray, tally: Tally) -> None:
    loop = asyncio.get_running_loop()
    reads = attack.ending in {Ending.READ, Ending.HALF_CLOSE}
    # What is sent and what comes back must not wait for each other.
    reading = asyncio.ensure_future(_read(opened, got)) if reads and not attack.frames else None
    try:
        with suppress(ConnectionError):
            for piece in attack.pieces:
                await loop.sock_sendall(opened, piece)
                if len(attack.pieces) > 1:
                    await asyncio.sleep(0.002)
            if attack.frames and await _is_upgraded(opened, got):
                reading = asyncio.ensure_future(_read(opened, got)) if reads else None
                for one in attack.frames:
                    await loop.sock_sendall(opened, one)
                    tally.sent[attack.kind] += 1
            if attack.ending is Ending.HALF_CLOSE:
                opened.shutdown(socket.SHUT_WR)
        if reading is not None:
            await reading
        elif attack.ending is Ending.NEVER_READ:
            await asyncio.sleep(0.3)
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _is_upgraded(opened: socket.socket, got: bytearray) -> bool:
    loop = asyncio.get_running_loop()
    while b"\r\n\r\n" not in got:
        data = await loop.sock_recv(opened, 1)
        if not data:
            break
        got += data
    return got.startswith(b"HTTP/1.1 101")


async def _read(opened: socket.socket, got: bytearray) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(opened, 65536):
        if len(got) < MOST_READ:
            got += data


def _note(attack: Attack, got: bytes, tally: Tally) -> None:
    statuses = [int(one) for one in _STATUS.findall(got)]
    tally.statuses.update(statuses)
    failed = [str(status) for status in statuses if status >= 500]
    failed += [text.decode() for text in _DEFECTS if text in got]
    if attack.frames and statuses[:1] == [101]:
        code = _close_code(got.partition(b"\r\n\r\n")[2])
        if code is not None:
            tally.closes[code] += 1
        failed += ["closed with 1011"] if code == 1011 else []
    if failed:
        sent = b"".join(attack.pieces)[:600]
        tally.defects.append(f"{', '.join(failed)}: {attack.kind} {sent!r} {[one[:300] for one in attack.frames]}")


def _close_code(data: bytes) -> int | None:
    """The code of the server's close frame, if there is one."""
    place = 0
    while place + 2 <= len(data):
        code, size = data[place] & 0x0F, data[place + 1] & 0x7F
        place += 2
        if size == 126:
            size, place = int.from_bytes(data[place : place + 2]), place + 2
        elif size == 127:
            size, place = int.from_bytes(data[place : place + 8]), place + 8
        if code == 8 and size >= 2:
            return int.from_bytes(data[place : place + 2])
        place += size
    return None


def count_files(process: int) -> int:
    """The files and sockets that a process has open."""
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def resident_mb(process: int) -> float:
    """The memory of a process, in MB."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
