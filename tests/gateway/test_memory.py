"""Bodies and replies of a gigabyte, bombs, and many of them at once leave the gateway's memory bounded."""

import asyncio
import io
import json
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zstandard
from aiohttp import web

from support.gateway_world import UNARY, Handler, serving
from whet.runs.store.store import Store

GIGABYTE = 1 << 30
MOST_MB = 500
SESSIONS = 6
SCRIPT = Path(__file__).parents[1] / "support" / "memory_gateway.py"
CHAT = "/v1/chat/completions"


@dataclass
class Outside:
    """A gateway in another process, as agents and the operating system see it."""

    pid: int
    sessions: list[dict[str, str]]
    http: aiohttp.ClientSession

    async def post(self, number: int = 0, path: str = CHAT, encoding: str = "identity", **options: Any) -> int | None:
        """The status of a call; None when the connection was closed."""
        if isinstance(options.get("data"), bytes):
            options["data"] = io.BytesIO(options["data"])
        session = self.sessions[number % SESSIONS]
        headers = {"x-api-key": session["secret"], "Content-Encoding": encoding, "Content-Type": "application/json"}
        with suppress(aiohttp.ClientError, ConnectionError):
            async with self.http.post(session["url"] + path, headers=headers, **options) as reply:
                async for _ in reply.content.iter_any():
                    pass
                return reply.status
        return None

    def peak_mb(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
        return int(peak) / 1024


@asynccontextmanager
async def gateway_outside(folder: Path, model: Handler, dialect: str = "chat") -> AsyncIterator[Outside]:
    async with serving(model) as url, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SCRIPT), str(folder), url, dialect, str(SESSIONS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Outside(process.pid, json.loads(await process.stdout.readline()), http)
        finally:
            process.stdin.close()
            await process.wait()


def bomb(size: int, compressor: Any, fill: bytes = b" ") -> bytes:
    piece = fill * (1 << 20)
    return b"".join([*(compressor.compress(piece) for _ in range(size >> 20)), compressor.flush()])


def chat(content: str) -> bytes:
    return json.dumps(
        {"model": "tiny", "messages": [{"role": "user", "content": content}]}, ensure_ascii=False
    ).encode()


async def without_end(piece: bytes) -> AsyncIterator[bytes]:
    for _ in range(GIGABYTE // len(piece)):
        yield piece


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("dialect", ["chat", "messages"], ids=["straight", "translated"])
async def test_requests_leave_the_memory_bounded(tmp_path: Path, dialect: str) -> None:
    model = answer_chat if dialect == "chat" else answer_message
    gzipped = bomb(100 << 20, zlib.compressobj(wbits=31))
    refused: list[Callable[[int], Awaitable[int | None]]] = []
    async with gateway_outside(tmp_path / "run", model, dialect) as outside:
        for body, encoding in [
            (gzipped, "gzip"),
            (bomb(200 << 20, zstandard.ZstdCompressor().compressobj()), "zstd"),
            (b'{"messages": [' + b"{}," * (2 << 20) + b"{}]}", "identity"),
            (chat("x" * (13 << 20) + "🦊"), "identity"),
        ]:
            refused += [lambda n, b=body, e=encoding: outside.post(n, data=b, encoding=e)] * 3  # type: ignore[misc]
        refused += [lambda n: outside.post(n, data=without_end(b" " * (1 << 20)))] * 3
        statuses = await asyncio.gather(*(ask(n) for n, ask in enumerate(refused)))
        assert set(statuses) <= {413, None}

        large = [chat("x" * (30 << 20)), chat("x" * (11 << 20) + "🦊"), chat("é" * (10 << 20))]
        crowded = b'{"model": "tiny", "messages": [{"role": "user", "content": [%b]}]}' % b",".join(
            [b'{"type":"text","text":""}'] * (160 << 10)
        )
        bodies = [*large, crowded, large[0]] + [chat("y" * (3 << 20))] * 6
        statuses = await asyncio.gather(*(outside.post(n, data=body) for n, body in enumerate(bodies)))
        assert set(statuses) == {200}
        assert await outside.post(data=chat("2+2?")) == 200
        assert outside.peak_mb() < MOST_MB


async def answer_chat(request: web.BaseRequest) -> web.StreamResponse:
    async for _ in request.content.iter_any():
        pass
    return web.json_response(UNARY)


async def answer_message(request: web.BaseRequest) -> web.StreamResponse:
    async for _ in request.content.iter_any():
        pass
    return web.json_response(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "tiny",
            "content": [{"type": "text", "text": "four"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 9, "output_tokens": 2},
        }
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
async def test_replies_leave_the_memory_bounded(tmp_path: Path) -> None:
    whole = json.dumps(UNARY).encode()
    gzipped = bomb(300 << 20, zlib.compressobj(1, wbits=31))
    forms: dict[str, tuple[dict[str, str], Callable[[], AsyncIterator[bytes]]]] = {
        "json": ({}, lambda: without_end(b" " * (1 << 20))),
        "line": ({"Content-Type": "text/event-stream"}, lambda: without_end(b"data: " + b"x" * (1 << 20))),
        "bomb": ({"Content-Encoding": "gzip"}, lambda: once(gzipped)),
        "bomb in a stream": (
            {"Content-Encoding": "gzip", "Content-Type": "text/event-stream"},
            lambda: once(gzipped),
        ),
        "values": ({}, lambda: once(b'{"choices": [{"message": {"x": [' + b"{}," * (8 << 20) + b"{}]}}]}")),
        "good": ({}, lambda: once(whole.replace(b"four", b"x" * (30 << 20)))),
        "wide": ({}, lambda: once(whole.replace(b"four", b"x" * (11 << 20) + "🦊".encode()))),
    }

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        asked = json.loads(await request.read())["messages"][0]["content"]
        headers, body = forms[asked]
        response = web.StreamResponse(headers={"Content-Type": "application/json"} | headers)
        await response.prepare(request)
        async for piece in body():
            await response.write(piece)
        return response

    async with gateway_outside(tmp_path / "run", model) as outside:
        asked = [form for form in forms for _ in range(2)]
        await asyncio.gather(*(outside.post(n, data=chat(form)) for n, form in enumerate(asked)))
        assert outside.peak_mb() < MOST_MB
    with Store.open_read(tmp_path / "run") as store:
        recorded = [one for attempt in range(1, SESSIONS + 1) for one in store.exchanges(attempt)]
    errors = {json.loads(one.request)["messages"][0]["content"]: one.error for one in recorded}
    assert len(recorded) == len(asked)
    assert {form: error for form, error in errors.items() if error is None} == {"good": None, "wide": None}
    assert set(errors.values()) == {None, "too_large"}


async def once(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1 << 20):
        yield data[start : start + (1 << 20)]
