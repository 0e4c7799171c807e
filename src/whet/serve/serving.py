"""The server from its options to its last reply: opens the service and all doors, and drains when it must stop."""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from whet.client.models import RolloutView
from whet.runs.config import Config
from whet.serve.access import LOCAL, read_tokens, require_tokens
from whet.serve.app import Doors, make_app
from whet.serve.mcp.http import open_mcp
from whet.serve.metrics import Metrics
from whet.serve.openenv.environment import OpenEnv, OpenEnvSettings
from whet.serve.opening import open_service
from whet.serve.options import ServeOptions
from whet.serve.rest.parts import Parts
from whet.serve.runs import Runs, open_runs
from whet.serve.server import bind, serve_http
from whet.serve.service import Service

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """The server listens."""

    url: str
    folder: Path
    tasks: int
    agents: tuple[str, ...]
    """The default first."""
    models: tuple[str, ...]
    skills: tuple[str, ...]
    tokens: int
    """How many tokens there are; without any, everybody on this machine may call."""
    waiting: int
    """Rollouts of an earlier start that are not done."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The server was told to stop, and waits for rollouts that run."""

    seconds: float
    running: int


ServeEvent = Serving | RolloutView | Draining
"""A rollout is an event when it is done."""
Watch = Callable[[ServeEvent], None]


@dataclass(frozen=True, slots=True)
class OpenServer:
    """A server that listens."""

    about: Serving
    service: Service
    runs: Runs
    stopping: asyncio.Event

    def stop(self) -> None:
        """End the replies that wait for something, because the connections are about to be closed."""
        self.stopping.set()

    async def drain(self, seconds: float) -> None:
        """Take nothing new, and wait so long for what runs."""
        async with asyncio.TaskGroup() as draining:
            draining.create_task(self.service.drain(seconds))
            draining.create_task(self.runs.drain(seconds))


@asynccontextmanager
async def open_server(
    options: ServeOptions, config: Config, watch: Watch, env: Mapping[str, str] = os.environ
) -> AsyncIterator[OpenServer]:
    """Serve for as long as this is open. UserError when an option is wrong, before anything is spent."""
    tokens = read_tokens(options.tokens, env)
    require_tokens(options.host, tokens)
    metrics, stopping = Metrics(), asyncio.Event()
    with bind(options.host, options.port) as listening:
        async with (
            open_service(options, config, env, callers=tokens.callers) as service,
            open_runs(service, options, config, tokens.callers) as runs,
            _report_ends(service, metrics, watch),
            open_mcp(service, runs, tokens.callers, stopping) as mcp,
            metrics.watch_loop(),
        ):
            settings = OpenEnvSettings(options.max_sessions, options.session_idle_sec, options.done_after_rollout)
            openenv = OpenEnv(service, settings, env, stopping)
            doors = Doors(Parts(service, runs, stopping), openenv, mcp, options.mode)
            metrics.look_at(service.counts, lambda: len(openenv.sessions))
            async with openenv.running(), serve_http(make_app(doors, tokens, metrics), listening):
                about = await _describe(service, _url(listening), options, len(tokens.callers) if tokens else 0)
                server = OpenServer(about, service, runs, stopping)
                try:
                    yield server
                finally:
                    server.stop()


@asynccontextmanager
async def _report_ends(service: Service, metrics: Metrics, watch: Watch) -> AsyncIterator[None]:
    """Count and report the rollouts that are done, for as long as this is open."""
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def report() -> None:
        while True:
            name = await ended.get()
            try:
                view = await service.ended(name)
                metrics.count(view)
                watch(view)
            except Exception:
                logger.exception("rollout %s cannot be reported", name)
            finally:
                ended.task_done()

    service.watch_ends(ended.put_nowait)
    reporting = asyncio.create_task(report())
    try:
        yield
        await ended.join()
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


async def serve_until_stopped(
    options: ServeOptions, config: Config, watch: Watch, env: Mapping[str, str] = os.environ
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain. A second one ends it at once."""
    stopped = asyncio.Event()
    async with open_server(options, config, watch, env) as server:
        with _on_signals(stopped):
            watch(server.about)
            await stopped.wait()
            stopped.clear()
            watch(Draining(options.drain_sec, server.service.view(LOCAL).running))
            await _first_done(server.drain(options.drain_sec), stopped)


async def _first_done(work: Coroutine[None, None, None], stopped: asyncio.Event) -> None:
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(stopped.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, waiting):
        task.cancel()
    await asyncio.gather(working, waiting, return_exceptions=True)


@contextmanager
def _on_signals(stopped: asyncio.Event) -> Iterator[None]:
    """Set the event when the process is told to stop. Only the main thread gets signals; elsewhere a cancelled task
    ends the server."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stopped.set)
    try:
        yield
    finally:
        for one in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError):
                loop.remove_signal_handler(one)


async def _describe(service: Service, url: str, options: ServeOptions, tokens: int) -> Serving:
    view = service.view(LOCAL)
    return Serving(
        url=url,
        folder=options.rollouts,
        tasks=len(await service.tasks(LOCAL)),
        agents=tuple(one.name for one in await service.agents(LOCAL)),
        models=tuple(one.name for one in await service.models(LOCAL)),
        skills=tuple(one.name for one in await service.skills(LOCAL)),
        tokens=tokens,
        waiting=view.queued + view.running,
    )


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
