"""The options of `whet view`. Light, so that `--help` is quick."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from whet.runs.options import Options, as_tuple

PORT = 7878
"""The port that is tried first."""


class Embedding(StrEnum):
    """Programs that may show the pages in a frame."""

    VSCODE = "vscode"


class ViewOptions(Options):
    """What to show, where, and what readers may change."""

    runs: Annotated[tuple[Path, ...], BeforeValidator(as_tuple)] = (Path("runs"),)
    """Run folders, and folders of run folders."""
    write: bool = False
    """Let readers set labels and notes, and adopt or reject what `whet sleep` proposes."""
    author: str | None = None
    """Name under which labels are set (default: your user name)."""
    show_tests: bool = False
    """Show the tests of tasks and their output files too."""
    host: str = "127.0.0.1"
    """Address to listen on. Other than loopback needs `trusted_host`."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Port to listen on (default: 7878, or the next free one); 0 picks a free one."""
    trusted_host: tuple[str, ...] = ()
    """Names under which browsers reach the server, beside loopback's: HOST or HOST:PORT. Several: a,b."""
    root_path: str = ""
    """Path below which a proxy serves the pages, such as /whet."""
    socket: Path | None = None
    """Listen on this Unix socket, which only you can open, instead of a port."""
    embed: Embedding | None = None
    """Let this program show the pages in a frame: vscode."""
    sleep_store: Path | None = None
    """Folder of `whet sleep` (default: that of your user)."""
