"""The sandbox that isolates nothing: commands run as you, on your machine, in a temporary folder.

For machines without bubblewrap and for agents that you trust. It must be selected by name.
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
from whet.sandbox.disk.folder import MARK, BoxFolder, Users, box_folder, kill_marked, make_in_thread
from whet.sandbox.hostbox import HostBox
from whet.sandbox.process import TreeProcess, spawn, stdin_file
from whet.sandbox.view import View
from whet.tasks.task import WORKDIR, TaskLimits


class Local:
    """Opens boxes that are plain folders."""

    name = "local"
    own_root = False

    async def check(self) -> None:
        """Works wherever whet does."""

    @asynccontextmanager
    async def open(self, limits: TaskLimits, workdir: str = WORKDIR) -> AsyncIterator[Box]:  # noqa: ARG002 - the path of a local box is fixed
        async with box_folder(Users()) as folder:
            box = await make_in_thread(LocalBox, folder, limits)
            try:
                yield box
            finally:
                await asyncio.shield(box.close())


class LocalBox(HostBox):
    def __init__(self, folder: BoxFolder, limits: TaskLimits) -> None:
        super().__init__(folder, limits)
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

    async def show(self, source: Path, name: str) -> str:  # noqa: ARG002 - all of the host is visible
        return str(source)

    async def protect(self, path: str) -> None:
        raise SandboxError(f"sandbox 'local' cannot keep {path} from being changed")

    def _path_in_box(self, name: str) -> str:
        return str(self._folder.path / name)

    def _show_log(self, name: str, folder: Path) -> None:
        place = self._folder.path / "logs" / name
        place.rmdir()
        folder.rename(place)

    async def _spawn(
        self, view: View, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes, output_limit: int
    ) -> TreeProcess:
        mark = f"{self._folder.name}/{next(self._numbers)}/"
        with stdin_file(stdin) as file:
            variables = {**self._variables(view, env), MARK: mark}
            popen = spawn([*self._limit_argv(), *argv], stdin=file, env=variables, cwd=cwd)

        async def kill_tree() -> None:
            await asyncio.to_thread(kill_marked, mark)

        return TreeProcess(popen, kill_tree, output_limit)
