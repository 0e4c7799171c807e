"""The gateway on its own: any client points at it, and its calls become a run folder."""

import asyncio
import gc
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway
from whet.gateway.metrics import Metrics, operator_server
from whet.gateway.prices import cost_of, price_for
from whet.rollout.result import Result, Spending, session_spending
from whet.runs.config import Config, model_config, model_secrets, never_called, open_model
from whet.runs.standalone.registry import RunningGateway, announce
from whet.runs.store.reply_cache import CacheUse, open_cache
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.scoring import Cause, Score
from whet.text.redact import Redactor, secrets_in
from whet.version import __version__

TASK = "gateway"
SHUTDOWN_SEC = 1.0


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """What is to be served, and where."""

    model: str
    out: Path
    port: int
    """0 for a free one."""
    metrics_port: int | None = None
    """Where the operator reads metrics; None for nowhere."""
    cache: CacheUse = CacheUse.OFF


class Watcher(Protocol):
    """Receives the events of a gateway."""

    def started(self, gateway: RunningGateway, metrics_url: str | None) -> None: ...

    def on(self, exchange: Exchange, cost: float | None) -> None:
        """An exchange is on record. Its cost is in dollars, None when it is not known."""
        ...

    def ended(self, spending: Spending) -> None: ...


async def stand_alone(
    request: GatewayRequest, config: Config, watcher: Watcher, env: Mapping[str, str] = os.environ
) -> None:
    """Serve one model on a port of this machine until cancelled, and record all calls."""
    declared = model_config(request.model, config, env)
    if request.cache is CacheUse.REPLAY_ONLY:
        declared = never_called(declared, env)
    redactor = Redactor([*model_secrets(request.model, declared, env), *secrets_in(env)])
    # Ports and models are checked first: a failure must not leave an empty run folder behind.
    operator = nullcontext() if request.metrics_port is None else _bind(request.metrics_port, "--metrics-port")
    with operator as operator_sock, _bind(request.port, "--port") as sock:
        async with (
            open_cache(request.cache, env) as cache,
            open_model(request.model, declared, env) as upstream,
            _new_run(request) as (writer, attempt),
            Gateway(redactor, cache=cache) as gateway,
        ):
            price = price_for(upstream)
            metrics = Metrics(price)

            async def record(exchange: Exchange) -> None:
                await writer.do(lambda store: store.add_exchange(attempt, exchange))
                metrics.count(exchange)
                watcher.on(exchange, cost_of(exchange, price))

            session = gateway.open_session(TASK, upstream, record)
            await session.serve(sock)
            port: int = sock.getsockname()[1]
            announcement = RunningGateway(_address(port), port, session.secret, upstream.upstream_name, upstream.auth)
            with announce(announcement, env):
                async with _operator_port(operator_sock, lambda: metrics.text(session.calls_in_flight)) as metrics_url:
                    # What is there now stays. To look at all of it again for garbage would hold calls up by 50 ms.
                    gc.collect()
                    gc.freeze()
                    watcher.started(announcement, metrics_url)
                    try:
                        await asyncio.get_running_loop().create_future()
                    finally:
                        await session.close()
                        spending = session_spending(session, upstream)
                        await writer.do(lambda store: _end_run(store, attempt, spending))
                        watcher.ended(spending)


@asynccontextmanager
async def _new_run(request: GatewayRequest) -> AsyncIterator[tuple[StoreWriter, int]]:
    """A run with one attempt, which is all that the clients do; its store, to be written to."""
    with Store.create(request.out) as store, store.atomic():
        store.set("version", __version__)
        store.add_tasks([TaskRow(TASK, "", TASK, "{}")])
        store.add_rollouts([RolloutRow(TASK, 0, TASK, TASK, request.model, None, 0)])
        attempt = store.start_attempt(TASK, time.time())
    async with StoreWriter(request.out) as writer:
        yield writer, attempt


def _end_run(store: Store, attempt: int, spending: Spending) -> None:
    """Store what was spent. There was no task, so there is no score."""
    score = Score.missing(Cause.INTERRUPTED, "calls of any clients; there was no task to score")
    result = Result(score=score, spending=spending).model_dump_json().encode()
    store.finish_attempt(attempt, result, value=None, cause=score.cause, final=False, ended=time.time())


@asynccontextmanager
async def _operator_port(sock: socket.socket | None, metrics: Callable[[], str]) -> AsyncIterator[str | None]:
    """Serve metrics at this socket for as long as this lasts, and give the address; None for not at all."""
    if sock is None:
        yield None
        return
    http = operator_server(metrics)
    server = await asyncio.get_running_loop().create_server(http, sock=sock)
    try:
        yield f"{_address(sock.getsockname()[1])}/metrics"
    finally:
        server.close()
        await http.shutdown(SHUTDOWN_SEC)


def _bind(port: int, option: str) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UserError(f"port {port}: {os.strerror(error.errno or 0)}; name another one with {option}") from error


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}"
