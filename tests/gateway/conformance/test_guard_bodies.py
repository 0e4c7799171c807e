"""Whatever a parser makes of the bytes that a model's server receives: it was never asked for what must not cross."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from support.conformance_world import DIALECTS, TRANSLATED_TO
from support.gateway_world import World, serving, session_for
from support.guard_bodies import LIMIT, MOST, TRICKS, asked_for, base, demands, readings
from support.raw_wire import PATHS, played, says_error
from whet.exchange import CallError
from whet.gateway.guards.screened import WORTH
from whet.testing import Reply

AT_ONCE = 20
PADDING = [{"role": "user", "content": "x" * 4000}] * (2 * WORTH // 4000)


@asynccontextmanager
async def listening(back: str, **options: Any) -> AsyncIterator[tuple[World, list[bytes]]]:
    """A session whose model takes every request, and what the model received."""
    received: list[bytes] = []

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        received.append(await request.read())
        assert request.headers["Content-Type"] == "application/json"
        return web.Response(body=played(back, Reply(text="4"), stream=False), content_type="application/json")

    async with serving(model) as url, session_for(url, dialect=back, max_tokens=MOST, **options) as world:
        yield world, received


async def send(world: World, path: str, body: bytes) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {world.session.secret}", "Content-Type": "application/json; charset=utf-7"}
    async with world.post(path, data=body, headers=headers) as reply:
        return reply.status, await reply.read()


def check(received: list[bytes]) -> None:
    """Every parser that reads a request reads one that may be sent."""
    for data in received:
        for value in readings(data):
            assert not list(asked_for(value)), data[:2000]
            if isinstance(value, dict) and data.startswith(b"{"):
                config = value.get("generationConfig") or value.get("generation_config") or value
                caps = [
                    config.get(name)
                    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
                ]
                assert any(cap is not None for cap in caps), "no limit was put in"
                assert all(cap is None or (type(cap) is int and 0 < cap <= MOST) for cap in caps)
                assert value.get("model", "tiny") == "tiny"


@pytest.mark.parametrize("translated", [False, True], ids=["same dialect", "translated"])
@pytest.mark.parametrize("front", DIALECTS)
async def test_no_trick_of_encoding_passes_a_guard(front: str, translated: bool) -> None:
    back = TRANSLATED_TO[front] if translated else front
    tried = [(name, trick(body, front)) for body in demands(front) for name, trick in TRICKS.items()]
    assert len(tried) >= 300
    async with listening(back) as (world, received):
        replies: list[tuple[int, bytes]] = []
        for start in range(0, len(tried), AT_ONCE):
            batch = tried[start : start + AT_ONCE]
            replies += await asyncio.gather(*(send(world, PATHS[front], body) for _, body in batch))
        check(received)
        for (name, body), (status, reply) in zip(tried, replies, strict=True):
            assert status == 200 or (status == 400 and says_error(front, status, reply)), (name, body[:300], reply)
        refused = sum(status == 400 for status, _ in replies)
        assert len(received) == len(tried) - refused
        assert len(received) > 50  # much is put right and sent
        recorded = world.records.exchanges
        assert len(recorded) == len(tried)
        assert sum(exchange.error is CallError.REJECTED for exchange in recorded) == refused


@pytest.mark.parametrize("front", DIALECTS)
async def test_no_trick_passes_behind_a_conversation_that_passed(front: str) -> None:
    key = next(key for key in ("messages", "input", "contents") if key in base(front))
    padding: list[Any] = PADDING
    if front == "gemini":
        padding = [{"role": "user", "parts": [{"text": turn["content"]}]} for turn in PADDING]
    harmless = {key: padding + base(front)[key], **base(front) | {key: padding + base(front)[key]}}
    async with listening(front) as (world, received):
        assert (await send(world, PATHS[front], json.dumps(harmless).encode()))[0] == 200
        for demand in demands(front):
            grown = {key: [*harmless[key], *demand[key]], **{k: v for k, v in demand.items() if k != key}}
            for trick in ("plain", "lone high surrogate", "twice, asking last", "twice, inside", "upper case"):
                await send(world, PATHS[front], TRICKS[trick](grown, front))
        check(received)


SIDE_ROUTES = {
    "messages": ["/v1/messages/count_tokens"],
    "gemini": ["/v1beta/models/tiny:countTokens"],
    "responses": ["/v1/responses/compact"],
}


@pytest.mark.parametrize(("front", "path"), [(front, path) for front, paths in SIDE_ROUTES.items() for path in paths])
async def test_side_routes_pass_the_same_guards(front: str, path: str) -> None:
    async with listening(front) as (world, received):
        for body in demands(front):
            bodies = (
                [body, {"generateContentRequest": body | {"model": "models/gpt-5-pro"}}]
                if front == "gemini"
                else [body]
            )
            for asked in bodies:
                for trick in ("plain", "lone high surrogate", "NaN", "twice, asking last", "all escaped", "title"):
                    status, _ = await send(world, path, TRICKS[trick](asked, front))
                    assert status in {200, 400}
        assert received
        for data in received:
            for value in readings(data):
                assert set(asked_for(value)) <= {"limit"}, data  # nothing is sampled, so no limit is put in
                assert value.get("max_output_tokens", MOST) != LIMIT
                inner = value.get("generateContentRequest", {"model": "models/tiny"})
                assert inner["model"] == "models/tiny"
