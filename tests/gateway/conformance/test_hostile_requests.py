"""Whatever is sent to a session is answered in dialect, tells nothing of the host or of others, and leaves nothing."""

import asyncio
import gc
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from support.conformance_world import DIALECTS, TRANSLATED_TO
from support.gateway_world import PATIENCE, Records, model
from support.hostile_requests import Hostile, hostile_request
from support.raw_wire import PATHS, asked, says_error
from support.waiting import until
from whet.exchange import CallError, Exchange
from whet.gateway import Gateway, Session
from whet.gateway import session as session_module
from whet.testing import Reply, Scene, Script, ScriptedModel
from whet.text.redact import Redactor

REQUESTS = 2500
AT_ONCE = 20
WARM = 20
"""So many rounds fill all caches."""
GROWTH = 40 << 20
"""Bytes by which the process may grow: caches fill up and memory falls to pieces, but nothing is kept of a request."""

UNCLAIMED = 4
"""So many calls that nobody waits for are kept here, so that it does not take long to make more."""
FLOOD = 16 << 20
"""Bytes of headers that nobody sends; a connection is cut off long before."""
OTHERS_WORDS = "what-the-other-session-talks-about"
_TELLS = re.compile(
    rb"traceback|\.py\b|aiohttp|msgspec|python|site-packages|/src/|/home|/root|/tmp|whet|127\.0\.0\.1|localhost",
    re.IGNORECASE,
)


@dataclass
class Target:
    session: Session
    url: str
    other: Session
    http: aiohttp.ClientSession
    upstream: ScriptedModel

    async def send(self, hostile: Hostile) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.session.secret}"} if hostile.with_secret else {}
        address = URL(self.url + hostile.path, encoded=True)
        options: Any = {"headers": {**headers, **hostile.headers}, "data": hostile.body, "allow_redirects": False}
        try:
            async with asyncio.timeout(PATIENCE), self.http.request(hostile.method, address, **options) as reply:
                return reply.status, await reply.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise AssertionError(f"no answer to {hostile!r:.3000}: {error!r}") from error


async def storable(exchange: Exchange) -> None:
    """A recorder that keeps nothing, but makes sure that everything could be kept."""
    json.dumps([exchange.path, exchange.request_headers, exchange.warnings]).encode()
    exchange.path.encode()


@asynccontextmanager
async def target(back: str, *, delay: float = 0) -> AsyncIterator[Target]:
    """A session whose model speaks `back`, and beside it another one that has secrets of its own."""
    script = Script(scenes=(Scene(replies=(Reply(text="Fine.", delay=delay),) * 9),))
    async with (
        ScriptedModel(script) as upstream,
        Gateway(Redactor([])) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False) as http,
    ):
        session = gateway.open_session("one", model(upstream.url, dialect=back, attempts=1), storable)
        other = gateway.open_session("other", model(upstream.url, dialect="chat", attempts=1), Records())
        path, body = asked("chat", stream=False)
        headers = {"x-api-key": other.secret}
        words = body | {"messages": [{"role": "user", "content": OTHERS_WORDS}]}
        async with http.post(await other.listen() + path, json=words, headers=headers) as reply:
            assert reply.status == 200
        yield Target(session, await session.listen(), other, http, upstream)


@pytest.mark.slow
@pytest.mark.parametrize("front", DIALECTS)
async def test_thousands_of_hostile_requests(front: str, caplog: pytest.LogCaptureFixture) -> None:
    tasks = len(asyncio.all_tasks())
    for back in (front, TRANSLATED_TO[front]):
        chance = random.Random(f"{front}-{back}")
        async with target(back) as t:
            memory = 0
            for number in range(REQUESTS // 2 // AT_ONCE):
                if number == WARM:
                    memory = _memory()
                requests = [hostile_request(front, chance, t.other.secret) for _ in range(AT_ONCE)]
                for hostile, (status, body) in zip(requests, await asyncio.gather(*map(t.send, requests)), strict=True):
                    if fault := _fault(front, hostile, status, body, t.other.secret):
                        pytest.fail(f"{hostile!r:.3000} was answered with {status} {body[:500]!r}: {fault}")
                t.upstream.requests.clear()
            assert _memory() - memory < GROWTH
            assert t.other.totals.calls == 1
            assert not t.session.open_calls.under_way
            assert all(call.delivered for call in t.session.open_calls.undelivered)
        await until(lambda: len(asyncio.all_tasks()) == tasks)
    assert not caplog.records


async def test_a_body_may_come_as_slowly_as_it_likes() -> None:
    async with target("chat") as t:
        path, body = asked("chat", stream=False)
        head, sent = _head(t, path, len(json.dumps(body))), json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", URL(t.url).port)
        for byte in (head + sent)[:-1]:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(sent[-1:])
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_bodies_that_never_end_hold_up_nobody() -> None:
    async with target("chat") as t, AsyncExitStack() as closing:
        path, body = asked("chat", stream=False)
        for _ in range(100):
            _, writer = await asyncio.open_connection("127.0.0.1", URL(t.url).port)
            closing.callback(writer.close)
            writer.write(_head(t, path, 1 << 20) + b"{")
        assert (await t.send(Hostile(path, json.dumps(body).encode())))[0] == 200
        async with asyncio.timeout(PATIENCE):
            await t.session.close()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"X-Flood: " + b"y" * 1000 + b"\r\n", id="many"),
        pytest.param(b"y" * 1000, id="without end"),
        pytest.param(b"X-Flood: y\r\n " + b"y" * 1000 + b"\r\n", id="folded"),
    ],
)
async def test_a_flood_of_headers_is_cut_off(line: bytes) -> None:
    async with target("chat") as t:
        reader, writer = await asyncio.open_connection("127.0.0.1", URL(t.url).port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Flood: ")
        sent = 0
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                while not writer.is_closing() and not reader.at_eof() and sent < FLOOD:
                    writer.write(line)
                    await writer.drain()
                    sent += len(line)
                assert sent < FLOOD, "no end to what is taken"
            answer = await _rest(reader)
        writer.close()
        assert not answer or answer.startswith(b"HTTP/1.1 400 ")
        assert not _TELLS.search(answer)
        path, body = asked("chat", stream=False)
        assert (await t.send(Hostile(path, json.dumps(body).encode())))[0] == 200


async def test_nothing_is_kept_for_ever_of_calls_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "UNCLAIMED", UNCLAIMED)
    async with target("chat", delay=0.03) as t:
        path, body = asked("chat", stream=False)
        filling = "x" * (2 << 20)
        await _hang_up_on(t, path, body | {"user": filling})
        before = _memory()
        for number in range(4 * UNCLAIMED):
            await _hang_up_on(t, path, body | {"user": f"{number} {filling}"})
        assert _memory() - before < 2 * UNCLAIMED * len(filling)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """What is left to be read, if the connection was not reset."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def _head(t: Target, path: str, length: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"x-api-key: {t.session.secret}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


async def _hang_up_on(t: Target, path: str, body: dict[str, Any]) -> None:
    """Send a request and leave as soon as the call is on its way."""
    sent, calls = json.dumps(body).encode(), t.session.totals.calls
    _, writer = await asyncio.open_connection("127.0.0.1", URL(t.url).port)
    writer.write(_head(t, path, len(sent)) + sent)
    await until(lambda: t.session.totals.calls > calls)
    writer.close()
    await until(lambda: not t.session.open_calls.under_way)
    assert t.session.totals.last_error is CallError.HUNG_UP
    t.upstream.requests.clear()


def _fault(front: str, hostile: Hostile, status: int, body: bytes, others_secret: str) -> str:
    """What is wrong with the answer to a request; empty if nothing is."""
    if others_secret.encode() in body or OTHERS_WORDS.encode() in body:
        return "it tells of another session"
    if hostile.intrudes:
        return "" if status == 401 and _in_dialect(front, hostile, status, body) else "an intruder is not told so"
    if status in {200, 204}:
        return ""
    if not 400 <= status < 500 or status == 401:
        return "such a status is for others"
    if _TELLS.search(body):
        return "it tells what runs here"
    return "" if _in_dialect(front, hostile, status, body) else "it is no error of the dialect"


def _in_dialect(front: str, hostile: Hostile, status: int, body: bytes) -> bool:
    # Who asks for nothing that is served may be anybody; and what is not HTTP is not looked at closely.
    plain = hostile.path == PATHS[front] and not hostile.headers
    return any(says_error(dialect, status, body) for dialect in ([front] if plain else DIALECTS))


def _memory() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
