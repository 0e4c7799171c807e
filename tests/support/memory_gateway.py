"""A gateway in a process of its own, whose memory a test can read: sessions before one model, recorded to a store.

Arguments: the folder of the run, the model's address, its dialect, and how many sessions. It prints a line of JSON
with the address and secret of each session, and ends with its standard input.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.runs.run import run
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.text.redact import Redactor

__all__ = ["run"]
"""Imported, so that all is in memory that `whet run` has there."""


async def main(folder: Path, url: str, dialect: str, sessions: int) -> None:
    """Serve until the input ends."""
    model = Model(name="m", url=url, upstream_name="tiny", key="sk-provider-0123456789", dialect=dialect, attempts=1)
    with Store.create(folder) as store, store.atomic():
        store.add_tasks([TaskRow("t", "", "t", "{}")])
        store.add_rollouts([RolloutRow(f"r{n}", n, "t", "a", "m", None, n) for n in range(sessions)])
        attempts = [store.start_attempt(f"r{n}", time.time()) for n in range(sessions)]
    async with StoreWriter(folder) as writer, Gateway(Redactor([])) as gateway:
        opened = []
        for number, attempt in enumerate(attempts):

            async def record(exchange: Exchange, attempt: int = attempt) -> None:
                await writer.do(lambda store: store.add_exchange(attempt, exchange))

            session = gateway.open_session(f"r{number}", model, record)
            opened.append({"url": await session.listen(), "secret": session.secret})
        print(json.dumps(opened), flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
