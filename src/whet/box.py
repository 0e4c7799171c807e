"""The interfaces of every sandbox: Sandbox opens boxes, Box is one open place, Process is a command in it."""

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from whet.tasks.task import WORKDIR, TaskLimits
from whet.workspace import Snapshot

UNTRUSTED = "whet-untrusted"
"""The program in a sealed box that runs the agent's work isolated from the judge."""
SCRATCH = "WHET_SCRATCH"
"""Environment variable of the judge: a folder that it writes and `whet-untrusted` shows to the work, read-only."""

OUTPUT_LIMIT = 1 << 20
"""Bytes that are kept of one output stream, half from its beginning and half from its end."""

Serve = Callable[[socket.socket], Awaitable[None]]
"""Takes a listening socket and answers its connections. The gateway's session provides one."""


class SandboxError(Exception):
    """The sandbox failed. The score of the rollout is missing."""


class EscapeError(SandboxError):
    """A path that leaves the box, by `..` or through a symbolic link."""


class RefusedVerdict(SandboxError):  # noqa: N818 - what it refuses is the point
    """A file in /logs/verifier was not, or may not have been, written by the judge."""


@dataclass(frozen=True, slots=True)
class Captured:
    """One output stream: all of it, or its beginning and its end."""

    head: bytes
    tail: bytes
    total: int
    """Number of bytes that the process wrote."""

    @property
    def dropped(self) -> int:
        return self.total - len(self.head) - len(self.tail)

    @property
    def data(self) -> bytes:
        gap = b"\n[... %d bytes left out ...]\n" % self.dropped if self.dropped else b""
        return self.head + gap + self.tail

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    exit_code: int
    """As a shell returns it: 128 + n if signal n ended the command."""
    stdout: Captured
    stderr: Captured
    seconds: float
    timed_out: bool = False
    over_storage: bool = False
    """The command was killed because the box exceeded its storage limit."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call of a program that the task offers."""

    name: str
    argv: tuple[str, ...]
    """Without the program's name. Bytes that are not UTF-8 are decoded as by `os.fsdecode`."""
    stdin: bytes
    started: float
    """Seconds since 1970 by the clock of the host."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Output and exit code of a program call."""

    stdout: bytes = b""
    exit_code: int = 0
    stderr: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.exit_code <= 255:
            raise ValueError(f"exit code {self.exit_code}; expected 0 to 255")


Answer = Callable[[ToolUse], Awaitable[ToolAnswer]]
"""Answers each call of a program. It runs on the host, where the agent cannot reach it."""


class Process(Protocol):
    """A running command."""

    @property
    def exit_code(self) -> int | None:
        """None while the command runs."""
        ...

    def stdout(self) -> Captured:
        """The output so far."""
        ...

    def stderr(self) -> Captured: ...

    async def wait(self, timeout: float | None = None) -> Finished:
        """Wait for the end. Kill the whole process tree at the time limit."""
        ...

    async def kill(self) -> None:
        """Kill the process and its descendants, and return when all are gone."""
        ...


class Box(Protocol):
    """One open place. Its files persist until it is closed; no process outlives the command that started it."""

    workdir: str
    """The working directory, as commands in the box see it."""
    home: str
    python: str
    """A Python interpreter that commands in the box can run."""
    path: str
    """The PATH of commands."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        output_limit: int = OUTPUT_LIMIT,
    ) -> Process: ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> Finished: ...

    async def connect(self, serve: Serve) -> str:
        """Open the model port: processes started from now on reach `serve` at the returned http address."""
        ...

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        """Read a file by its path in the box; relative paths start at the working directory.

        Raises FileNotFoundError, and SandboxError if it is not a regular file or is larger than the limit.
        """
        ...

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None: ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a whole folder of the host into a folder of the box."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a whole folder of the box to a new folder of the host. Links out of it are not followed."""
        ...

    async def mount(self, source: Path, target: str, omit: Sequence[str] = ()) -> None:
        """Show commands started later a read-only copy of a host folder, without the omitted paths."""
        ...

    def has_started_since(self, seconds: float) -> bool:
        """Whether a command older than `seconds` runs a process that it started within the last `seconds`."""
        ...

    async def kill(self) -> None:
        """Kill every process. Callers that wait for one get its exit code and its output."""
        ...

    async def protect(self, path: str) -> None:
        """Keep commands started later from changing a folder of the box, such as its working directory, until the
        box is sealed."""
        ...

    async def show(self, source: Path, name: str) -> str:
        """Show commands started later a host folder itself, read-only. Returns its path in the box.

        For programs, which are large and not secret. If part of the folder is secret, use `mount`.
        """
        ...

    async def offer(self, name: str, answer: Answer) -> None:
        """Put a program first on the PATH of commands started later; the host answers every call of it.

        `answer` gets the arguments as they were; the box cannot change them. It gets the standard input if that is
        a file or a pipe that ends. A terminal counts as empty, and so does a silent pipe that only callers of the
        program can write to.
        If `answer` raises, the call fails and `seal` raises SandboxError, because the agent is not to blame.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """Record the contents of the working directory. Links are not followed, and `.git` folders are not entered."""
        ...

    async def seal(self, *, show_logs: bool = False) -> tuple[str, ...]:
        """End the agent's phase: kill every process, close the model port, remove the offered programs.

        Commands run from now on belong to the judge. They see the agent's final files, a new home, and new, empty
        /logs. /logs/verifier is a separate mount, so no link or move leads into it from elsewhere. The agent's own
        logs are absent, or read-only in their places with `show_logs`. `whet-untrusted` is on the PATH. Returns
        the names of the entries that the agent had left in /logs/verifier.
        """
        ...

    async def read_verdict(self, name: str, limit: int = 1 << 20) -> bytes:
        """Read a file that the judge's commands wrote into /logs/verifier, after all their processes are dead.

        Raises FileNotFoundError, and RefusedVerdict unless it is a regular file of the judge's user with one link,
        written since the box was sealed.
        """
        ...

    async def close(self) -> None:
        """Kill every process and remove every file."""
        ...


class Sandbox(Protocol):
    """A kind of place to run commands."""

    name: str
    own_root: bool
    """Whether a box has its own file system root, so that /tests, /logs and /solution exist at these paths."""

    async def check(self) -> None:
        """Raise UserError, with a remedy, if this sandbox cannot work on this machine."""
        ...

    def open(self, limits: TaskLimits, workdir: str = WORKDIR) -> AbstractAsyncContextManager[Box]:
        """Open a new box. Its processes and files are removed when the context ends."""
        ...
