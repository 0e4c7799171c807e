"""The kernel's keyrings: no key of the host is in a box, and no box leaves a note for another."""

import asyncio
import ctypes
import json
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EPERM

import pytest

from support.box_helpers import new_marker, run_python
from whet.box import Box, SandboxError
from whet.sandbox import sandbox_named
from whet.sandbox.bubblewrap import keyring, seccomp
from whet.sandbox.bubblewrap.keyring import join_new_keyring
from whet.sandbox.bubblewrap.seccomp import REFUSED
from whet.tasks.task import TaskLimits

ADD, KEYCTL = (REFUSED[name][0 if platform.machine() == "x86_64" else 1] or 0 for name in ("add_key", "keyctl"))
SESSION, USER = -3, -4
UNLINK = 9

HUNT = """
import ctypes, json, sys
add, keyctl, name, value = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode(), sys.argv[4].encode()
libc = ctypes.CDLL(None, use_errno=True)
long = ctypes.c_long
found = []
for ring in (-1, -2, -3, -4, -5):
    key = libc.syscall(long(keyctl), long(10), long(ring), b"user", name, long(0))  # search
    if key >= 0:
        room = ctypes.create_string_buffer(100)
        libc.syscall(long(keyctl), long(11), long(key), room, long(100))  # read
        found.append(room.value.decode())
    if value:
        libc.syscall(long(add), b"user", name, value, long(len(value)), long(ring))
error = 0 if libc.syscall(long(keyctl), long(0), long(-3), long(0)) >= 0 else ctypes.get_errno()
print(json.dumps({"found": found, "error": error, "seen": open("/proc/keys").read()}))
"""


def with_key(name: str, then: Callable[[], None]) -> None:
    """Do something in a thread that holds a key. The session keyring of the tests' own thread stays as it is."""

    def hold_key() -> None:
        join_new_keyring()
        value = b"KEY-OF-THE-HOST"
        keys = {ring: system_call(ADD, b"user", name.encode(), value, len(value), ring) for ring in (SESSION, USER)}
        try:
            assert min(keys.values()) > 0
            then()
        finally:
            system_call(KEYCTL, UNLINK, keys[USER], USER)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(hold_key).result()


def system_call(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return int(libc.syscall(ctypes.c_long(number), *given))


async def hunt(box: Box, name: str, value: str = "") -> dict[str, object]:
    seen: dict[str, object] = json.loads(await run_python(box, HUNT, str(ADD), str(KEYCTL), name, value))
    return seen


def look_with_a_key_planted(name: str) -> dict[str, object]:
    """What a box sees whose whet has a key in its session keyring."""
    seen: dict[str, object] = {}

    async def look() -> None:
        async with sandbox_named("bubblewrap").open(TaskLimits()) as box:
            seen.update(await hunt(box, name))

    with_key(name, lambda: asyncio.run(look()))
    return seen


def test_a_key_of_the_host_is_not_in_a_box() -> None:
    seen = look_with_a_key_planted(new_marker())
    assert seen == {"found": [], "error": EPERM, "seen": ""}


def test_without_the_filter_the_keyring_of_a_box_is_still_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "REFUSED", {})
    name = new_marker()
    seen = look_with_a_key_planted(name)
    assert seen == {"found": [], "error": 0, "seen": ""}


async def test_no_box_leaves_a_note_for_another_in_a_keyring() -> None:
    sandbox, name = sandbox_named("bubblewrap"), new_marker()
    async with sandbox.open(TaskLimits()) as one, sandbox.open(TaskLimits()) as other:
        await hunt(one, name, "a note")
        assert (await hunt(other, name))["found"] == []
        assert (await hunt(one, name))["found"] == []


async def test_without_the_filter_boxes_still_share_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "REFUSED", {})
    sandbox, name = sandbox_named("bubblewrap"), new_marker()
    async with sandbox.open(TaskLimits()) as one, sandbox.open(TaskLimits()) as other:
        await hunt(one, name, "a note")
        assert (await hunt(other, name))["found"] == []


async def test_a_box_without_a_keyring_of_its_own_starts_nothing(
    sealed_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room() -> None:
        raise SandboxError("a box could not get a session keyring of its own: Disk quota exceeded")

    monkeypatch.setattr(keyring, "join_new_keyring", no_room)
    for _ in range(2):
        with pytest.raises(SandboxError, match="session keyring"):
            await sealed_box.exec(["true"])
