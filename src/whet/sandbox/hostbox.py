"""The base of boxes whose files are in a host folder: file access, commands, sealing, the storage limit.

Three parties use such a box, each with its own view: the agent; the judge after `seal`; and the agent's work when the
judge runs it. The judge gets the agent's folders themselves: no process of the agent is left to change them, so a copy
would not be safer.
"""

import asyncio
import contextlib
import os
import posixpath
import resource
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from whet.box import (
    OUTPUT_LIMIT,
    SCRATCH,
    UNTRUSTED,
    Answer,
    EscapeError,
    Finished,
    Process,
    SandboxError,
    Serve,
    ToolAnswer,
    ToolUse,
)
from whet.sandbox.disk.files import copy_tree, read_inside, write_inside
from whet.sandbox.disk.folder import BoxFolder, remove_tree
from whet.sandbox.disk.snapshot import snapshot_of
from whet.sandbox.disk.storage import DiskUsage, guard_storage, usage_of
from whet.sandbox.process import TreeProcess
from whet.sandbox.tools.server import Tools
from whet.sandbox.tools.untrusted import OUTPUT, CallRefused, UntrustedCall, answer_of, parse_call, refusal
from whet.sandbox.verdict import VerifierFolder
from whet.sandbox.view import PROGRAMS, View, hand_over, names_in, remove_links
from whet.tasks.task import TaskLimits
from whet.workspace import Snapshot

LOGS = ("agent", "verifier", "artifacts")


class MoreRoom(Exception):  # noqa: N818 - starts the watch anew
    """The work was killed because it wrote too much; the judge can still write."""


@dataclass(slots=True)
class JudgeBox:
    """The judge's phase of a box."""

    work: View
    """The view of commands that `whet-untrusted` runs."""
    verifier: VerifierFolder
    lent: tuple[Path, ...]
    """Folders that belong to the work while one of its commands runs, and otherwise to the judge."""
    tools: Tools
    calls: int = 0
    """Number of running commands of the work."""
    over_storage: bool = False
    """The work has exceeded its storage limit."""


class HostBox(ABC):
    """A box in a folder. Subclasses differ in how they wrap a command and in the paths that commands see."""

    def __init__(self, folder: BoxFolder, limits: TaskLimits) -> None:
        self._folder = folder
        self._limits = limits
        user = folder.users.agent
        for name in ("work", "home", "tmp", "logs", *(f"logs/{name}" for name in LOGS)):
            folder.make(name, user)
        self._view = self._make_view(user, "home", ("work", "home", "tmp", "logs"))
        """What commands of the box see: the agent's, and after `seal` the judge's."""
        self._storage = DiskUsage(limits.storage_mb << 20, limits.max_files)
        folder.hold_reserve(self._storage)
        self._room = self._storage
        """The storage limit of the whole box."""
        self._given = DiskUsage()
        """Usage before the agent started; after `seal`, the usage that the agent left."""
        self._serve: Serve | None = None
        self._running: set[TreeProcess] = set()
        self._work_running: set[TreeProcess] = set()
        self._guard: asyncio.Task[None] | None = None
        self._judging: JudgeBox | None = None
        self._lending = asyncio.Lock()
        self._tools: Tools | None = None
        self._tools_path = ""
        """The folder of the offered programs, as commands see it."""
        self.workdir, self.home = self._path_in_box("work"), self._path_in_box("home")

    python: str
    path: str

    @abstractmethod
    def _path_in_box(self, name: str) -> str:
        """The path at which commands see a folder of the box."""

    @abstractmethod
    def _show_log(self, name: str, folder: Path) -> None:
        """Show a log folder of the agent to the judge."""

    @abstractmethod
    async def _spawn(
        self, view: View, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes, output_limit: int
    ) -> TreeProcess: ...

    @abstractmethod
    async def connect(self, serve: Serve) -> str: ...

    @abstractmethod
    async def mount(self, source: Path, target: str, omit: Sequence[str] = ()) -> None: ...

    @abstractmethod
    async def show(self, source: Path, name: str) -> str: ...

    @abstractmethod
    async def protect(self, path: str) -> None: ...

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
        process = await self._spawn(self._view, argv, env, cwd, stdin, output_limit)
        self._watch(process, self._running)
        return process

    def _watch(self, process: TreeProcess, running: set[TreeProcess]) -> None:
        running.add(process)
        process.on_end(running.discard)
        if self._guard is None:
            self._guard = asyncio.create_task(self._guard_storage())

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
        done = await process.wait(timeout)
        if self._judging is not None:
            _raise_failure(self._judging.tools)
        return done

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        return read_inside(*self._host_path(path), limit)

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        write_inside(*self._host_path(path), data, mode, self._view.user)

    async def upload(self, source: Path, target: str) -> None:
        root, relative = self._host_path(target, folder=True)
        copy = asyncio.to_thread(
            copy_tree, source, root, self._view.user, below=relative, limit=self._room - self._given
        )
        self._given += await copy

    async def download(self, source: str, target: Path) -> None:
        root, relative = self._host_path(source, folder=True)
        target.mkdir()
        await asyncio.to_thread(copy_tree, root, target, None, inside=relative, limit=self._storage)

    def has_started_since(self, seconds: float) -> bool:
        return any(process.has_started_since(seconds) for process in self._running)

    async def kill(self) -> None:
        await asyncio.gather(*(process.kill() for process in self._running | self._work_running))

    async def offer(self, name: str, answer: Answer) -> None:
        if self._judging is not None:
            raise SandboxError(f"the program '{name}' cannot be offered in a sealed box")
        if self._tools is None:
            self._tools = Tools(self._folder, self.python, "tools", self._view.user)
            self._tools_path = await self.show(self._tools.path, "of-the-task")
            self._view.programs.append(f"{self._tools_path}/bin")
        self._tools.add(name, answer, self._tools_path)

    async def snapshot(self) -> Snapshot:
        try:
            return await asyncio.to_thread(snapshot_of, self._folder.path / "work")
        except OSError as error:
            raise SandboxError(f"the working directory could not be looked at: {error}") from error

    async def seal(self, *, show_logs: bool = False) -> tuple[str, ...]:
        await self._stop()
        self._serve = None
        try:
            planted = await asyncio.to_thread(self._hand_to_judge, show_logs)
        except OSError as error:
            raise SandboxError(f"the box could not be sealed: {error}") from error
        await self._offer_untrusted()
        _raise_failure(self._tools)
        return planted

    def _hand_to_judge(self, show_logs: bool) -> tuple[str, ...]:
        """Create the judge's folders and view. Returns the names that the agent left for the verifier."""
        folder, judge, root = self._folder, self._folder.users.judge, self._folder.path
        folder.release_reserve()
        (root / "logs").chmod(0o755)  # the agent may have removed our permission
        planted = names_in(root / "logs" / "verifier")
        old_logs = (root / "logs").rename(root / "agent-logs")
        for name in ("logs", *(f"logs/{name}" for name in LOGS), "judge-home", "scratch"):
            folder.make(name, judge)
        hand_over([root / name for name in ("work", "home", "tmp")], judge)
        remove_links(root / "tmp")
        self._given = usage_of(root)
        self._room = self._storage * 2  # the judge gets the full limit again, whatever the agent left
        self._view = self._make_view(
            judge, "judge-home", ("work", "home", "tmp", "logs", "logs/verifier", "judge-home", "scratch"), self._view
        )
        # Python 3.11 and later then import no module from the script's folder or the working directory.
        self._view.env.update({"PYTHONSAFEPATH": "1", SCRATCH: self._path_in_box("scratch")})
        for name in ("agent", "artifacts") if show_logs else ():
            if (old_logs / name).is_dir() and not (old_logs / name).is_symlink():
                hand_over([old_logs / name], judge)
                self._show_log(name, old_logs / name)
        return planted

    async def _offer_untrusted(self) -> None:
        """Put `whet-untrusted` on the judge's PATH."""
        folder, user = self._folder, self._folder.users.work
        folder.make("work-tmp", user)
        work = replace(self._make_view(user, "home", ("work", "home", "work-tmp"), self._view), ends_first=True)
        work.shown[self._path_in_box("scratch")] = folder.path / "scratch"
        work.env[SCRATCH] = self._path_in_box("scratch")
        tools = Tools(folder, self.python, "judge-tools", self._view.user)
        path = await self.show(tools.path, "of-the-judge")
        self._view.programs.insert(0, f"{path}/bin")
        tools.add(UNTRUSTED, self._answer_untrusted, path, attached=True)
        verifier = VerifierFolder.at(folder.path / "logs" / "verifier", self._view.user)
        lent = tuple(folder.path / name for name in ("work", "home", "scratch"))
        self._judging = JudgeBox(work, verifier, lent, tools)

    async def read_verdict(self, name: str, limit: int = 1 << 20) -> bytes:
        if self._judging is None:
            raise SandboxError("the box is not sealed, so nothing in it is the judge's")
        await self._judging.tools.hang_up()
        await self._until_given_back()
        await self.kill()
        return self._judging.verifier.read(name, limit)

    async def _answer_untrusted(self, use: ToolUse) -> ToolAnswer:
        """Run a command of the work for the judge."""
        judging = self._judging
        assert judging is not None
        try:
            call = parse_call(use.argv)
            if not judging.work.sees(call.cwd):
                raise CallRefused(f"the work does not see {call.cwd}; call it from {self.workdir} or ${SCRATCH}")
            if judging.over_storage:
                raise CallRefused(f"the work has written more than {self._limits.storage_mb} MB")
        except CallRefused as refused:
            return refusal(str(refused))
        async with self._lent_to_work(judging):
            return answer_of(await self._run_untrusted(call, use.stdin, judging))

    async def _run_untrusted(self, call: UntrustedCall, stdin: bytes, judging: JudgeBox) -> Finished:
        process = await self._spawn(judging.work, call.argv, call.env, call.cwd, stdin, OUTPUT)
        self._watch(process, self._work_running)
        flood = asyncio.create_task(process.wrote_too_much.wait())
        end = asyncio.create_task(process.wait(call.seconds))
        try:
            await asyncio.wait([flood, end], return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                await process.kill()
            return await end
        finally:
            flood.cancel()
            end.cancel()
            await asyncio.wait([flood, end])

    @asynccontextmanager
    async def _lent_to_work(self, judging: JudgeBox) -> AsyncIterator[None]:
        """Give the judge's folders to the work while a command of the work runs."""
        await self._change_lending(judging, 1)
        try:
            yield
        finally:
            await asyncio.shield(self._change_lending(judging, -1))

    async def _change_lending(self, judging: JudgeBox, change: int) -> None:
        async with self._lending:
            judging.calls += change
            if judging.calls == max(change, 0):  # the first one starts, or the last one has ended
                user = judging.work.user if change > 0 else self._view.user
                await asyncio.to_thread(hand_over, judging.lent, user)

    async def _until_given_back(self) -> None:
        """Wait until cancelled calls have returned the folders."""
        async with self._lending:
            pass

    async def close(self) -> None:
        await self._stop()
        await asyncio.to_thread(remove_tree, self._folder.path)

    async def _stop(self) -> None:
        """Kill every process, and end their servers and the storage watch."""
        for tools in (self._tools, self._judging.tools if self._judging else None):
            if tools is not None:
                await tools.close()  # first: a running answer may start another process
        await self._until_given_back()
        await self.kill()
        if self._guard is not None:
            self._guard.cancel()
            # A command of a local box can have removed the watched folder.
            with contextlib.suppress(asyncio.CancelledError, FileNotFoundError):
                await self._guard
            self._guard = None

    async def _guard_storage(self) -> None:
        while True:
            with contextlib.suppress(MoreRoom):
                await guard_storage(self._folder.path, self._room, self._given, self._on_excess, self._pids)

    def _pids(self) -> list[int]:
        return [pid for process in self._running | self._work_running for pid in process.pids()]

    async def _on_excess(self) -> None:
        judging, work = self._judging, set(self._work_running)
        if judging is not None and work and not judging.over_storage:
            # Files of the work must not end the judge, so the judge gets its own room again.
            judging.over_storage = True
            self._room += self._storage
            await asyncio.gather(*(process.kill() for process in work))
            raise MoreRoom
        for process in self._running | work:
            process.over_storage = True
        await self.kill()

    def _host_path(self, path: str, *, folder: bool = False) -> tuple[Path, str]:
        """The host folder that holds a path of the box, and the path relative to it."""
        absolute = posixpath.normpath(posixpath.join(self.workdir, path))
        places = self._view.places
        for place in sorted(places, key=len, reverse=True):
            if absolute.startswith(place + "/") or (folder and absolute == place):
                return places[place], posixpath.relpath(absolute, place)
        raise EscapeError(f"{path} is not in a folder of the box that holds files ({', '.join(sorted(places))})")

    def _make_view(self, user: int | None, home: str, names: Sequence[str], before: View | None = None) -> View:
        """Create a view of these folders of the box, with the host programs that were shown before."""
        tmp = next(name for name in names if name.endswith("tmp"))
        places = {self._path_in_box(name): self._folder.path / name for name in names}
        shown = {path: at for path, at in before.shown.items() if path.startswith(PROGRAMS)} if before else {}
        return View(user, self._path_in_box(home), self._path_in_box(tmp), places, shown)

    def _variables(self, view: View, env: Mapping[str, str]) -> dict[str, str]:
        """All variables of a command; its PATH begins with the offered programs."""
        base = {"PATH": self.path, "HOME": view.home, "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": view.tmp}
        variables = {**base, **view.env, **env}
        return {**variables, "PATH": ":".join([*view.programs, variables["PATH"]])}

    def _limit_argv(self) -> list[str]:
        """Wrap a command with resource limits, and make the kernel kill it first when memory runs out."""
        size = at_most(resource.RLIMIT_FSIZE, self._limits.storage_mb << 20)
        # RLIMIT_DATA, not RLIMIT_AS: language runtimes reserve gigabytes of address space and never use them.
        memory = at_most(resource.RLIMIT_DATA, self._limits.memory_mb << 20)
        files = at_most(resource.RLIMIT_NOFILE, 65_536)
        # By its path: the command's PATH may find another program of that name.
        prlimit = shutil.which("prlimit") or "prlimit"
        return [prlimit, f"--data={memory}", f"--fsize={size}", f"--nofile={files}", "--core=0", "--"]


def at_most(kind: int, wanted: int) -> int:
    """Cap a resource limit at whet's own: raising it further needs privileges."""
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


def _raise_failure(tools: Tools | None) -> None:
    if tools is not None and tools.failure is not None:
        name, failure = tools.failure
        raise SandboxError(f"the program '{name}' of the box could not answer a call: {failure!r}") from failure
