"""The app of `whet view` at a free port, with a clock that the test sets."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.guarded_app import serve_app
from support.live_run import Clock
from whet.view.app import make_app
from whet.view.derive.traces import Traces
from whet.view.library import Library
from whet.view.options import ViewOptions
from whet.view.page import View

TOKEN = "t" * 43


@contextmanager
def serve_app_at(root: Path, clock: Clock) -> Iterator[str]:
    """The pages of the runs below a folder; the address of the server, without the token."""
    with Traces() as traces, socket.create_server(("127.0.0.1", 0)) as listener:
        view = View(ViewOptions(runs=(root,)), Library([root]), traces, author="ana", now=clock)
        port = listener.getsockname()[1]
        with serve_app(make_app(view, token=TOKEN, nonce="n0nce", port=port), listener):
            yield f"http://127.0.0.1:{port}"
