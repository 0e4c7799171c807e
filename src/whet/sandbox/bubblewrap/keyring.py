"""Starts the processes of a box with a session keyring of their own.

A session keyring passes from a process to what it starts, so a box would hold the keys of whoever started whet. Only
the calling thread changes its keyring: each box has a thread that joins a new, empty one and starts all its processes.
"""

import ctypes
import errno
import os
import platform
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from whet.box import SandboxError
from whet.sandbox.bubblewrap.seccomp import MACHINES, REFUSED
from whet.sandbox.process import spawn

JOIN_SESSION_KEYRING = 1
NO_KEYRINGS = frozenset({errno.ENOSYS, errno.EPERM})
"""The kernel has none, or a filter around whet itself refuses them to all that it starts."""


class Starter:
    """A thread that starts processes. It must live as long as they do: bwrap ends with the thread that started it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="whet-box")
        self._joined = False

    def spawn(
        self, argv: Sequence[str], *, stdin: IO[bytes], env: dict[str, str], pass_fds: Sequence[int]
    ) -> "subprocess.Popen[bytes]":
        """Start a program in a session of its own. Waits for it as `spawn` does, so no cancellation can lose it."""
        try:
            return self._thread.submit(self._spawn, argv, stdin, env, pass_fds).result()
        except RuntimeError as error:
            raise SandboxError(f"a box could not start a process: {error}") from error

    def _spawn(
        self, argv: Sequence[str], stdin: IO[bytes], env: dict[str, str], pass_fds: Sequence[int]
    ) -> "subprocess.Popen[bytes]":
        if not self._joined:
            join_new_keyring()
            self._joined = True
        return spawn(argv, stdin=stdin, env=env, pass_fds=pass_fds)

    def close(self) -> None:
        """Let the thread end. Call when every process is dead."""
        self._thread.shutdown(wait=False)


def join_new_keyring() -> None:
    """Give the calling thread a new, empty session keyring."""
    number = REFUSED["keyctl"][MACHINES[platform.machine()].column]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number or 0), ctypes.c_long(JOIN_SESSION_KEYRING), ctypes.c_void_p(None)) < 0:
        error = ctypes.get_errno()
        if error not in NO_KEYRINGS:
            raise SandboxError(
                f"a box could not get a session keyring of its own: {os.strerror(error)}; "
                "each box takes one of kernel.keys.maxkeys (sysctl)"
            )
