"""Token capture: ids and log-probabilities are asked for and recorded, and the agent never sees them."""

import json
from typing import Any

import aiohttp
import pytest
from gateway_world import Records

from whet.gateway import Gateway, Model
from whet.redact import Redactor
from whet.testing import Scene, Script, ScriptedModel, call

QUESTION = {"role": "user", "content": "List the files."}
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": [QUESTION], "tools": [{"type": "function", "function": {"name": "bash", "parameters": TOOL}}]},
    ),
    "responses": (
        "/v1/responses",
        {"input": [QUESTION], "tools": [{"type": "function", "name": "bash", "parameters": TOOL}]},
    ),
    "messages": (
        "/v1/messages",
        {"max_tokens": 99, "messages": [QUESTION], "tools": [{"name": "bash", "input_schema": TOOL}]},
    ),
}
TRACES = (b'token_ids"', b'"logprob"')


async def ask(front: str, *, stream: bool, **more: Any) -> tuple[bytes, dict[str, Any], Records]:
    """What the agent got, the raw reply of the model, and the records."""
    script = Script(scenes=(Scene(replies=(call("bash", command="ls"),)),))
    path, body = REQUESTS[front]
    records = Records()
    async with ScriptedModel(script, tokens=True) as scripted, Gateway(Redactor([])) as gateway:
        model = Model(name="m", url=scripted.url, upstream_name="m", key=None, capture="vllm", attempts=1)
        session = gateway.open_session("s", model, records)
        url = await session.listen()
        async with aiohttp.ClientSession() as http:
            headers = {"Authorization": f"Bearer {session.secret}"}
            asked = {"model": "m", "stream": stream, **body, **more}
            async with http.post(url + path, json=asked, headers=headers) as reply:
                got = await reply.read()
                assert reply.status == 200, got
                assert reply.content_type == ("text/event-stream" if stream else "application/json")
        await session.close()
    return got, json.loads(records.only.response), records


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", REQUESTS)
async def test_every_token_has_an_id_and_a_logprob_in_the_record_and_none_reaches_the_agent(
    front: str, stream: bool
) -> None:
    got, reply, records = await ask(front, stream=stream)
    choice = reply["choices"][0]
    assert reply["prompt_token_ids"]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == reply["usage"]["completion_tokens"]
    assert not any(trace in got for trace in TRACES)
    assert b"bash" in got
    assert records.only.delivered == got
    sent = json.loads(records.only.sent or b"")
    assert (sent["return_token_ids"], sent["logprobs"], sent["stream"]) == (True, True, False)


async def test_an_agent_that_asks_for_tokens_itself_gets_the_reply_as_it_is() -> None:
    got, _, records = await ask("chat", stream=False, logprobs=True, return_token_ids=True)
    assert all(trace in got for trace in TRACES)
    assert records.only.response == got
    assert records.only.delivered is None


async def test_unknown_fields_of_a_chat_agent_survive() -> None:
    _, _, records = await ask("chat", stream=True, my_own_field={"x": 1})
    assert json.loads(records.only.sent or b"")["my_own_field"] == {"x": 1}
