"""The default sandbox: bubblewrap, with separate namespaces and no network except the model port.

Each command gets fresh namespaces over the same files. Only files outlive a command: a daemon of the agent ends with
the agent, and the judge's commands never share a process or a network namespace with it.
"""

import asyncio
import contextlib
import json
import os
import posixpath
import resource
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from whet.box import Box, SandboxError, Serve
from whet.errors import UserError
from whet.sandbox.bubblewrap.keyring import Starter
from whet.sandbox.bubblewrap.seccomp import filter_program
from whet.sandbox.disk.folder import MARK, BoxFolder, box_folder, box_users, make_in_thread
from whet.sandbox.hostbox import HostBox, at_most
from whet.sandbox.process import ProcessEnd, TreeProcess, stdin_file
from whet.sandbox.view import PROGRAMS, View, hand_over
from whet.tasks.task import OPENENV_HOME, OPENENV_LOGS, OPENENV_TASK, OPENENV_WORKDIR, WORKDIR, TaskLimits

MODEL_PORT = 41_100
HOME = "/home/agent"
JUDGE_HOME = "/home/judge"
LAUNCHER = "/run/launcher.py"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

ETC = {
    "passwd": f"agent:x:1000:1000:agent:{HOME}:/bin/bash\n",
    "group": "agent:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
SEEN = {
    "home": HOME,
    "judge-home": JUDGE_HOME,
    "tmp": "/tmp",  # noqa: S108 - a path in the box
    "work-tmp": "/tmp",  # noqa: S108
    "logs": "/logs",
    "logs/verifier": "/logs/verifier",
    "scratch": "/run/scratch",
}
"""The folders of a box except the working directory, and the paths at which commands see them."""
OWN_FOLDERS = frozenset({"bin", "dev", "etc", "lib", "lib64", "logs", "proc", "run", "sbin", "tests", "usr"})
HIDDEN_PROC = ("cmdline", "key-users", "keys", "timer_list")
"""Files of /proc that reveal the host: its kernel command line, its keys, its timers."""
HOST_ETC = ("alternatives", "ca-certificates", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "ssl")


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Bubblewrap:
    """Opens boxes. Needs Linux with unprivileged user namespaces and the `bwrap` program."""

    name = "bubblewrap"
    own_root = True

    async def check(self) -> None:
        if sys.platform != "linux":
            raise UserError("sandbox 'bubblewrap' needs Linux; sandbox 'local' runs without any isolation")
        filter_program()
        packages = {"bwrap": "bubblewrap"} | dict.fromkeys(("prlimit", "setpriv", "choom"), "util-linux")
        for program, package in packages.items():
            if shutil.which(program) is None:
                raise UserError(
                    f"sandbox 'bubblewrap' needs the program '{program}'; install it: apt-get install {package}"
                )
        try:
            async with self.open(TaskLimits()) as box:
                done = await box.exec(["true"], timeout=30)
        except SandboxError as error:
            raise UserError(
                f"sandbox 'bubblewrap' does not work here: {error}; "
                "unprivileged user namespaces must be allowed (sysctl kernel.unprivileged_userns_clone=1, "
                "kernel.apparmor_restrict_unprivileged_userns=0), or use sandbox 'local', which isolates nothing"
            ) from error
        if done.exit_code != 0:
            raise UserError(f"sandbox 'bubblewrap' does not work here: {done.stderr.text.strip()}")

    @asynccontextmanager
    async def open(self, limits: TaskLimits, workdir: str = WORKDIR) -> AsyncIterator[Box]:
        async with box_folder(box_users()) as folder:
            box = await make_in_thread(BubblewrapBox, folder, limits, workdir)
            try:
                yield box
            finally:
                await asyncio.shield(box.close())


class BubblewrapBox(HostBox):
    path = PATH

    def __init__(self, folder: BoxFolder, limits: TaskLimits, workdir: str) -> None:
        inside = (f"{JUDGE_HOME}/", f"{OPENENV_LOGS}/", f"{OPENENV_TASK}/")
        if workdir in SEEN.values() or workdir.split("/")[1] in OWN_FOLDERS or f"{workdir}/".startswith(inside):
            raise SandboxError(f"working directory '{workdir}' is a place that the box needs for itself")
        self._paths = {**SEEN, "work": workdir}
        super().__init__(folder, limits)
        if workdir == OPENENV_WORKDIR:
            for name in ("", *(posixpath.basename(path) for path in (OPENENV_WORKDIR, OPENENV_TASK, OPENENV_LOGS))):
                folder.make(posixpath.join("user", name).rstrip("/"), folder.users.agent)
        self._root, self.python = _root_arguments(folder)
        self._filter = filter_program()
        self._starter = Starter()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._starter.close()

    def _path_in_box(self, name: str) -> str:
        return self._paths[name]

    def _show_log(self, name: str, folder: Path) -> None:
        self._view.shown[f"/logs/{name}"] = folder
        if OPENENV_LOGS in self._view.places:
            self._view.shown[f"{OPENENV_LOGS}/{name}"] = folder

    def _make_view(self, user: int | None, home: str, names: Sequence[str], before: View | None = None) -> View:
        view = super()._make_view(user, home, names, before)
        # Mounted like /logs itself, so nothing that the agent does leads elsewhere. Not inside the working directory,
        # where the agent may have put a link.
        agents = before is None
        if (self._paths["work"] == OPENENV_WORKDIR or not agents) and not view.sees(OPENENV_LOGS):
            logs = {path: folder for path, folder in view.places.items() if f"{path}/".startswith("/logs/")}
            view.places.update({f"{OPENENV_LOGS}{path.removeprefix('/logs')}": folder for path, folder in logs.items()})
        if self._paths["work"] == OPENENV_WORKDIR:
            view.places[OPENENV_HOME] = self._folder.path / "user"
            if not agents and home == "home":
                view.protected.add(OPENENV_HOME)
        return view

    async def connect(self, serve: Serve) -> str:
        self._serve = serve
        return f"http://127.0.0.1:{MODEL_PORT}"

    async def mount(self, source: Path, target: str, omit: Sequence[str] = ()) -> None:
        self._view.shown[target] = await asyncio.to_thread(self._folder.hold_copy, source, omit)

    async def show(self, source: Path, name: str) -> str:
        folder = source.resolve()
        if not folder.is_dir():
            raise SandboxError(f"{source} cannot be shown in a box: it is not a folder")
        if folder.is_relative_to("/usr"):
            return str(folder)  # visible as it is
        if self._view.user is not None:
            _check_in_reach(folder)
        self._view.shown[f"{PROGRAMS}/{name}"] = folder
        return f"{PROGRAMS}/{name}"

    async def protect(self, path: str) -> None:
        self._view.protected.add(path)

    def _hand_to_judge(self, show_logs: bool) -> tuple[str, ...]:
        planted = super()._hand_to_judge(show_logs)
        if self._paths["work"] == OPENENV_WORKDIR:
            hand_over([self._folder.path / "user"], self._folder.users.judge)
        # Programs without HOME in their environment look it up here; they must not find the agent's.
        passwd = self._folder.path / "support" / "judge-passwd"
        _write_public(passwd, ETC["passwd"].replace(HOME, JUDGE_HOME))
        self._view.shown["/etc/passwd"] = passwd
        return planted

    async def _spawn(
        self, view: View, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes, output_limit: int
    ) -> TreeProcess:
        with contextlib.ExitStack() as opened, contextlib.ExitStack() as when_it_fails:
            info, info_fd = os.pipe()
            opened.callback(os.close, info_fd)
            when_it_fails.callback(os.close, info)
            seccomp = opened.enter_context(stdin_file(self._filter))
            arguments = opened.enter_context(stdin_file(self._arguments(view, env, cwd, info_fd, seccomp.fileno())))
            fds = [info_fd, seccomp.fileno(), arguments.fileno()]
            command = [*self._limit_argv(), *argv]
            channel: socket.socket | None = None
            if self._serve is not None:
                channel, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                opened.enter_context(far_end)
                when_it_fails.enter_context(channel)
                fds.append(far_end.fileno())
                launcher = [self.python, "-I", "-S", LAUNCHER, str(far_end.fileno()), str(MODEL_PORT)]
                command = [*self._limit_argv(), *launcher, *argv]
            popen = self._starter.spawn(
                [*_as_box_user(view), "bwrap", "--args", str(arguments.fileno()), "--", *command],
                stdin=opened.enter_context(stdin_file(stdin)),
                # The mark is for `whet clean`: a bwrap can survive if whet dies while bwrap is starting.
                env={"PATH": PATH, MARK: self._folder.name},
                pass_fds=fds,
            )
            when_it_fails.pop_all()
        inside = Inside(info)
        process = TreeProcess(popen, inside.kill, output_limit)
        try:
            if not await inside.started():
                done = await process.wait()
                raise SandboxError(done.stderr.text.strip() or f"bwrap ended with exit code {done.exit_code}")
            if channel is not None and self._serve is not None:
                await _receive_listener(channel, self._serve, process)
        except BaseException:
            await asyncio.shield(_stop(inside, process))
            raise
        finally:
            if channel is not None:
                channel.close()
        return process

    def _arguments(self, view: View, env: Mapping[str, str], cwd: str, info_fd: int, filter_fd: int) -> bytes:
        """The options of bwrap, passed in a file so that paths and variables do not show in a process list."""
        options = [
            *("--die-with-parent", "--new-session", "--unshare-all", "--clearenv", "--info-fd", str(info_fd)),
            *("--uid", "1000", "--gid", "1000", "--hostname", "box", "--seccomp", str(filter_fd)),
            *self._root,
        ]
        for path, folder in sorted(view.places.items()):  # a folder before its contents
            options += ["--ro-bind" if path in view.protected else "--bind", str(folder), path]
        for path, folder in view.shown.items():
            options += ["--ro-bind", str(folder), path]
        for name, value in self._variables(view, {"USER": "agent", **env}).items():
            options += ["--setenv", name, value]
        options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", cwd]
        return b"\0".join(os.fsencode(option) for option in options) + b"\0"

    def _limit_argv(self) -> list[str]:
        # The number of processes is limited inside, where the kernel counts this user namespace alone.
        processes = at_most(resource.RLIMIT_NPROC, self._limits.processes)
        prlimit = shutil.which("prlimit", path=PATH) or "prlimit"
        return [prlimit, f"--nproc={processes}", *super()._limit_argv()[1:]]


class Inside:
    """The first process of a box's process namespace. When it ends, every process of the namespace has ended."""

    def __init__(self, info_fd: int) -> None:
        self._end = asyncio.create_task(_inner_end(info_fd))

    async def started(self) -> bool:
        return await asyncio.shield(self._end) is not None

    async def kill(self) -> None:
        end = await self._end
        if end is not None:
            await end.kill()


async def _stop(inside: Inside, process: TreeProcess) -> None:
    # Not before bwrap has reported the id: killed earlier, it would leave a child that waits for it forever.
    await inside.started()
    await process.kill()


def _as_box_user(view: View) -> list[str]:
    # When memory runs out, the kernel kills boxes before anything else, and the work before its judge.
    first_to_go = ["choom", "-n", "1000" if view.ends_first else "900", "--"]
    if view.user is None:
        return first_to_go
    return ["setpriv", "--reuid", str(view.user), "--regid", str(view.user), "--clear-groups", *first_to_go]


def _check_in_reach(folder: Path) -> None:
    """Boxes of root run as another user, who cannot enter folders that only root can."""
    for path in (folder, *folder.parents):
        if not path.stat().st_mode & 0o001:
            raise SandboxError(
                f"{folder} cannot be shown in a box: {path} is closed to the user that boxes of root run as; "
                f"open it (chmod o+x {path}) or move the folder"
            )


def _root_arguments(folder: BoxFolder) -> tuple[list[str], str]:
    """The read-only root: programs and libraries of the host, a generated /etc, and nothing else of the host."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    support = folder.path / "support"
    support.mkdir(mode=0o755)
    support.chmod(0o755)
    for name, text in ETC.items():
        _write_public(support / name, text)
        options += ["--ro-bind", str(support / name), f"/etc/{name}"]
    for name in HOST_ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    _write_public(support / "launcher.py", files("whet.sandbox.bubblewrap").joinpath("launcher.py").read_text())
    options += ["--ro-bind", str(support / "launcher.py"), LAUNCHER]
    options += ["--dev", "/dev", "--size", str(256 << 20), "--tmpfs", "/dev/shm", "--proc", "/proc"]  # noqa: S108
    _write_public(support / "empty", "")
    for name in HIDDEN_PROC:
        if Path("/proc", name).exists():
            options += ["--ro-bind", str(support / "empty"), f"/proc/{name}"]
    options += ["--symlink", "/tmp", "/var/tmp"]  # noqa: S108
    python = shutil.which("python3", path=PATH)
    if python is None:
        # The box has no Python on its PATH: show it the one that runs whet.
        options += ["--ro-bind", sys.base_prefix, sys.base_prefix]
        python = str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))
    return options, python


def _write_public(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)


async def _inner_end(info_fd: int) -> ProcessEnd | None:
    """Watch the first process in the namespace, whose id bwrap reports; None if bwrap failed before that."""
    status = bytearray()
    with os.fdopen(info_fd, "rb", buffering=0) as info:
        while b"}" not in status:
            await _readable(info)
            data = info.read(4096)
            if not data:
                return None
            status += data
    return ProcessEnd(json.loads(status)["child-pid"])


async def _readable(file: HasFileno) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)


async def _receive_listener(channel: socket.socket, serve: Serve, process: TreeProcess) -> None:
    """Receive the listening socket that the launcher bound in the namespace, and serve it."""
    await _readable(channel)
    _, fds, _, _ = socket.recv_fds(channel, 16, 1)
    if not fds:
        done = await process.wait()
        raise SandboxError(f"the model port could not be opened in the box: {done.stderr.text.strip()}")
    await serve(socket.socket(fileno=fds[0]))
