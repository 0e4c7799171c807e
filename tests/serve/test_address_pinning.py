"""A name that points elsewhere after it was checked: the gateway does not follow it."""

import asyncio
import socket
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import answer_unary, model, session_for
from whet.gateway import Gateway
from whet.serve.addresses import AddressRules, place_model
from whet.text.redact import Redactor

NAME = "model.example"


@pytest.fixture
def rebinding(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """DNS that gives 127.0.0.2 once, and 127.0.0.3 from then on. What it was asked for."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
        if host != NAME:
            return real(host, *args, **options)
        asked.append(host)
        return real("127.0.0.2" if len(asked) == 1 else "127.0.0.3", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


async def test_calls_go_to_the_address_that_was_checked(rebinding: list[str]) -> None:
    reached: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        reached.append(request.transport.get_extra_info("sockname")[0])
        reply = await answer_unary(request)
        reply.force_close()  # the next call needs a new connection
        return reply

    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    with socket.create_server(("127.0.0.2", 0)) as checked, socket.socket() as inner:
        port = checked.getsockname()[1]
        inner.bind(("127.0.0.3", port))
        await web.SockSite(runner, checked).start()
        await web.SockSite(runner, inner).start()
        rules = AddressRules([f"{NAME}:{port}", f"127.0.0.2:{port}"])
        pinned = await rules.check(f"http://{NAME}:{port}/v1")
        placed = place_model(model("http://replaced"), [pinned])
        async with session_for("http://unused") as world, Gateway(Redactor([])) as gateway:
            session = gateway.open_session("rollout", placed, world.records)
            url = await session.listen()
            for turn in range(3):
                body = {"model": "tiny", "messages": [{"role": "user", "content": f"{turn}?"}]}
                headers = {"Authorization": f"Bearer {session.secret}"}
                async with world.http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as reply:
                    assert reply.status == 200
            await session.close()
        await runner.cleanup()
    assert reached == ["127.0.0.2"] * 3
    assert rebinding == [NAME]
    assert await asyncio.to_thread(socket.getaddrinfo, NAME, port) != []
    assert rebinding == [NAME, NAME], "the trap works"
