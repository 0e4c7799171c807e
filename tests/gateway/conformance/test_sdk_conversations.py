"""Every official SDK against every kind of model: a whole conversation with tools and a picture comes over unharmed."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from support.conformance_world import FORMS, PAIRS, Stage, staged
from support.gateway_world import PROVIDER_KEY
from support.sdk_clients import PNG, Front, Result
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects import neutral as n
from whet.testing import Reply, Scene, Script, ScriptedModel, ToolCall, say
from whet.testing.wire import count

pytestmark = pytest.mark.asyncio(loop_scope="module")

SYSTEM = "Antworte kurz. 短く答えて。"
QUESTION = "What is in this picture, и где? 🖼️"
LOOK = Reply(
    thinking="Erst schauen, dann reden. 考える",
    text='Ich sehe nach … "見て" 🔍\n',
    tools=(
        ToolCall(name="bash", arguments={"command": "ls 'größe 日本' \\ \"x\""}),
        ToolCall(name="read", arguments={"command": "a.txt", "limit": 5, "deep": {"list": [1, None, True]}}),
    ),
)
AGAIN = Reply(tools=(ToolCall(name="bash", arguments={"command": "true"}),))
FOUND = say("Fertig: naïve café ☕, 完了。")
LISTING, MISSING, NOTHING = "größe\n日本\t🗾", "no such file: a.txt", ""
SCRIPT = Script(scenes=(Scene(replies=(LOOK, AGAIN, FOUND)),))


@dataclass
class World:
    stage: Stage
    model: ScriptedModel


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with ScriptedModel(SCRIPT, key=PROVIDER_KEY) as model, staged(model.url) as made:
        yield World(made, model)


@pytest.mark.parametrize("sync", [pytest.param(False, id="async"), pytest.param(True, id="sync")])
@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), PAIRS)
async def test_a_conversation_with_tools_and_a_picture(
    world: World, front: Front, back: str, stream: bool, sync: bool
) -> None:
    records = world.stage.records[back]
    records.exchanges.clear()
    conversation = front.begin(SYSTEM, QUESTION)

    first = await world.stage.ask(front, back, conversation, stream=stream, sync=sync)
    assert (first.text, first.thinking) == (LOOK.text, LOOK.thinking)
    assert [(call.name, call.arguments) for call in first.calls] == _asked_for(LOOK)
    assert len({call.id for call in first.calls}) == 2
    assert first.stop == front.stops.tools
    results = [Result(first.calls[0], LISTING), Result(first.calls[1], MISSING, failed=True)]
    conversation = front.go_on(conversation, first, results)

    second = await world.stage.ask(front, back, conversation, stream=stream, sync=sync)
    assert (second.text, second.thinking) == ("", "")
    assert [(call.name, call.arguments) for call in second.calls] == _asked_for(AGAIN)
    assert second.stop == front.stops.tools
    conversation = front.go_on(conversation, second, [Result(second.calls[0], NOTHING)])

    third = await world.stage.ask(front, back, conversation, stream=stream, sync=sync)
    assert (third.text, third.calls) == (FOUND.text, ())
    assert third.stop == front.stops.end

    replies = [(first, LOOK), (second, AGAIN), (third, FOUND)]
    for (said, played), exchange in zip(replies, records.exchanges, strict=True):
        assert exchange.error is None
        assert exchange.usage is not None
        assert (exchange.usage.input, exchange.usage.output) == (said.input_tokens, said.output_tokens)
        assert said.input_tokens > 0
        assert said.output_tokens == _tokens(played)
        assert exchange.dialect == front.name

    sent = world.model.requests[-1]
    system, question, *others = DIALECTS[back].read_request(sent.body, sent.path).messages
    assert system.parts == (n.Text(SYSTEM),)
    assert question.parts == (n.Text(QUESTION), n.Image("image/png", PNG))
    parts = [part for message in others for part in message.parts]
    calls = [part for part in parts if isinstance(part, n.ToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == _asked_for(LOOK) + _asked_for(AGAIN)
    # The model gets back the ids that it gave itself.
    given = [re.findall(rb"(?:call|toolu)_[0-9a-f]{24}", exchange.response) for exchange in records.exchanges[:2]]
    assert [call.id.encode() for call in calls] == [*dict.fromkeys(given[0]), *dict.fromkeys(given[1])]
    answers = [part for part in parts if isinstance(part, n.ToolResult)]
    assert [answer.call_id for answer in answers] == [call.id for call in calls]
    failures = [False, front.tells_failures, False]
    assert [_outcome(answer) for answer in answers] == list(zip([LISTING, MISSING, NOTHING], failures, strict=True))


def _asked_for(reply: Reply) -> list[tuple[str, Any]]:
    return [(tool.name, tool.arguments) for tool in reply.tools]


def _tokens(reply: Reply) -> int:
    calls = [tool.name + json.dumps(tool.arguments, ensure_ascii=False, separators=(",", ":")) for tool in reply.tools]
    return count(reply.thinking or "", reply.text or "", *calls)


def _outcome(result: n.ToolResult) -> tuple[str, bool]:
    """What a tool gave, and whether it failed; where a dialect has no field for that, the words say it."""
    text = "".join(part.text for part in result.parts if isinstance(part, n.Text))
    return text.removeprefix("Error: "), result.is_error or text.startswith("Error: ")
