"""An agent that asks again: it gets the same reply when it never had it, and another one when it had."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from support.gateway_world import STREAM, World, answer_stream, stream, world
from support.waiting import until
from whet.exchange import CallError

WHOLE = b"".join(STREAM)


@dataclass
class Slow:
    """A model that pauses after its first event until it is told to go on, and counts how often it is asked."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        await request.read()
        response = await stream(request)
        await response.write(STREAM[0])
        await self.go_on.wait()
        for part in STREAM[1:]:
            await response.write(part)
        return response


async def hang_up_after_the_first_event(w: World) -> None:
    async with w.post() as reply:
        assert await reply.content.readexactly(len(STREAM[0])) == STREAM[0]
        reply.close()


async def read(w: World) -> bytes:
    async with w.post() as reply:
        return bytes(await reply.read())


def nobody_follows(w: World) -> Callable[[], bool]:
    return lambda: all(call.connection is None for call in w.session.open_calls.undelivered)


async def test_a_request_like_one_that_was_answered_is_a_new_call() -> None:
    async with world(answer_stream) as w:
        assert await read(w) == await read(w) == WHOLE
        assert len(w.records.exchanges) == 2


async def test_equal_calls_side_by_side_are_two_calls() -> None:
    model = Slow()
    async with world(model) as w:
        both = [asyncio.create_task(read(w)) for _ in range(2)]
        await until(lambda: model.asked == 2)
        model.go_on.set()
        assert await asyncio.gather(*both) == [WHOLE, WHOLE]
        assert [exchange.index for exchange in w.records.exchanges] == [0, 1]


async def test_a_call_that_failed_is_made_anew() -> None:
    failures = iter([500, 200])

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if next(failures) == 500:
            return web.Response(status=500, text="{}")
        return await answer_stream(request)

    async with world(handler, attempts=1) as w:
        async with w.post() as reply:
            assert reply.status == 500
        assert await read(w) == WHOLE
        assert [exchange.error for exchange in w.records.exchanges] == [CallError.STATUS, None]


async def test_a_retry_with_another_body_is_another_call() -> None:
    model = Slow()
    async with world(model) as w:
        await hang_up_after_the_first_event(w)
        await until(nobody_follows(w))
        model.go_on.set()
        other: Awaitable[aiohttp.ClientResponse] = w.post(json={"model": "tiny", "messages": []})
        assert await (await other).read() == WHOLE
        assert model.asked == 2
