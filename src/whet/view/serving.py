"""Open the view and answer until it is stopped."""

import asyncio
import contextlib
import getpass
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from uvicorn import Config, Server

from whet.errors import UserError
from whet.runs.config import project_config
from whet.view.app import make_app
from whet.view.derive.traces import Traces
from whet.view.library import Library
from whet.view.live import Watcher
from whet.view.options import PORT, ViewOptions
from whet.view.page import View

NEARBY = 20
"""How many ports above the usual one are tried."""
GOODBYE_SEC = 1
"""How long replies that are under way get when the server stops. Streams never end by themselves."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Viewing:
    """The server listens now."""

    url: str
    """With the token. Whoever has it can read everything."""
    write: bool


async def serve_view(options: ViewOptions, watch: Callable[[Viewing], None]) -> None:
    """Serve the pages until this is cancelled."""
    async with open_server(options) as (server, viewing):
        watch(viewing)
        await server


@asynccontextmanager
async def open_server(options: ViewOptions) -> AsyncIterator[tuple["asyncio.Task[None]", Viewing]]:
    """A server that answers while this is open."""
    _check(options)
    listening, token = _listen(options), secrets.token_hex(32)
    port = None if options.socket else listening.getsockname()[1]
    with Traces() as traces:
        author, labels = options.author or getpass.getuser(), project_config().view.labels
        view = View(options, Library(options.runs), traces, author, label_sets=labels)
        watcher = Watcher()
        app = make_app(view, token=token, nonce=secrets.token_hex(16), port=port, watcher=watcher)
        server = _QuietServer(
            Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=GOODBYE_SEC,
                server_header=False,
                date_header=False,
                ws="none",
            )
        )
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await server.listening.wait()
            yield task, Viewing(_address(options, port, token), options.write)
        finally:
            server.should_exit = True
            watcher.close()
            await asyncio.shield(task)
            if options.socket is not None:
                options.socket.unlink(missing_ok=True)


class _QuietServer(Server):
    """A server that leaves signals to whoever runs the event loop, and says when it listens."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def] # as uvicorn has it
        yield


def _check(options: ViewOptions) -> None:
    missing = [str(path) for path in options.runs if not path.is_dir()]
    if missing and "runs" in options.model_fields_set:
        raise UserError(f"`runs` is {missing[0]}; expected a run folder or a folder of run folders")
    if options.host not in LOOPBACK and not options.trusted_host:
        raise UserError(
            f"`host` is {options.host}, which others can reach; name the hosts that browsers use with `trusted_host`, "
            "or leave it and forward the port: ssh -L 7878:127.0.0.1:7878"
        )


def _listen(options: ViewOptions) -> socket.socket:
    if options.socket is not None:
        return _listen_unix(options.socket)
    problem: str | None = None
    wanted = [options.port] if options.port is not None else [*range(PORT, PORT + NEARBY), 0]
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    for port in wanted:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((options.host, port))
        except OSError as error:
            listening.close()
            problem = error.strerror
        else:
            return listening
    raise UserError(f"`port` is {wanted[0]} on {options.host}: {problem}; choose another")


def _listen_unix(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise UserError(f"`socket` is {path}: {error.strerror}") from error
    finally:
        os.umask(mask)
    return listening


def _address(options: ViewOptions, port: int | None, token: str) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    place = "localhost" if port is None else f"{host}:{port}"
    return f"http://{place}{options.root_path}/?token={token}"
