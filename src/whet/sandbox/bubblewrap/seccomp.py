"""The system call filter of a box: a classic BPF program that bwrap installs before it starts a command.

It refuses calls that no task needs and that reach beyond the namespaces of a box: the kernel's keyrings, socket
families that network namespaces do not isolate, new namespaces and mounts, io_uring, and calls for administrators.
Everything else is allowed, except calls that are newer than this list: those return ENOSYS, as on an older kernel.
ptrace and process_vm_* are allowed, for debuggers: the process namespace confines them, and the kernel applies the
filter after a tracer has changed a call.
"""

import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from errno import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT

from whet.errors import UserError

ALLOW = 0x7FFF0000
ERRNO = 0x00050000

LOAD = 0x20
JUMP_EQUAL = 0x15
JUMP_GREATER = 0x25
JUMP_ANY_BIT = 0x45
RETURN = 0x06

NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in the kernel's `struct seccomp_data`."""

NEWEST = 469
"""file_setattr of Linux 6.17. Numbers above it are unknown here; so is every number of the x32 ABI."""

NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
NEW_TIME_NAMESPACE = 0x80
"""Only for unshare: in clone this bit belongs to the signal that a child sends when it ends."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
INTERNET_PROTOCOLS = (0, 1, 6, 17, 58)
"""The family's default, ICMP, TCP, UDP and ICMPv6. Not SCTP, DCCP, L2TP and MPTCP; Go falls back to TCP."""
NETLINK_ROUTE = 0
"""Lists interfaces and addresses, for getifaddrs."""

TIOCSTI, TIOCLINUX, TIOCCONS = 0x5412, 0x541C, 0x541D
"""These requests put characters into a terminal's input, or take its output."""

PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)
"""Linux, 32 bits, old version numbers, no random addresses (debuggers), and the query for the current one."""

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor data that the filter needs."""

    audit: int
    """AUDIT_ARCH_...: system calls made in any other way, such as 32-bit ones, are refused."""
    column: int
    """Index of its numbers in the tables."""


MACHINES = {"x86_64": Machine(0xC000003E, 0), "aarch64": Machine(0xC00000B7, 1)}

CHECKED: dict[str, tuple[int | None, int | None]] = {
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "unshare": (272, 97),
    "personality": (135, 92),
}
"""Calls whose arguments decide."""

REFUSED: dict[str, tuple[int | None, int | None]] = {
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
}
"""These calls return EPERM."""

ABSENT: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_secret": (447, 447),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "modify_ldt": (154, None),
}
"""These calls return ENOSYS, so that runtimes and libraries fall back. A filter cannot read the flags of clone3."""


def filter_program(machine: str | None = None) -> bytes:
    """The filter for a processor, by default this one, as `bwrap --seccomp` reads it.

    >>> len(filter_program("x86_64")) % 8
    0
    """
    name = machine or platform.machine()
    if name not in MACHINES:
        raise UserError(
            f"sandbox 'bubblewrap' has no system call filter for '{name}' processors; "
            f"expected one of: {', '.join(MACHINES)}; sandbox 'local' runs without any isolation"
        )
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _program(MACHINES[name]))


def _program(machine: Machine) -> list[Instruction]:
    program = [
        _load(ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, machine.audit),
        _fail(ENOSYS),
        _load(NUMBER),
        (JUMP_GREATER, 0, 1, NEWEST),
        _fail(ENOSYS),
    ]
    for name, numbers in CHECKED.items():
        program += _when(numbers[machine.column], _check(name))
    for table, error in ((REFUSED, EPERM), (ABSENT, ENOSYS)):
        for numbers in table.values():
            program += _when(numbers[machine.column], [_fail(error)])
    return [*program, _allow()]


def _check(name: str) -> list[Instruction]:
    """Check the arguments of a call. Always ends with a verdict."""
    match name:
        case "ioctl":
            return _refuse(1, (TIOCSTI, TIOCLINUX, TIOCCONS), EPERM)
        case "clone":
            return _refuse_bits(0, NEW_NAMESPACES, EPERM)
        case "unshare":
            return _refuse_bits(0, NEW_NAMESPACES | NEW_TIME_NAMESPACE, EPERM)
        case "personality":
            return _permit(0, PERSONALITIES, EPERM)
        case _:
            return _check_socket()


def _check_socket() -> list[Instruction]:
    internet = _permit(2, INTERNET_PROTOCOLS, EPROTONOSUPPORT)
    return [
        _load_argument(0),
        *_when(AF_UNIX, [_allow()]),
        *_when(AF_INET, internet),
        *_when(AF_INET6, internet),
        *_when(AF_NETLINK, _permit(2, (NETLINK_ROUTE,), EPROTONOSUPPORT)),
        _fail(EAFNOSUPPORT),
    ]


def _permit(argument: int, values: Sequence[int], error: int) -> list[Instruction]:
    allowed = [step for value in values for step in _when(value, [_allow()])]
    return [_load_argument(argument), *allowed, _fail(error)]


def _refuse(argument: int, values: Sequence[int], error: int) -> list[Instruction]:
    refused = [step for value in values for step in _when(value, [_fail(error)])]
    return [_load_argument(argument), *refused, _allow()]


def _refuse_bits(argument: int, bits: int, error: int) -> list[Instruction]:
    return [_load_argument(argument), (JUMP_ANY_BIT, 0, 1, bits), _fail(error), _allow()]


def _when(value: int | None, steps: list[Instruction]) -> list[Instruction]:
    """Instructions that run if the loaded word has this value."""
    return [] if value is None else [(JUMP_EQUAL, 0, len(steps), value), *steps]


def _load(offset: int) -> Instruction:
    return LOAD, 0, 0, offset


def _load_argument(index: int) -> Instruction:
    # The low half: these arguments are int or unsigned int, so the kernel reads no more (both processors are
    # little-endian). For flags of clone and unshare, which are long, no bit of the upper half means a namespace.
    return _load(ARGUMENTS + 8 * index)


def _fail(error: int) -> Instruction:
    return RETURN, 0, 0, ERRNO | error


def _allow() -> Instruction:
    return RETURN, 0, 0, ALLOW
