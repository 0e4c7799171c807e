"""The servers of the gateway benchmark: a fast model, a bare relay that records nothing, and whet's gateway.

python gateway_servers.py upstream | relay URL | whet URL FOLDER
"""

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from aiohttp import web

from gateway_process import Endpoints, stay
from gateway_wire import DIALECTS, REPLY_BYTES, Dialect, words
from whet.exchange import Exchange, Recorder
from whet.gateway import Gateway, Model
from whet.gateway.dialects import DIALECTS as SERVED
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.text.redact import Redactor

SESSIONS = 32
"""Of whet's gateway, for each dialect of the model."""
CHUNKS_PER_SEC = int(os.environ.get("BENCH_CHUNKS_PER_SEC", "50"))
BODY_LIMIT = 64 << 20
KEY = "sk-provider-0123456789"
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}

_STREAM = re.compile(rb'"stream": ?true')
_CHUNKS = re.compile(rb"chunks=(\d+)")


async def upstream() -> None:
    """Serve canned replies. Each piece of a stream carries the time at which it was sent."""
    unary = {one.path: one for one in DIALECTS.values()}
    streamed = {one.stream_path.partition("?")[0]: one for one in DIALECTS.values()}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if request.path not in unary or (request.path in streamed and _STREAM.search(body)):
            return await _stream(request, streamed[request.path], body)
        return web.json_response(unary[request.path].reply(words(REPLY_BYTES)))

    url = await _listen(answer)
    await stay({name: [(url, "")] for name in DIALECTS})


async def _stream(request: web.BaseRequest, dialect: Dialect, body: bytes) -> web.StreamResponse:
    asked = _CHUNKS.search(body)
    assert asked, "a streamed request says how many chunks it wants"
    chunks = int(asked[1])
    response = web.StreamResponse(headers=EVENTS)
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(dialect.opening)

    # Timers that write to the socket by themselves cost a fraction of a task that sleeps: the model must not be what
    # the servers under test wait for.
    loop = asyncio.get_running_loop()
    began, done, said = loop.time(), loop.create_future(), []
    before, after = dialect.delta("<text>").split(b"<text>")

    def send() -> None:
        if request.transport is None:
            done.cancel()
            return
        said.append(f"some words @{time.monotonic_ns()} ")
        event = before + said[-1].encode() + after
        request.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
        if len(said) < chunks:
            loop.call_at(began + len(said) / CHUNKS_PER_SEC, send)
        else:
            done.set_result(None)

    send()
    await done
    await response.write(dialect.closing("".join(said)))
    return response


async def relay(upstream_url: str) -> None:
    """Pass everything on, and record nothing: the least that a gateway on aiohttp can cost."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False) as http:

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            async with http.post(upstream_url + request.path_qs, data=body, headers=JSON) as reply:
                headers = {"Content-Type": reply.headers["Content-Type"]}
                if reply.content_type != EVENTS["Content-Type"]:
                    return web.Response(status=reply.status, body=await reply.read(), headers=headers)
                response = web.StreamResponse(status=reply.status, headers=headers)
                await response.prepare(request)
                async for chunk in reply.content.iter_any():
                    await response.write(chunk)
                return response

        url = await _listen(answer)
        await stay({name: [(url, "")] for name in DIALECTS})


async def whet(upstream_url: str, folder: str) -> None:
    """whet's gateway, which records everything in a run folder."""
    names = [f"{dialect}-{number}" for dialect in SERVED for number in range(SESSIONS)]
    with Store.create(Path(folder)) as store:
        store.add_tasks([TaskRow("task", "", "", "{}")])
        store.add_rollouts([RolloutRow(name, n, "task", "agent", "bench", None, n) for n, name in enumerate(names)])

    async with StoreWriter(Path(folder)) as writer, Gateway(Redactor([KEY])) as gateway:
        endpoints: Endpoints = {}
        for name in names:
            dialect = name.partition("-")[0]
            model = Model(
                name="bench", url=upstream_url, upstream_name="bench", key=KEY, dialect=dialect, concurrency=1000
            )
            session = gateway.open_session(name, model, await _recorder(writer, name))
            endpoints.setdefault(dialect, []).append((await session.listen(), session.secret))
        await stay(endpoints)


async def _recorder(writer: StoreWriter, rollout: str) -> Recorder:
    started = time.time()
    attempt = await writer.do(lambda store: store.start_attempt(rollout, started))

    async def record(exchange: Exchange) -> None:
        await writer.do(lambda store: store.add_exchange(attempt, exchange))

    return record


async def _listen(answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> str:
    """Serve on a free port of loopback; the address. It lasts as long as the event loop."""

    def request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_LIMIT)

    server = web.Server(answer, request_factory=request, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, backlog=1024)
    return f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


if __name__ == "__main__":
    servers: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"upstream": upstream, "relay": relay, "whet": whet}
    kind, *arguments = sys.argv[1:]
    # Whoever is cut off in the middle of a reply is no error here.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(servers[kind](*arguments))
