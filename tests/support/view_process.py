"""`whet view` as a process of its own, whose memory is measured and whose files can be limited."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from support.view_server import ServedView


@dataclass(frozen=True)
class ViewProcess:
    """A server, and its process."""

    view: ServedView
    process: subprocess.Popen[str]
    errors: Path
    """What it wrote to stderr."""

    def peak_memory(self) -> int:
        """The most bytes of memory that it has had so far."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) << 10

    def used_sec(self) -> float:
        """The seconds of computing that it has used so far, in all of its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def check_alive(self) -> None:
        """It answers, and has never had a defect."""
        assert self.view.client.get("/health").status_code == 200
        assert "Traceback" not in self.errors.read_text()


@contextmanager
def start_view(folder: Path, *runs: Path, largest_file: int | None = None) -> Iterator[ViewProcess]:
    """`whet view` of these runs until the end of the block. `folder` is for its cache and its messages.
    `largest_file`: no file that it writes can have more bytes, as on a disk that is full."""
    argv = [sys.executable, "-m", "whet", "view", *map(str, runs), "--no-open", "--port", "0"]
    cache = folder / "cache"
    temporary = folder / "tmp"
    temporary.mkdir()
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary), "XDG_DATA_HOME": str(folder)}
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, (folder / "errors").read_text()
            if largest_file is not None:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest_file, largest_file))
            with httpx2.Client(base_url=url.partition("/?")[0], timeout=60) as client:
                client.get(url, follow_redirects=True)
                yield ViewProcess(ServedView(url, client), process, folder / "errors")
        finally:
            process.terminate()
