"""HTTP to models: what goes over the wire, and that aiohttp's connections still work as the client uses them."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiohttp import web

from support.gateway_world import PATIENCE, answer_unary, model, serving
from support.waiting import until
from whet.exchange import CallError
from whet.gateway.buffers.memory import GatewayMemory
from whet.gateway.upstream.client import ONE_WRITE, OutgoingCall, Upstream
from whet.gateway.upstream.reply import ReceivedReply, UpstreamError

PATH = "/v1/chat/completions"
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(speak: Speak) -> AsyncIterator[str]:
    """A server that speaks bytes."""
    speaking: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        speaking.add(asyncio.current_task())
        try:
            await speak(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in filter(None, speaking):
            task.cancel()
            await asyncio.wait([task])


@asynccontextmanager
async def opened() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    try:
        yield upstream
    finally:
        await upstream.close()


async def post(
    upstream: Upstream, url: str, body: bytes = b"{}", path: str = PATH, headers: dict[str, str] | None = None
) -> ReceivedReply:
    received = ReceivedReply(GatewayMemory().spool())
    call = OutgoingCall(model(url, attempts=1), path, headers or {}, body)
    async with asyncio.timeout(PATIENCE):
        with await upstream.send(call, received) as incoming:
            while await incoming.read():
                pass
    return received


async def test_a_request_is_plain_http_with_one_of_each_header() -> None:
    heads: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(2)
            writer.write(REPLY)

    async with raw_server(speak) as url, opened() as upstream:
        await post(upstream, url, path=f"{PATH}?alt=sse", headers={"User-Agent": "agent/1", "accept": "text/html"})
        await post(upstream, url)
    lines = heads[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    assert lines[0] == f"POST {PATH}?alt=sse HTTP/1.1"
    assert sorted(line.lower() for line in lines[1:]) == [
        "accept-encoding: identity",
        "accept: text/html",
        "content-length: 2",
        f"host: {url.removeprefix('http://')}",
        "user-agent: agent/1",
    ]
    assert b"accept: */*" in heads[1].lower(), "as every HTTP client sends it"


async def test_a_connection_is_used_again_after_a_whole_reply_only() -> None:
    connections: set[object] = set()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        connections.add(request.transport)
        return await answer_unary(request)

    async with serving(handler) as url, opened() as upstream:
        for _ in range(5):
            assert (await post(upstream, url)).status == 200
        assert len(connections) == 1
        received = ReceivedReply(GatewayMemory().spool())
        (await upstream.send(OutgoingCall(model(url), PATH, {}, b"{}"), received)).close()
        await post(upstream, url)
        assert len(connections) <= 2


@pytest.mark.parametrize("size", [ONE_WRITE, ONE_WRITE + 1, 5 * ONE_WRITE])
async def test_a_body_of_any_size_arrives_whole(size: int) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        body = bytearray()
        async for piece in request.content.iter_any():
            body += piece
        return web.Response(text=f"{len(body)} {set(body)}")

    async with serving(handler) as url, opened() as upstream:
        received = await post(upstream, url, b"x" * size)
        assert received.body.read().decode() == f"{size} {{{ord('x')}}}"


async def test_a_server_that_answers_before_it_has_read_the_body_is_heard() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await asyncio.sleep(PATIENCE)

    async with raw_server(speak) as url, opened() as upstream:
        received = await post(upstream, url, b"x" * (50 * ONE_WRITE))
        assert (received.status, received.body.read()) == (413, b"{}")


async def test_an_interim_reply_is_skipped() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + REPLY)

    async with raw_server(speak) as url, opened() as upstream:
        assert (await post(upstream, url)).status == 200


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", CallError.REFUSED),
        (b"no HTTP\r\n\r\n", CallError.MALFORMED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", CallError.CUT),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", CallError.CUT),
    ],
)
async def test_what_is_not_a_whole_reply_is_an_error(reply: bytes, error: CallError) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(reply)
        writer.close()

    async with raw_server(speak) as url, opened() as upstream:
        with pytest.raises(UpstreamError) as failure:
            await post(upstream, url)
        assert failure.value.error is error


async def test_a_header_with_a_line_break_is_never_sent() -> None:
    async with serving(answer_unary) as url, opened() as upstream:
        with pytest.raises(UpstreamError, match="refused"):
            await post(upstream, url, headers={"User-Agent": "a\r\nX-Evil: 1"})


async def test_credentials_in_the_address_are_sent_as_a_header() -> None:
    heads: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        heads.append(request.headers.get("Authorization", ""))
        return await answer_unary(request)

    async with serving(handler) as url, opened() as upstream:
        await post(upstream, re.sub("//", "//user:word@", url, count=1))
    assert heads == ["Basic dXNlcjp3b3Jk"]


async def test_all_slots_are_free_again_when_calls_were_cancelled() -> None:
    asked = 0

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked <= 3:
            await asyncio.Event().wait()
        return await answer_unary(request)

    def reached(number: int) -> bool:
        return asked == number

    async with serving(handler) as url, opened() as upstream:
        limited = model(url, concurrency=1, attempts=1)
        for number in range(1, 4):
            call = OutgoingCall(limited, PATH, {}, b"{}")
            sending = asyncio.ensure_future(upstream.send(call, ReceivedReply(GatewayMemory().spool())))
            await until(partial(reached, number))
            sending.cancel()
            await asyncio.wait([sending])
        received = ReceivedReply(GatewayMemory().spool())
        async with asyncio.timeout(PATIENCE):
            (await upstream.send(OutgoingCall(limited, PATH, {}, b"{}"), received)).close()
        assert received.status == 200
