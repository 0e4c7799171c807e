"""An agent that hangs up at any stage of a call and asks again gets the bytes it would have got, from one call."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from support.conformance_world import FORMS, SOME_PAIRS, Stage, staged
from support.gateway_world import PATIENCE, Handler, serving
from support.gateway_world import stream as begin_stream
from support.raw_wire import CannedServer, asked, played, wants_stream
from support.sdk_clients import Front
from support.waiting import until
from whet.exchange import CallError, Exchange
from whet.gateway import Session
from whet.testing import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = say("The answer is four, as it has always been.")


class Moment(Enum):
    """When the agent hangs up."""

    BEFORE_HEAD = "before the head"
    IN_THE_MIDDLE = "in the middle"
    BEFORE_THE_END = "before the end"
    """The model has said all, but the end waits for the record."""


def halting(back: str, moment: Moment, go_on: asyncio.Event) -> Handler:
    """A model that stops before its head, or in the middle of its stream, until it may go on."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        streamed = await wants_stream(request)
        reply = played(back, ANSWER, stream=streamed)
        if moment is Moment.BEFORE_HEAD:
            await go_on.wait()
        if not streamed:
            return web.Response(body=reply, content_type="application/json")
        response = await begin_stream(request)
        middle = reply.index(b"\n\n", len(reply) // 2) + 2
        await response.write(reply[:middle])
        if moment is Moment.IN_THE_MIDDLE:
            await go_on.wait()
        await response.write(reply[middle:])
        return response

    return handler


@dataclass
class World:
    stage: Stage
    model: CannedServer
    http: aiohttp.ClientSession

    def post(self, front: Front, back: str, *, stream: bool) -> Any:
        path, body = asked(front.name, stream=stream)
        headers = {"x-api-key": self.stage.sessions[back].secret}
        return self.http.post(self.stage.urls[back] + path, json=body, headers=headers)

    async def read(self, front: Front, back: str, *, stream: bool) -> bytes:
        async with asyncio.timeout(PATIENCE), self.post(front, back, stream=stream) as reply:
            assert reply.status == 200
            return bytes(await reply.read())

    @contextmanager
    def halted(self, back: str, moment: Moment) -> Iterator[asyncio.Event]:
        """The call that is made comes to this moment and no further, until the event is set."""
        records, go_on = self.stage.records[back], asyncio.Event()
        records.exchanges.clear()
        records.asked.clear()
        self.model.handler, self.model.asked = halting(back, moment, go_on), 0
        if moment is Moment.BEFORE_THE_END:
            with records.held_back() as allowed:
                yield allowed
        else:
            yield go_on

    async def reach(self, back: str, moment: Moment) -> None:
        """Wait until the call has come to this moment."""
        if moment is Moment.BEFORE_THE_END:
            await until(self.stage.records[back].asked.is_set)
        else:
            await until(lambda: self.model.asked == 1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    model = CannedServer()
    async with serving(model) as url, staged(url) as stage, aiohttp.ClientSession() as http:
        yield World(stage, model, http)


MOMENTS = [
    pytest.param(moment, stream, id=f"{moment.value}-{'stream' if stream else 'whole'}")
    for moment in Moment
    for stream in (False, True)
    if stream or moment is not Moment.IN_THE_MIDDLE
]


@pytest.mark.parametrize("ends_meanwhile", [pytest.param(False, id="joins"), pytest.param(True, id="comes late")])
@pytest.mark.parametrize(("moment", "stream"), MOMENTS)
@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
async def test_a_retry_gets_the_bytes_of_its_call(
    world: World, front: Front, back: str, moment: Moment, stream: bool, ends_meanwhile: bool
) -> None:
    session, records = world.stage.sessions[back], world.stage.records[back]
    calls, answered = session.totals.calls, session.totals.answered
    with world.halted(back, moment) as go_on:
        had = await hang_up(world, front, back, moment, stream=stream)
        await until(lambda: not followed(session))
        if ends_meanwhile:
            go_on.set()
            await until(lambda: not session.open_calls.under_way)
        again = asyncio.create_task(world.read(front, back, stream=stream))
        if not ends_meanwhile:
            await until(lambda: followed(session))
            go_on.set()
        got = await again
    exchange = records.only
    assert got.startswith(had)
    assert got == given(exchange)
    assert exchange.response == played(back, ANSWER, stream=stream)
    # Who leaves when all is received, and only its record is missing, has missed nothing.
    missed = ends_meanwhile and moment is not Moment.BEFORE_THE_END
    assert exchange.error is (CallError.HUNG_UP if missed else None)
    assert world.model.asked == exchange.attempts == 1
    assert (session.totals.calls, session.totals.answered) == (calls + 1, answered + (exchange.error is None))


@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
async def test_an_agent_that_stays_away_leaves_one_record(world: World, front: Front, back: str, stream: bool) -> None:
    session, records = world.stage.sessions[back], world.stage.records[back]
    with world.halted(back, Moment.BEFORE_HEAD) as go_on:
        await hang_up(world, front, back, Moment.BEFORE_HEAD, stream=stream)
        await until(lambda: not followed(session))
        go_on.set()
        await until(lambda: not session.open_calls.under_way)
    assert records.only.error is CallError.HUNG_UP
    assert records.only.response == played(back, ANSWER, stream=stream)
    assert records.only.usage is not None
    # It is not asked for again, so that no other test may get it.
    session.open_calls.undelivered.clear()


async def hang_up(world: World, front: Front, back: str, moment: Moment, *, stream: bool) -> bytes:
    """Make a call and hang up at this moment. What the agent had got by then."""
    waiting = asyncio.ensure_future(world.post(front, back, stream=stream).__aenter__())
    await world.reach(back, moment)
    if not stream or moment is Moment.BEFORE_HEAD:
        waiting.cancel()
        await asyncio.wait([waiting])
        return b""
    reply = await waiting
    had = b""
    async with asyncio.timeout(PATIENCE):
        while not had:
            had = await reply.content.readany()
    reply.close()
    return had


def followed(session: Session) -> bool:
    return any(call.connection for call in session.open_calls.undelivered)


def given(exchange: Exchange) -> bytes:
    """What the agent is given, as the record says."""
    return exchange.response if exchange.delivered is None else exchange.delivered
