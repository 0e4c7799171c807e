"""The system call filter: what the program says for both processors, and what calls answer in a real box."""

import json
import platform
import re
import struct
from errno import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, errorcode
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.box_helpers import run_python
from whet.box import Box
from whet.errors import UserError
from whet.sandbox import sandbox_named
from whet.sandbox.bubblewrap import seccomp as s

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@cache
def instructions(machine: str) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", s.filter_program(machine)))


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the program says of a call, as the kernel would compute it."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    arch = s.MACHINES[machine].audit if audit is None else audit
    data = struct.pack("<IIQ6Q", number, arch, 0, *[value & (2**64 - 1) for value in given])
    program = instructions(machine)
    at, word = 0, 0
    while True:
        code, when, otherwise, k = program[at]
        at += 1
        match code:
            case 0x20:
                word = int.from_bytes(data[k : k + 4], "little")
            case 0x06:
                return int(k)
            case 0x15:
                at += when if word == k else otherwise
            case 0x25:
                at += when if word > k else otherwise
            case 0x45:
                at += when if word & k else otherwise
            case _:
                raise AssertionError(f"instruction {code:#x}")


@pytest.fixture(params=list(s.MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def number(machine: str, name: str) -> int:
    found = {**s.CHECKED, **s.REFUSED, **s.ABSENT}[name][s.MACHINES[machine].column]
    assert found is not None
    return found


def test_numbers_are_those_of_the_kernel(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the kernel's headers are not installed")
    header = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text()))
    for name, numbers in {**s.CHECKED, **s.REFUSED, **s.ABSENT}.items():
        ours = numbers[s.MACHINES[machine].column]
        if name in header:
            assert ours == int(header[name]), name
        else:  # newer than the headers, or not on this processor
            assert ours is None or ours > 450, name


def test_every_listed_call_is_refused(machine: str) -> None:
    for table, error in ((s.REFUSED, EPERM), (s.ABSENT, ENOSYS)):
        for name, numbers in table.items():
            if numbers[s.MACHINES[machine].column] is not None:
                assert verdict(machine, number(machine, name)) == s.ERRNO | error, name


@given(number=st.integers(0, 2**32 - 1), arguments=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
@pytest.mark.parametrize("machine", list(s.MACHINES))
def test_calls_of_another_kind_and_unknown_ones_are_absent(machine: str, number: int, arguments: list[int]) -> None:
    for audit in (0x40000003, 0x40000028, 0, 0xC0000015):  # i386, 32-bit ARM, none, PowerPC
        assert verdict(machine, number, *arguments, audit=audit) == s.ERRNO | ENOSYS
    assert verdict(machine, s.NEWEST + 1 + number % (2**32 - s.NEWEST - 1), *arguments) == s.ERRNO | ENOSYS
    assert verdict(machine, number % 512 | 0x40000000, *arguments) == s.ERRNO | ENOSYS  # x32


@given(family=st.integers(0, 2**32 - 1), protocol=st.integers(0, 2**32 - 1), upper=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("machine", list(s.MACHINES))
def test_only_families_that_a_network_namespace_bounds_pass(
    machine: str, family: int, protocol: int, upper: int
) -> None:
    high = upper << 32  # the kernel takes the lower half of each argument, so a full upper half must change nothing
    for name in ("socket", "socketpair"):
        call = number(machine, name)
        said = verdict(machine, call, family | high, 1, protocol | high)
        if family not in {1, 2, 10, 16}:
            assert said == s.ERRNO | EAFNOSUPPORT
        assert verdict(machine, call, 1 | high, 1, protocol) == s.ALLOW
        for internet in (2, 10):
            expected = s.ALLOW if protocol in {0, 1, 6, 17, 58} else s.ERRNO | EPROTONOSUPPORT
            assert verdict(machine, call, internet | high, 1, protocol | high) == expected
        expected = s.ALLOW if protocol == 0 else s.ERRNO | EPROTONOSUPPORT
        assert verdict(machine, call, 16 | high, 3, protocol | high) == expected


@given(flags=st.integers(0, 2**64 - 1))
@pytest.mark.parametrize("machine", list(s.MACHINES))
def test_no_flag_makes_a_namespace(machine: str, flags: int) -> None:
    refused = s.ERRNO | EPERM
    assert verdict(machine, number(machine, "clone"), flags) == (refused if flags & s.NEW_NAMESPACES else s.ALLOW)
    assert verdict(machine, number(machine, "unshare"), flags) == (
        refused if flags & (s.NEW_NAMESPACES | 0x80) else s.ALLOW
    )


def test_threads_children_and_debuggers_pass(machine: str) -> None:
    thread, child = 0x3D0F00, 0x01200011
    assert verdict(machine, number(machine, "clone"), thread) == s.ALLOW
    assert verdict(machine, number(machine, "clone"), child) == s.ALLOW
    assert verdict(machine, number(machine, "unshare"), 0x600) == s.ALLOW  # files and fs
    assert verdict(machine, number(machine, "personality"), 0x40000) == s.ALLOW
    assert verdict(machine, number(machine, "personality"), 0x400000) == s.ERRNO | EPERM  # read implies exec
    assert verdict(machine, number(machine, "ioctl"), 0, 0x5413) == s.ALLOW  # size of the window
    assert verdict(machine, number(machine, "ioctl"), 0, 0x5412 | 1 << 32) == s.ERRNO | EPERM
    assert verdict(machine, {"x86_64": 101, "aarch64": 117}[machine]) == s.ALLOW  # ptrace


def test_another_processor_is_refused_with_one_line() -> None:
    with pytest.raises(UserError, match=r"no system call filter for 'riscv64' processors; expected one of: x86_64"):
        s.filter_program("riscv64")


CALLS = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def outcome(number, arguments):
    if os.fork() == 0:
        ctypes.set_errno(0)
        done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(one) for one in arguments])
        os._exit(ctypes.get_errno() if done < 0 else 0)
    return os.waitstatus_to_exitcode(os.wait()[1])
print(json.dumps([outcome(*call) for call in json.loads(sys.stdin.read())]))
"""


async def outcomes(box: Box, calls: list[tuple[int, list[int]]]) -> list[str]:
    """How system calls end in a box: the name of the error, or nothing."""
    printed = await run_python(box, CALLS, stdin=json.dumps(calls).encode())
    return [errorcode.get(code, "") for code in json.loads(printed)]


async def test_listed_calls_are_refused_in_a_box(sealed_box: Box) -> None:
    here = platform.machine()
    listed = {**s.REFUSED, **s.ABSENT}
    names = [name for name, numbers in listed.items() if numbers[s.MACHINES[here].column] is not None]
    # A bad address or descriptor: without the filter most of them would answer EFAULT, EBADF or EINVAL.
    seen = await outcomes(sealed_box, [(number(here, name), [-1, -1, -1, -1, -1]) for name in names])
    assert dict(zip(names, seen, strict=True)) == {name: "EPERM" if name in s.REFUSED else "ENOSYS" for name in names}


FAMILIES = {
    "vsock": 40,
    "alg": 38,
    "packet": 17,
    "bluetooth": 31,
    "can": 29,
    "tipc": 30,
    "rds": 21,
    "key": 15,
    "xdp": 44,
}


async def test_other_socket_families_are_refused_in_a_box(sealed_box: Box) -> None:
    call = number(platform.machine(), "socket")
    seen = await outcomes(sealed_box, [(call, [family, kind, 0]) for family in FAMILIES.values() for kind in (1, 2, 3)])
    assert set(seen) == {"EAFNOSUPPORT"}
    allowed = [(1, 1, 0), (2, 1, 0), (2, 2, 17), (10, 1, 6), (16, 3, 0)]
    assert await outcomes(sealed_box, [(call, list(one)) for one in allowed]) == [""] * len(allowed)
    refused = [(16, 3, 9), (16, 3, 15), (2, 1, 132), (2, 1, 262)]  # audit, uevents; SCTP, MPTCP
    assert await outcomes(sealed_box, [(call, list(one)) for one in refused]) == ["EPROTONOSUPPORT"] * len(refused)


async def test_no_namespace_can_be_made_in_a_box(sealed_box: Box) -> None:
    for kind in ("--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--time"):
        done = await sealed_box.exec(["unshare", kind, "true"], timeout=10)
        assert "Operation not permitted" in done.stderr.text, kind
    done = await sealed_box.exec(["nsenter", "--target", "1", "--net", "true"], timeout=10)
    assert done.exit_code != 0


X32 = """
import ctypes, mmap
def call(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
getpid_32 = b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3"        # mov eax, 20; int 0x80; ret
getpid_x32 = b"\\xb8\\x27\\0\\0\\x40\\x0f\\x05\\xc3"    # mov eax, 0x40000027; syscall; ret
getpid = b"\\xb8\\x27\\0\\0\\0\\x0f\\x05\\xc3"
print(call(getpid_32), call(getpid_x32), call(getpid) > 0)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the machine code is for x86_64")
async def test_calls_of_32_bits_are_absent_in_a_box(sealed_box: Box) -> None:
    assert await run_python(sealed_box, X32) == f"-{ENOSYS} -{ENOSYS} True\n"


STUFF = """
import fcntl, os, pty, termios
parent, child = pty.openpty()
for request in (termios.TIOCSTI, 0x541C, 0x541D):
    try:
        fcntl.ioctl(child, request, b"x")
        print("stuffed")
    except OSError as error:
        print(error.strerror)
print(len(termios.tcgetattr(child)))
"""


async def test_no_terminal_can_be_typed_into(sealed_box: Box) -> None:
    assert await run_python(sealed_box, STUFF) == "Operation not permitted\n" * 3 + "7\n"


async def test_a_debugger_sees_its_own_children(sealed_box: Box) -> None:
    # PTRACE_TRACEME, and a parent that reads the memory of its child.
    code = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.WIFSTOPPED(status))
libc.ptrace(7, child, 0, 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert await run_python(sealed_box, code) == "True\n7\n"


async def test_runtimes_work_under_the_filter(sealed_box: Box) -> None:
    code = """
import concurrent.futures, multiprocessing, socket, sqlite3, subprocess, threading
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    print(sum(pool.map(abs, range(-5, 5))))
print(subprocess.run(["echo", "child"], capture_output=True).stdout, socket.if_nameindex()[0][1])
"""
    assert await run_python(sealed_box, code) == "25\nb'child\\n' lo\n"


async def test_check_names_a_processor_that_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(UserError, match="'s390x'"):
        await sandbox_named("bubblewrap").check()
