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

    seen = SEEN[back](json.loads(world.model.requests[-1].body))
    assert (seen.system, seen.question, seen.picture) == (SYSTEM, QUESTION, ("image/png", PNG))
    assert [(name, arguments) for _, name, arguments in seen.calls] == _asked_for(LOOK) + _asked_for(AGAIN)
    # The model gets back the ids that it gave itself.
    given = [re.findall(rb"(?:call|toolu)_[0-9a-f]{24}", exchange.response) for exchange in records.exchanges[:2]]
    assert [call_id.encode() for call_id, _, _ in seen.calls] == [*dict.fromkeys(given[0]), *dict.fromkeys(given[1])]
    assert [call_id for call_id, _, _ in seen.results] == [call_id for call_id, _, _ in seen.calls]
    assert [text for _, text, _ in seen.results] == [LISTING, MISSING, NOTHING]
    assert [failed for _, _, failed in seen.results] == [False, front.tells_failures, False]


def _asked_for(reply: Reply) -> list[tuple[str, Any]]:
    return [(tool.name, tool.arguments) for tool in reply.tools]


def _tokens(reply: Reply) -> int:
    calls = [tool.name + json.dumps(tool.arguments, ensure_ascii=False, separators=(",", ":")) for tool in reply.tools]
    return count(reply.thinking or "", reply.text or "", *calls)


@dataclass(frozen=True)
class Seen:
    """A request as it reached the model, taken out of the shape of the model's dialect."""

    system: str
    question: str
    picture: tuple[str, str]
    calls: list[tuple[str, str, Any]]
    results: list[tuple[str, str, bool]]


def _seen_in_chat(body: Any) -> Seen:
    system, user, *others = body["messages"]
    text, picture = user["content"]
    calls = [call for message in others for call in message.get("tool_calls") or ()]
    return Seen(
        system["content"],
        text["text"],
        _from_data_url(picture["image_url"]["url"]),
        [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls],
        [
            (message["tool_call_id"], *_told_failure(message["content"]))
            for message in others
            if message["role"] == "tool"
        ],
    )


def _seen_in_responses(body: Any) -> Seen:
    user, *others = body["input"]
    text, picture = user["content"]
    calls = [item for item in others if item["type"] == "function_call"]
    results = [item for item in others if item["type"] == "function_call_output"]
    return Seen(
        body["instructions"],
        text["text"],
        _from_data_url(picture["image_url"]),
        [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in calls],
        [(item["call_id"], *_told_failure(item["output"])) for item in results],
    )


def _seen_in_messages(body: Any) -> Seen:
    user, *others = body["messages"]
    text, picture = user["content"]
    blocks = [block for message in others for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    return Seen(
        _joined(body["system"]),
        text["text"],
        (picture["source"]["media_type"], picture["source"]["data"]),
        [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        [(block["tool_use_id"], _joined(block.get("content", "")), block.get("is_error", False)) for block in results],
    )


def _seen_in_gemini(body: Any) -> Seen:
    user, *others = body["contents"]
    text, picture = user["parts"]
    parts = [part for content in others for part in content["parts"]]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    results = [part["functionResponse"] for part in parts if "functionResponse" in part]
    return Seen(
        _joined(body["systemInstruction"]["parts"]),
        text["text"],
        _inline_data(**picture["inlineData"]),
        [(call["id"], call["name"], call["args"]) for call in calls],
        [(result["id"], *result["response"].values(), "error" in result["response"]) for result in results],
    )


SEEN = {
    "chat": _seen_in_chat,
    "responses": _seen_in_responses,
    "messages": _seen_in_messages,
    "gemini": _seen_in_gemini,
}


def _from_data_url(url: str) -> tuple[str, str]:
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return media_type, data


def _inline_data(data: str, mimeType: str = "", mime_type: str = "") -> tuple[str, str]:  # noqa: N803 - on the wire
    """The dialect takes names in either case, and base64 in either alphabet."""
    return mimeType or mime_type, data.translate(str.maketrans("-_", "+/"))


def _told_failure(text: str) -> tuple[str, bool]:
    """Where a dialect has no field for it, the words say that a tool failed."""
    return text.removeprefix("Error: "), text.startswith("Error: ")


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)
