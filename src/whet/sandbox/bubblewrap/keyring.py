"""Starts the processes of a box with a separate session keyring.

Processes inherit the session keyring, so a box would hold the keys of the user who started whet. Joining a keyring
affects only the calling thread: each box has a thread that joins a new, empty one and starts all its processes.
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
"""The kernel has no keyrings, or a filter around whet refuses them to whet and its children."""


class Starter:
    """A thread that starts processes. It must live as long as they do: bwrap ends with the thread that started it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="whet-box")
        self._joined = False

    def spawn(
        self, argv: Sequence[str], *, stdin: IO[bytes], env: dict[str, str], pass_fds: Sequence[int]
    ) -> "subprocess.Popen[bytes]":
        """Start a program in its own session. Blocks as `spawn` does, so a cancellation cannot lose the process."""
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
        """End the thread. Call after every process is dead."""
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
