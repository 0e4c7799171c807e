"""`whet serve` as a process of its own, which tests kill and start again at the same address."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.waiting import wait_until
from support.whet_program import Project

START_SEC = 180.0
"""A server needs a few seconds of computing to start, and other tests compute as well."""


class ServerProcess:
    """A server on one port and one folder, over as many starts as a test makes."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self._project = project
        self.port = _find_port()
        self._argv = [sys.executable, "-m", "whet", "serve", *arguments, "--port", str(self.port), "--json"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def out(self) -> Path:
        """What it printed since its last start."""
        return self._project.path / f"serve-{self.port}.log"

    @property
    def errors(self) -> Path:
        """What it wrote to stderr, over all starts."""
        return self._project.path / f"serve-{self.port}.err"

    def start(self) -> dict[str, Any]:
        """Start it; what it says when it listens."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}
        said = self.out
        with said.open("w") as out, self.errors.open("a") as errors:
            self._process = process = subprocess.Popen(
                self._argv,
                cwd=self._project.path,
                env={**environ, **self._project.environ()},
                stdout=out,
                stderr=errors,
            )
        wait_until(lambda: "\n" in said.read_text() or process.poll() is not None, START_SEC)
        assert process.poll() is None, f"the server did not start: {self.errors.read_text()}"
        first: dict[str, Any] = json.loads(said.read_text().partition("\n")[0])
        return first

    def kill(self) -> None:
        """End it without a word."""
        self._end("kill")

    def stop(self) -> None:
        """End it as an operator does."""
        self._end("terminate")

    def _end(self, how: str) -> None:
        if self._process is not None:
            getattr(self._process, how)()
            self._process.wait(60)
            self._process = None


def _find_port() -> int:
    """A free port that no connection is given for its own end while the server is down."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
