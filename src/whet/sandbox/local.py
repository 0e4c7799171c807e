"""The sandbox that isolates nothing: commands run as you, on your machine, in a temporary folder.

For machines without bubblewrap and for agents that you trust. It must be asked for by name.
"""

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from whet.box import Box, SandboxError, Serve
from whet.sandbox.folder import MARK, BoxFolder, box_folder, kill_marked
from whet.sandbox.hostbox import LOGS, HostBox, set_aside
from whet.sandbox.process import TreeProcess, spawn, stdin_file
from whet.tasks.task import WORKDIR, Limits


class Local:
    """Opens boxes that are mere folders."""

    name = "local"
    own_root = False

    async def check(self) -> None:
        """Works wherever whet does."""

    @asynccontextmanager
    async def open(self, limits: Limits, workdir: str = WORKDIR) -> AsyncIterator[Box]:  # noqa: ARG002 - a folder has no say in its path
        async with box_folder(None) as folder:
            box = LocalBox(folder, limits)
            try:
                yield box
            finally:
                await asyncio.shield(box.close())


class LocalBox(HostBox):
    def __init__(self, folder: BoxFolder, limits: Limits) -> None:
        self._at = {name: str(folder.path / name) for name in ("work", "home", "tmp", "logs")}
        places = {path: name for name, path in self._at.items()}
        super().__init__(folder, limits, places, self._at["work"], self._at["home"])
        for name in LOGS:
            folder.make(f"logs/{name}")
        self.python = sys.executable
        self.path = os.environ.get("PATH", os.defpath)
        self._numbers = itertools.count()

    async def connect(self, serve: Serve) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await serve(listener)
        return f"http://127.0.0.1:{port}"

    async def mount(self, source: Path, target: str, omit: Sequence[str] = ()) -> None:  # noqa: ARG002
        raise SandboxError(f"sandbox 'local' has no root of its own to show {source} at {target}")

    async def show(self, source: Path, name: str) -> str:  # noqa: ARG002 - all of the host is in sight
        return str(source)

    def _renew(self) -> tuple[str, ...]:
        logs = Path(self._at["logs"])
        old = logs.rename(logs.with_name("agent-logs"))
        planted = set_aside(self._folder, old, self._folder.make("logs"))
        home = self._folder.make("judge-home")
        self._places[str(home)] = home
        self._at["home"] = str(home)
        return planted

    async def _spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes, output_limit: int
    ) -> TreeProcess:
        mark = f"{self._folder.name}/{next(self._numbers)}/"
        base = {
            "PATH": self.path,
            "HOME": self._at["home"],
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": self._at["tmp"],
        }
        with stdin_file(stdin) as file:
            popen = spawn(
                [*self._limit_argv(), *argv], stdin=file, env={**self._with_tools({**base, **env}), MARK: mark}, cwd=cwd
            )

        async def kill_tree() -> None:
            await asyncio.to_thread(kill_marked, mark)

        return TreeProcess(popen, kill_tree, output_limit)
