"""The HTTP server: clients that are slow, silent or too many are cut off, and others are served meanwhile."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import connect

from whet.errors import UserError
from whet.serve import server
from whet.serve.server import bind, serve_http

FOREVER = 20.0
"""Longer than anything here takes."""


async def _hello(_: Request) -> Response:
    return PlainTextResponse("hello")


async def _much(_: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)

    return StreamingResponse(chunks())


async def _echo(websocket: WebSocket) -> None:
    await websocket.accept()
    with suppress(WebSocketDisconnect):
        async for text in websocket.iter_text():
            for _ in range(2000):
                await websocket.send_text(text)


APP = Starlette(routes=[Route("/", _hello), Route("/much", _much), WebSocketRoute("/echo", _echo)])


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    with bind("127.0.0.1", 0) as listening:
        port = int(listening.getsockname()[1])
        async with serve_http(APP, listening):
            yield port


async def _is_cut_off(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection."""
    try:
        async with asyncio.timeout(FOREVER):
            while await reader.read(65536):
                pass
    except ConnectionError:
        pass
    return True


async def _get(port: int) -> str:
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{port}/")).text


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_request_whose_head_does_not_arrive_is_cut_off(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_SEC", 0.2)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await _is_cut_off(reader)
        assert await _get(port) == "hello"
        writer.close()


async def test_a_connection_is_kept_for_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_SEC", 0.2)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.3)  # longer than a head may take: it has not begun
        writer.close()


async def test_a_second_request_whose_head_does_not_arrive_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_SEC", 0.2)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"hello")
        writer.write(b"GET / HT")
        assert await _is_cut_off(reader)
        writer.close()


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED_SEC", 0.3)
    async with serving() as port:
        with socket.create_connection(("127.0.0.1", port)) as idle:
            idle.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(FOREVER):
                await loop.run_in_executor(None, _wait_for_reset, idle)
        assert await _get(port) == "hello"


def _wait_for_reset(idle: socket.socket) -> None:
    """Wait until the peer has cut the connection off, without reading what it sent."""
    poll = select.poll()
    poll.register(idle, select.POLLERR | select.POLLHUP)
    assert poll.poll(FOREVER * 1000)


async def test_a_socket_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED_SEC", 0.3)
    async with serving() as port, connect(f"ws://127.0.0.1:{port}/echo", compression=None) as client:
        await client.send("x" * 100_000)
        client.transport.pause_reading()
        async with asyncio.timeout(FOREVER):
            await asyncio.get_running_loop().run_in_executor(
                None, _wait_for_reset, client.transport.get_extra_info("socket")
            )
        client.transport.resume_reading()
        assert await _get(port) == "hello"


async def test_connections_beyond_the_most_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    async with serving() as port:
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await _is_cut_off(reader)
        writer.close()
        kept[0][1].close()
        await kept[0][1].wait_closed()
        assert await _get(port) == "hello"
        kept[1][1].close()


@pytest.mark.parametrize("sent", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000])
async def test_what_is_not_http_is_refused_with_400(sent: bytes) -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.read(100)).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_what_is_not_http_in_a_request_without_a_reply_body_is_no_failure_of_the_server() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert await _is_cut_off(reader)
        writer.close()
    assert failures == []


async def test_a_port_that_is_taken_is_named() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: Address already in use"):
            bind("127.0.0.1", port)


async def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(UserError, match=r"192\.0\.2\.1 port 1234: Cannot assign requested address"):
        bind("192.0.2.1", 1234)
