"""The gateway on its own: any client points at it, and its calls become a run folder."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import whet
from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway, Session
from whet.redact import Redactor
from whet.runs.config import Config, model_config, model_secrets, open_model
from whet.runs.run import secrets_in
from whet.runs.schema import RolloutRow, TaskRow
from whet.runs.store import Store, StoreWriter

TASK = "gateway"


@dataclass(frozen=True, slots=True)
class Listening:
    """The gateway takes calls."""

    url: str
    secret: str
    model: str
    """What the model is called in requests."""
    folder: Path


async def stand_alone(
    model: str,
    config: Config,
    folder: Path,
    port: int,
    started: Callable[[Listening], None],
    watch: Callable[[Exchange], None],
    env: Mapping[str, str] = os.environ,
) -> None:
    """Serve one model on a port of this machine until cancelled; every exchange is recorded, then told to `watch`."""
    declared = model_config(model, config)
    redactor = Redactor([*model_secrets(model, declared, env), *secrets_in(env)])
    attempt = _new_run(folder, model)
    async with (
        open_model(model, declared, env) as upstream,
        StoreWriter(folder) as writer,
        Gateway(redactor) as gateway,
    ):

        async def record(exchange: Exchange) -> None:
            await writer.do(lambda store: store.add_exchange(attempt, exchange))
            watch(exchange)

        session = gateway.open_session(TASK, upstream, record)
        url = await _listen(session, port)
        started(Listening(url, session.secret, upstream.upstream_name, folder))
        await asyncio.get_running_loop().create_future()


def _new_run(folder: Path, model: str) -> int:
    """A run with one attempt, which never ends: there is no work to score, only calls."""
    with Store.create(folder) as store, store.atomic():
        store.set("version", whet.__version__)
        store.add_tasks([TaskRow(TASK, "", TASK, "{}")])
        store.add_rollouts([RolloutRow(TASK, 0, TASK, TASK, model, "", 0)])
        return store.start_attempt(TASK, time.time())


async def _listen(session: Session, port: int) -> str:
    try:
        sock = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UserError(f"port {port}: {os.strerror(error.errno or 0)}; name another one with --port") from error
    await session.serve(sock)
    return f"http://127.0.0.1:{sock.getsockname()[1]}"
