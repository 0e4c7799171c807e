"""However the network cuts a model's stream into pieces, the agent gets the same bytes and the record is the same."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.conformance_world import PAIRS, Stage, staged
from support.gateway_world import serving
from support.raw_wire import CannedServer, asked, played
from support.sdk_clients import Front
from whet.exchange import Exchange
from whet.testing import Reply, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPLY = Reply(
    thinking="見る",
    text="né \n\n🔍",
    tools=(ToolCall(name="bash", arguments={"command": "ls 'é'\n"}), ToolCall(name="read", arguments={"limit": 5})),
)
EVERYWHERE = range(1, 20_000)


@dataclass(repr=False)
class World:
    stage: Stage
    model: CannedServer
    http: aiohttp.ClientSession
    unsplit: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict)

    async def outcome(self, front: str, back: str, pieces: Sequence[bytes]) -> tuple[Any, ...]:
        """What the agent gets and what is recorded when the model's stream comes in these pieces."""
        self.model.send(b"", *pieces)
        self.stage.records[back].exchanges.clear()
        path, body = asked(front, stream=True)
        headers = {"x-api-key": self.stage.sessions[back].secret}
        async with self.http.post(self.stage.urls[back] + path, json=body, headers=headers) as reply:
            return reply.status, await reply.read(), *_recorded_facts(self.stage.records[back].only)

    async def outcome_unsplit(self, front: str, back: str, stream: bytes) -> tuple[Any, ...]:
        if (front, back) not in self.unsplit:
            self.unsplit[front, back] = await self.outcome(front, back, [stream])
        return self.unsplit[front, back]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    model = CannedServer()
    async with serving(model) as url, staged(url) as made, aiohttp.ClientSession() as http:
        yield World(made, model, http)


@pytest.mark.parametrize(("front", "back"), PAIRS)
@given(cuts=st.lists(st.integers(0, max(EVERYWHERE)), min_size=1, max_size=6))
@example(cuts=EVERYWHERE)
@settings(max_examples=12, deadline=None)
async def test_a_stream_may_be_split_anywhere(world: World, front: Front, back: str, cuts: Sequence[int]) -> None:
    stream = played(back, REPLY, stream=True)
    unsplit = await world.outcome_unsplit(front.name, back, stream)
    assert await world.outcome(front.name, back, list(_split(stream, cuts))) == unsplit
    status, received, _, error, *_ = unsplit
    assert (status, error) == (200, None)
    assert (received == stream) == (front.name == back)


async def test_the_pieces_reach_the_gateway_one_by_one(world: World) -> None:
    stream = played("chat", REPLY, stream=True)
    await world.outcome("chat", "chat", list(_split(stream, EVERYWHERE)))
    # If they came together, the test above would test nothing.
    assert len(world.stage.records["chat"].only.arrivals) > len(stream) / 2


def _split(stream: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    return (stream[start:end] for start, end in pairwise(places))


def _recorded_facts(exchange: Exchange) -> tuple[Any, ...]:
    """The record without what depends on the time."""
    return exchange.response, exchange.error, exchange.delivered, exchange.usage, exchange.sent, exchange.warnings
