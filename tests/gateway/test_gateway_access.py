"""Who may call the gateway, what it answers at which address, and what it keeps to itself."""

import asyncio
import re
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import UNARY, World, answer_unary, session_for, world
from whet.errors import UserError
from whet.exchange import CallError
from whet.gateway import Model

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (CHAT, {"Authorization": "Bearer {secret}"}),
        (CHAT, {"Authorization": "bearer {secret}"}),
        (CHAT, {"x-api-key": "{secret}"}),
        (CHAT, {"x-goog-api-key": "{secret}"}),
        (CHAT + "?key={secret}", {}),
        ("/s/{secret}" + CHAT, {}),
        ("/s/{secret}" + CHAT, {"Authorization": "Bearer {secret}"}),
        ("/s/{secret}" + CHAT, {"Authorization": "Bearer "}),
        ("/s/{secret}/chat/completions", {}),
        ("/chat/completions", {"x-api-key": "{secret}"}),
        ("/v1/v1/chat/completions", {"x-api-key": "{secret}"}),
    ],
)
async def test_the_secret_is_accepted_wherever_clients_put_it(path: str, headers: dict[str, str]) -> None:
    async with world(answer_unary) as w:
        secret = w.session.secret
        filled = {name: value.format(secret=secret) for name, value in headers.items()}
        async with w.post(path.format(secret=secret), headers=filled) as reply:
            assert await reply.json() == UNARY
        assert secret not in w.records.only.path
        assert w.records.only.path.split("?")[0].endswith("/chat/completions")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (CHAT, {}),
        (CHAT, {"Authorization": "Bearer wrong"}),
        (CHAT, {"Authorization": "Basic {secret}"}),
        (CHAT, {"Authorization": "Bearer wrong", "x-api-key": "{secret}"}),
        (CHAT, {"x-api-key": "{secret}x"}),
        (CHAT, {"x-api-key": "schlüssel"}),
        (CHAT + "?key=wrong", {}),
        ("/s/wrong" + CHAT, {}),
        ("/s/wrong" + CHAT, {"x-api-key": "{secret}"}),
        ("/s/{secret}" + CHAT, {"x-api-key": "wrong"}),
        ("/s/" + CHAT, {}),
        ("/v1/embeddings", {}),
    ],
)
async def test_any_key_that_is_not_the_secret_is_refused_unrecorded(path: str, headers: dict[str, str]) -> None:
    async def model(request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError("a refused call reached the model")

    async with world(model) as w:
        filled = {name: value.format(secret=w.session.secret) for name, value in headers.items()}
        async with w.post(path.format(secret=w.session.secret), headers=filled) as reply:
            assert reply.status == 401
            assert (await reply.json())["error"]["code"] == "invalid_api_key"
        assert w.session.totals.calls == 0
        assert not w.records.exchanges


async def test_a_session_does_not_take_the_secret_of_another() -> None:
    async with world(answer_unary) as w:
        other = w.gateway.open_session("rollout-2", w.session.model, w.records)
        other_url = await other.listen()
        headers = {"Authorization": f"Bearer {w.session.secret}"}
        async with w.http.post(other_url + CHAT, json={}, headers=headers) as reply:
            assert reply.status == 401
        async with w.post(headers={"x-api-key": other.secret}) as reply:
            assert reply.status == 401
        assert not w.records.exchanges


async def get(w: World, method: str, path: str, **options: Any) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {w.session.secret}"}
    async with w.http.request(method, w.url + path, headers=headers, **options) as reply:
        return reply.status, await reply.read()


async def test_only_the_presented_model_is_listed() -> None:
    async with world(answer_unary, upstream_name="org/tiny") as w:
        status, listing = await get(w, "GET", "/v1/models")
        assert status == 200
        assert listing.count(b'"id":"org/tiny"') == listing.count(b'"id"') == 1
        assert (await get(w, "GET", "/v1/models/org/tiny"))[0] == 200
        assert (await get(w, "GET", "/v1/models/gpt-9"))[0] == 404
        async with w.http.get(w.url + "/v1/models") as reply:
            assert reply.status == 401
        assert w.session.totals.calls == 0


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("HEAD", "/", 200),
        ("GET", "/", 200),
        ("OPTIONS", CHAT, 204),
        ("GET", CHAT, 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/responses/compact", 404),
        ("DELETE", "/v1/models/tiny", 404),
        ("GET", "/etc/passwd", 404),
        ("POST", "/v1/chat/completions/more", 404),
    ],
)
async def test_what_is_at_which_address(method: str, path: str, expected: int) -> None:
    async with world(answer_unary) as w:
        status, body = await get(w, method, path)
        assert status == expected
        assert (b'"error"' in body) == (expected == 404)
        # What goes nowhere is on record too; it is no call of a model.
        assert [exchange.error for exchange in w.records.exchanges] == [CallError.REJECTED] * (expected == 404)
        assert w.session.totals.calls == 0


async def raw(url: str, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    writer.write(sent)
    async with asyncio.timeout(10):
        received = await reader.read()
    writer.close()
    await writer.wait_closed()
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"not http at all\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nx: " + b"y" * (100 << 10) + b"\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: zwei\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\nConnection: close\r\n\r\n",
    ],
)
async def test_no_reply_tells_what_runs_here(sent: bytes) -> None:
    async with world(answer_unary) as w:
        received = await raw(w.url, sent)
    assert received.startswith(b"HTTP/1.")
    assert b"application/json" in received
    assert not re.search(rb"aiohttp|python|whet|html|traceback|/src/|\.py", received, re.IGNORECASE)


async def test_a_defect_of_the_gateway_is_logged_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(answer_unary) as w:

        def broken(*_: object) -> None:
            raise RuntimeError("in /a/secret/place.py")

        monkeypatch.setattr(w.session, "call", broken)
        async with w.post(headers={"x-api-key": w.session.secret, "Accept": "text/html"}) as reply:
            assert reply.status == 500
            assert "secret/place" not in await reply.text()
    assert "secret/place" in caplog.text


def test_the_provider_key_is_not_in_the_text_form_of_a_model() -> None:
    assert "sk-live" not in repr(Model(name="m", url="http://h", upstream_name="m", key="sk-live-1"))


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_an_address_may_end_in_v1(url: str) -> None:
    assert Model(name="m", url=url, upstream_name="m", key=None).address(CHAT) == "http://h:1/v1/chat/completions"


async def test_an_unknown_dialect_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"model 'small': key 'dialect' is 'chatt'; did you mean 'chat'"):
        async with session_for("http://127.0.0.1:1", dialect="chatt"):
            pass
