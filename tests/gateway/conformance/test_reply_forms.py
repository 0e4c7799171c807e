"""A reply in one piece and the same reply as a stream are the same message to an agent, whoever translates between."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from support.conformance_world import FORMS, PAIRS, Stage, staged
from support.gateway_world import serving
from support.neutral_strategies import names, objects, texts
from support.raw_wire import CannedServer, played
from support.sdk_clients import Front, Said
from whet.testing import Reply, ToolCall, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

tools = st.lists(st.builds(ToolCall, name=names, arguments=objects), max_size=3).map(tuple)
LINE_ENDS = Reply(thinking="\x85", text="a\u2028b", tools=(ToolCall(name="a", arguments={"a": "\u2029\x0b\x1c"}),))
"""Characters that end a line for some, but not in a stream of events."""
replies = st.builds(Reply, thinking=st.none() | texts, text=st.none() | texts, tools=tools)


@dataclass(repr=False)
class World:
    stage: Stage
    model: CannedServer

    async def ask(self, front: Front, back: str, *, stream: bool) -> Said:
        """What the SDK understands, without the form in which it wants it back."""
        self.stage.records[back].exchanges.clear()
        said = await self.stage.ask(front, back, front.begin("Be brief.", "2+2?"), stream=stream)
        return replace(said, turn=None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    model = CannedServer()
    async with serving(model) as url, staged(url) as made:
        yield World(made, model)


@pytest.mark.parametrize(("front", "back"), PAIRS)
@given(reply=replies)
@example(reply=LINE_ENDS)
@settings(max_examples=8, deadline=None)
async def test_both_forms_of_a_reply_say_the_same(world: World, front: Front, back: str, reply: Reply) -> None:
    stream = played(back, reply, stream=True)
    # Where bytes go through as they are, this client falls over them as it would at the provider.
    assume(not front.name == back == "gemini" or len(stream.decode().splitlines()) == stream.count(b"\n"))
    world.model.send(played(back, reply, stream=False), stream)
    whole = await world.ask(front, back, stream=False)
    assert await world.ask(front, back, stream=True) == whole
    assert (whole.text, whole.thinking) == (reply.text or "", reply.thinking or "")
    assert [(call.name, call.arguments) for call in whole.calls] == [
        (tool.name, tool.arguments) for tool in reply.tools
    ]
    assert whole.stop == (front.stops.tools if reply.tools else front.stops.end)


@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), PAIRS)
async def test_a_reply_that_ran_out_of_tokens_says_so(world: World, front: Front, back: str, stream: bool) -> None:
    reply = say("The answer is")
    forms = [played(back, reply, stream=streamed, cut_short=True) for streamed in (False, True)]
    world.model.send(*forms)
    said = await world.ask(front, back, stream=stream)
    assert (said.text, said.stop) == (reply.text, front.stops.length)
