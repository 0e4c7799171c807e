"""What all boxes share whose files lie in a folder of the host: file access, running, sealing, the storage limit."""

import asyncio
import contextlib
import os
import posixpath
import resource
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from whet.box import OUTPUT_LIMIT, Answer, EscapeError, Finished, Process, SandboxError, Serve
from whet.sandbox.files import copy_tree, read_inside, write_inside
from whet.sandbox.folder import BoxFolder, remove_tree
from whet.sandbox.process import TreeProcess
from whet.sandbox.snapshot import snapshot_of
from whet.sandbox.storage import guard_storage
from whet.sandbox.tools import Tools
from whet.tasks.task import Limits
from whet.workspace import Snapshot

LOGS = ("agent", "verifier", "artifacts")


class HostBox(ABC):
    """A box in a folder. Its kinds differ in how a command is wrapped and in the paths that commands see."""

    def __init__(self, folder: BoxFolder, limits: Limits, places: Mapping[str, str], workdir: str, home: str) -> None:
        self.workdir = workdir
        self.home = home
        self._folder = folder
        self._limits = limits
        self._places = {path: folder.make(name) for path, name in places.items()}
        """Paths as commands see them -> folders of the host."""
        self._serve: Serve | None = None
        self._running: set[TreeProcess] = set()
        self._guard: asyncio.Task[None] | None = None
        self._sealed = False
        self._tools: Tools | None = None
        self._tools_path = ""
        """The folder of the programs on offer, as commands see it."""

    python: str
    path: str

    @abstractmethod
    async def _spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes, output_limit: int
    ) -> TreeProcess: ...

    @abstractmethod
    async def connect(self, serve: Serve) -> str: ...

    @abstractmethod
    async def mount(self, source: Path, target: str, omit: Sequence[str] = ()) -> None: ...

    @abstractmethod
    async def show(self, source: Path, name: str) -> str: ...

    @abstractmethod
    def _renew(self) -> tuple[str, ...]:
        """Give the judge a home and log folder of its own; the names that the agent left for the verifier."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        output_limit: int = OUTPUT_LIMIT,
    ) -> Process:
        env, cwd = env or {}, cwd or self.workdir
        _check_command(argv, env, cwd)
        process = await self._spawn(argv, env, cwd, stdin, output_limit)
        self._running.add(process)
        process.on_end(self._running.discard)
        if self._guard is None:
            # The judge may write as much again, whatever the agent has left.
            limit = (self._limits.storage_mb << 20) * (2 if self._sealed else 1)
            self._guard = asyncio.create_task(guard_storage(self._folder.path, limit, self._on_excess))
        return process

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> Finished:
        process = await self.start(argv, env=env, cwd=cwd, stdin=stdin, output_limit=output_limit)
        return await process.wait(timeout)

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        return read_inside(*self._host_path(path), limit)

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        write_inside(*self._host_path(path), data, mode, self._folder.owner)

    async def upload(self, source: Path, target: str) -> None:
        root, relative = self._host_path(target, folder=True)
        await asyncio.to_thread(copy_tree, source, root, self._folder.owner, below=relative)

    async def download(self, source: str, target: Path) -> None:
        root, relative = self._host_path(source, folder=True)
        target.mkdir()
        limit = self._limits.storage_mb << 20
        await asyncio.to_thread(copy_tree, root, target, None, inside=relative, limit=limit)

    def has_started_since(self, seconds: float) -> bool:
        return any(process.has_started_since(seconds) for process in self._running)

    async def kill(self) -> None:
        await asyncio.gather(*(process.kill() for process in set(self._running)))

    async def offer(self, name: str, answer: Answer) -> None:
        if self._sealed:
            raise SandboxError(f"the program '{name}' cannot be offered in a sealed box")
        if self._tools is None:
            self._tools = Tools(self._folder, self.python)
            self._tools_path = await self.show(self._tools.path, "of-the-task")
        self._tools.add(name, answer, self._tools_path)

    async def snapshot(self) -> Snapshot:
        try:
            return await asyncio.to_thread(snapshot_of, self._places[self.workdir])
        except OSError as error:
            raise SandboxError(f"the working directory could not be looked at: {error}") from error

    async def seal(self) -> tuple[str, ...]:
        await self._stop()
        self._serve = None
        self._sealed = True
        try:
            planted = self._renew()
        except OSError as error:
            raise SandboxError(f"the box could not be sealed: {error}") from error
        if self._tools is not None and self._tools.failure is not None:
            name, failure = self._tools.failure
            raise SandboxError(f"the program '{name}' of the task could not answer a call: {failure!r}") from failure
        return planted

    async def close(self) -> None:
        await self._stop()
        await asyncio.to_thread(remove_tree, self._folder.path)

    async def _stop(self) -> None:
        """End every process, and with them what serves them and the watch over what they write."""
        if self._tools is not None:
            await self._tools.close()  # first: an answer under way may start another process
        await self.kill()
        if self._guard is not None:
            self._guard.cancel()
            # A command of a local box can have removed the very folder that was watched.
            with contextlib.suppress(asyncio.CancelledError, FileNotFoundError):
                await self._guard
            self._guard = None

    async def _on_excess(self) -> None:
        for process in self._running:
            process.over_storage = True
        await self.kill()

    def _host_path(self, path: str, *, folder: bool = False) -> tuple[Path, str]:
        """The host folder that holds a path of the box, and the path relative to it."""
        absolute = posixpath.normpath(posixpath.join(self.workdir, path))
        for place in sorted(self._places, key=len, reverse=True):
            if absolute.startswith(place + "/") or (folder and absolute == place):
                return self._places[place], posixpath.relpath(absolute, place)
        raise EscapeError(f"{path} is not in a folder of the box that holds files ({', '.join(sorted(self._places))})")

    def _with_tools(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """A command's variables, with the task's programs found before all others. The judge has no use for them."""
        if self._tools is None or self._sealed:
            return env
        return {**env, "PATH": f"{self._tools_path}/bin:{env['PATH']}"}

    def _limit_argv(self) -> list[str]:
        """Wraps a command: limits that the kernel holds it to, and first in line when memory runs out."""
        size = at_most(resource.RLIMIT_FSIZE, self._limits.storage_mb << 20)
        # RLIMIT_DATA, not RLIMIT_AS: language runtimes reserve address space by the gigabyte and never touch it.
        memory = at_most(resource.RLIMIT_DATA, self._limits.memory_mb << 20)
        files = at_most(resource.RLIMIT_NOFILE, 65_536)
        # By its path: the command's own PATH may lead to another program of that name.
        prlimit = shutil.which("prlimit") or "prlimit"
        return [prlimit, f"--data={memory}", f"--fsize={size}", f"--nofile={files}", "--core=0", "--"]


def at_most(kind: int, wanted: int) -> int:
    """A limit that may be set: nobody without privileges can raise one above what whet itself was given."""
    own = resource.getrlimit(kind)[1]
    return wanted if own == resource.RLIM_INFINITY else min(wanted, own)


def _check_command(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    if not argv or not argv[0]:
        raise SandboxError("a command needs at least a program's name")
    for name in env:
        if not name or "=" in name:
            raise SandboxError(f"{name!a} cannot be the name of a variable")
    for word in (*argv, *env, *env.values(), cwd):
        try:
            unusable = b"\0" in os.fsencode(word)
        except UnicodeEncodeError:
            unusable = True
        if unusable:
            raise SandboxError(f"a command's words cannot hold NUL or half a character: {word[:80]!a}")


def set_aside(folder: BoxFolder, logs: Path, judge_logs: Path) -> tuple[str, ...]:
    """Move the agent's logs to where the judge finds them, all but the verifier's folder, which begins empty."""
    planted: tuple[str, ...] = ()
    logs.chmod(0o755)
    for name in LOGS:
        old = logs / name
        real = old.is_dir() and not old.is_symlink()
        if real:
            old.chmod(0o755)  # the agent may have closed it to us
        if name == "verifier":
            if real:
                planted = tuple(sorted(os.listdir(old)))  # noqa: PTH208 - names, not paths
            elif old.is_symlink() or old.exists():
                planted = (name,)
        elif real:
            old.rename(judge_logs / name)
            continue
        new = judge_logs / name
        new.mkdir()
        if folder.owner is not None:
            os.chown(new, folder.owner, folder.owner)
    return planted
