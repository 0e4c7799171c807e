"""The servers that `make bench-view` measures: `whet view` in a process of its own, and one that sends plain files."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

TICK = 1 / os.sysconf("SC_CLK_TCK")
START_SEC = 60.0
TIMES = 60
"""Requests of which one figure is the mean: the system counts processor time in hundredths of a second."""
FILL = "etaoin shrdlu cmfwyp vbgkq "


@dataclass(frozen=True, slots=True)
class Measured:
    """A process, and the requests that are made to it."""

    process: "subprocess.Popen[str]"
    client: httpx2.Client

    def cpu_sec(self) -> float:
        """Its processor time, without that of its children."""
        return _cpu_sec(self.process.pid)

    def memory_mb(self) -> float:
        """Its resident memory."""
        return _memory_mb(self.process.pid)

    def _mean_cpu_ms(self, address: str, headers: dict[str, str], times: int) -> float:
        self.client.get(address, headers=headers).raise_for_status()
        began = self.cpu_sec()
        for _ in range(times):
            self.client.get(address, headers=headers)
        return 1000 * (self.cpu_sec() - began) / times


@dataclass(frozen=True, slots=True)
class Served(Measured):
    """`whet view`."""

    url: str
    """With the token."""

    @property
    def origin(self) -> str:
        return self.url.partition("/?")[0]

    def get(self, address: str, *, fragment: bool = False) -> bytes:
        """A page, or a part of one as htmx asks for it."""
        reply = self.client.get(address, headers=_headers(fragment))
        reply.raise_for_status()
        return reply.content

    def get_trace(self, run: str) -> bytes:
        """The trace of a run's only rollout, when it is derived."""
        for _ in range(100):
            page = self.get(f"/runs/{run}/rollouts/r0/trace?wait=1")
            if b"data-trace" in page:
                return page
        sys.exit(f"the trace of {run} was not derived")

    def time_ms(self, address: str) -> float:
        """How long a page takes."""
        began = time.perf_counter()
        self.get(address)
        return 1000 * (time.perf_counter() - began)

    def cpu_ms(self, address: str, *, fragment: bool = False, times: int = TIMES) -> float:
        """What a request costs the server."""
        return self._mean_cpu_ms(address, _headers(fragment), times)

    def assets(self) -> list[str]:
        """The static files that a page needs."""
        return sorted(set(re.findall(r'(?:src|href)="(/static/[^"]+)"', self.get("/").decode())))

    def worker_cpu_sec(self) -> float:
        """The processor time of the processes that it started."""
        return sum(map(_cpu_sec, self._children()))

    def worker_memory_mb(self) -> float:
        return sum(map(_memory_mb, self._children()))

    def _children(self) -> list[int]:
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            if task.name != str(pid)
            for child in (task / "children").read_text().split()
        ]


@dataclass(frozen=True, slots=True)
class PlainFiles(Measured):
    """A server of plain files, which are written when they are needed."""

    folder: Path
    origin: str
    written: set[int] = field(default_factory=set)

    def url(self, size: int) -> str:
        """The address of a page of this many bytes."""
        if size not in self.written:
            head = '<!doctype html><html lang="en"><title>plain</title><body><pre>'
            text = (FILL * (size // len(FILL) + 1))[: max(0, size - len(head))]
            (self.folder / f"{size}.html").write_text(head + text)
            self.written.add(size)
        return f"{self.origin}/{size}.html"

    def cpu_ms(self, size: int) -> float:
        """What a request for a file of this size costs the server."""
        return self._mean_cpu_ms(self.url(size), {}, TIMES)


def _headers(fragment: bool) -> dict[str, str]:
    return {"HX-Request": "true", "Accept-Encoding": "identity"} if fragment else {"Accept-Encoding": "identity"}


@contextmanager
def start_view(runs: Path, cache: Path) -> Iterator[Served]:
    """`whet view` of a folder with a cache of its own, until the context ends."""
    argv = [sys.executable, "-m", "whet", "view", str(runs), "--no-open", "--port", "0"]
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with _start(argv, env) as (process, url), httpx2.Client(timeout=120, follow_redirects=True) as client:
        client.base_url = url.partition("/?")[0]
        client.get(url).raise_for_status()
        yield Served(process, client, url)


@contextmanager
def serve_plain(folder: Path) -> Iterator[PlainFiles]:
    """A server of the files in a folder, of the same make as that of `whet view`."""
    folder.mkdir()
    argv = [sys.executable, __file__, str(folder)]
    with _start(argv, dict(os.environ)) as (process, url), httpx2.Client(timeout=60) as client:
        yield PlainFiles(process, client, folder, url)


@contextmanager
def _start(argv: list[str], env: dict[str, str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            sys.exit(f"did not start: {' '.join(argv)}")
        yield process, url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SEC)


def _cpu_sec(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Serve the files of a folder."""
    import socket

    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = Starlette(routes=[Mount("/", StaticFiles(directory=sys.argv[1]))])
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")).run([listener])


if __name__ == "__main__":
    main()
