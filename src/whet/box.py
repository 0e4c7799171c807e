"""The contract of every sandbox: a kind of place to run commands, one open place, and a process in it."""

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from whet.tasks.task import WORKDIR, TaskLimits
from whet.workspace import Snapshot

UNTRUSTED = "whet-untrusted"
"""The program of a sealed box that runs the agent's work out of the judge's reach."""
SCRATCH = "WHET_SCRATCH"
"""Variable of the judge: a folder that it writes and that `whet-untrusted` shows to the work, read-only."""

OUTPUT_LIMIT = 1 << 20
"""How much of one stream of output is kept, half from its beginning and half from its end."""

Serve = Callable[[socket.socket], Awaitable[None]]
"""Takes a listening socket and answers what connects to it. The gateway's session has one."""


class SandboxError(Exception):
    """The sandbox failed to do what was requested; the rollout's score is missing."""


class EscapeError(SandboxError):
    """A path that leaves the box, by `..` or through a symbolic link."""


class RefusedVerdict(SandboxError):  # noqa: N818 - what it refuses is the point
    """A file in /logs/verifier that is not, or may not be, the judge's own."""


@dataclass(frozen=True, slots=True)
class Captured:
    """One stream of output: all of it, or its beginning and its end."""

    head: bytes
    tail: bytes
    total: int
    """How many bytes the process wrote."""

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
    """As a shell would give it: 128 + n when signal n ended it."""
    stdout: Captured
    stderr: Captured
    seconds: float
    timed_out: bool = False
    over_storage: bool = False
    """It was killed because the box had written more than it may."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call of a program that the task offers."""

    name: str
    argv: tuple[str, ...]
    """Without the program's name. Bytes that are no UTF-8 are in it as `os.fsdecode` gives them."""
    stdin: bytes
    started: float
    """Seconds since 1970, by the host's clock."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a call of a program prints, and how it ends."""

    stdout: bytes = b""
    exit_code: int = 0
    stderr: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.exit_code <= 255:
            raise ValueError(f"exit code {self.exit_code}; expected 0 to 255")


Answer = Callable[[ToolUse], Awaitable[ToolAnswer]]
"""Runs on the host, outside the agent's reach, for every call of a program."""


class Process(Protocol):
    """A command under way."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        ...

    def stdout(self) -> Captured:
        """What it has written so far."""
        ...

    def stderr(self) -> Captured: ...

    async def wait(self, timeout: float | None = None) -> Finished:
        """Wait for the end; at the time limit kill the whole tree."""
        ...

    async def kill(self) -> None:
        """Kill it and all that descends from it, and return when they are gone."""
        ...


class Box(Protocol):
    """One open place. Files persist in it until it is closed; no process outlives the command it came from."""

    workdir: str
    """The working directory, as commands in the box see it."""
    home: str
    python: str
    """A Python interpreter that commands in the box can run."""
    path: str
    """Where commands look for programs."""

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
        """Make a model port: processes started from now on reach `serve` at the returned http address."""
        ...

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        """A file by its path in the box; relative paths start at the working directory.

        FileNotFoundError when there is none; SandboxError when it is no plain file or larger than the limit.
        """
        ...

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None: ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a folder of the host, whole, into a folder of the box."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a folder of the box, whole, to a new folder of the host. Links that leave it are not followed."""
        ...

    async def mount(self, source: Path, target: str, omit: Sequence[str] = ()) -> None:
        """Show a copy of a folder of the host, read-only and without what is omitted, to commands started later."""
        ...

    def has_started_since(self, seconds: float) -> bool:
        """Whether a command that is older than this runs something that it started in these last seconds."""
        ...

    async def kill(self) -> None:
        """Kill every process. Whoever waits for one learns how it ended and what it had written."""
        ...

    async def show(self, source: Path, name: str) -> str:
        """Show a folder of the host as it is, read-only, to commands started later. Returns its path in the box.

        For programs, which are large and not secret; what an agent must not see of a folder needs `mount`.
        """
        ...

    async def offer(self, name: str, answer: Answer) -> None:
        """Put a program first on the PATH of commands started later; the host answers its every call.

        What it is called with is known to `answer` and cannot be changed in the box. It is given its standard input
        when that is a file, or a pipe that speaks within 2 seconds and ends; a terminal and a silent pipe count as
        empty. A call whose `answer` raises fails, and `seal` raises SandboxError: the agent was let down.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """What the working directory holds now, links not followed and the insides of `.git` left out."""
        ...

    async def seal(self, *, show_logs: bool = False) -> tuple[str, ...]:
        """End the agent's part: kill every process, close the model port, take back the programs on offer.

        Commands run from now on belong to the judge. They meet the agent's final files, a new home, and new, empty
        /logs, of which /logs/verifier is a mount of its own: no link and no move leads into it from elsewhere. The
        agent's own logs are not there, or read-only in their places with `show_logs`. `whet-untrusted` is on the
        PATH. Returns the names of what the agent had left in /logs/verifier.
        """
        ...

    async def read_verdict(self, name: str, limit: int = 1 << 20) -> bytes:
        """A file that the judge's commands wrote into /logs/verifier, read when all their processes are dead.

        FileNotFoundError when there is none. RefusedVerdict when it is not a regular file of the judge's user, with
        one link and written since the box was sealed.
        """
        ...

    async def close(self) -> None:
        """Kill every process and remove every file."""
        ...


class Sandbox(Protocol):
    """A kind of place to run commands."""

    name: str
    own_root: bool
    """Whether a box has its own file system root, so that /tests, /logs and /solution can be at their places."""

    async def check(self) -> None:
        """Raise UserError with what to do when this sandbox cannot work on this machine."""
        ...

    def open(self, limits: TaskLimits, workdir: str = WORKDIR) -> AbstractAsyncContextManager[Box]:
        """A new box; it is gone with all its processes and files when the context ends."""
        ...
