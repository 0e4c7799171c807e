"""`whet view`: runs, traces, skills and certificates in a browser; and `--view`, which shows a run while it runs."""

import atexit
import shutil
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, takes
from whet.cli.output import say
from whet.view.options import ViewOptions

if TYPE_CHECKING:
    from whet.view.export.site import Exported
    from whet.view.serving import Viewing

LAYOUT = Layout(arguments=("runs",))
NoOpen = Annotated[bool, typer.Option("--no-open", help="Print the address, but do not open a browser.")]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FOLDER|FILE",
        help="Write the pages into a new folder, or one rollout into a new .html file, and serve nothing.",
    ),
]
Rollout = Annotated[str | None, typer.Option(help="With --export FILE.html: the start of a rollout's id, or its task.")]
Labels = Annotated[bool, typer.Option("--labels", help="With --export: write labels and notes too.")]
WatchInBrowser = Annotated[
    bool, typer.Option("--view", help="Show the run in a browser while it runs, and until Ctrl-C.")
]


@takes(ViewOptions, LAYOUT)
def view(
    options: ViewOptions,
    no_open: NoOpen = False,
    export: Export = None,
    rollout: Rollout = None,
    labels: Labels = False,
) -> None:
    """Look at runs, traces, skills and certificates in a browser.

    \b
    whet view
    whet view runs/quiz --no-open
    whet view runs/quiz --export pages
    whet view runs/quiz --export fix.html --rollout fix-bookings
    """
    from whet import api

    if export is not None:
        _say_exported(api.export_pages(export, options=options, rollout=rollout, labels=labels))
        return
    api.run_view(options=options, watch=lambda viewing: _show(viewing, no_open=no_open))


def _show(viewing: "Viewing", *, no_open: bool) -> None:
    # On one line by itself, so that a program can read it.
    sys.stdout.write(f"{viewing.url}\n")
    sys.stdout.flush()
    say("Ctrl-C stops it. Anyone who has this address can read these runs.", err=True)
    if not no_open:
        open_browser(viewing.url)


def open_browser(url: str) -> None:
    """Open an address with its token in a browser. Other users can read the arguments of all programs, so the browser
    is given a file that only this user can read, and that leads to the address."""
    folder = Path(tempfile.mkdtemp(prefix="whet-view-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "open.html"
    file.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(url)}"><title>whet view</title>\n'
    )
    webbrowser.open(file.as_uri())


def _say_exported(done: "Exported") -> None:
    from whet.look.numbers import plural, size

    say(f"{done.folder}: {plural(done.pages, 'page', 'pages')}, {size(done.size)}")


@contextmanager
def view_beside(folder: Path, *, wanted: bool) -> Iterator[None]:
    """Show the run of a folder in a browser while it runs, if that is wanted; and after it until Ctrl-C, where somebody
    is there to press it."""
    if not wanted:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "whet", "view", str(folder), "--no-open"]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        say(f"watch it at {url}" if url else f"the pages cannot be shown; `whet view {folder}` says why", err=True)
        if url:
            open_browser(url)
        yield
        if url and sys.stdin.isatty():
            say("\nthe run has ended; Ctrl-C stops its pages", err=True)
            with suppress(KeyboardInterrupt):
                server.wait()
    finally:
        server.terminate()
        server.wait()
        with suppress(OSError):  # a run that did not begin leaves nothing
            folder.rmdir()
