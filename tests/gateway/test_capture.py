"""Token capture: ids and log-probabilities are asked for, checked and recorded, and the agent never sees them."""

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gateway_world import Records, answering, event, model, serving
from whet.exchange import EXACT, Exchange
from whet.gateway import Gateway
from whet.gateway.token_capture import check_tokens
from whet.testing import Scene, Script, ScriptedModel, call
from whet.text.redact import Redactor

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
    "gemini": (
        "/v1beta/models/m:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": QUESTION["content"]}]}],
            "tools": [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": TOOL}]}],
        },
    ),
}
TRACES = (b'token_ids"', b'"logprob"')


async def ask_at(
    url: str, front: str, *, stream: bool, capture: str = "vllm", top_logprobs: int | None = None, **more: Any
) -> tuple[bytes, Records]:
    """What the agent got of the model at this address, and the records."""
    path, body = REQUESTS[front]
    if front == "gemini":
        path = path.replace("generateContent", "streamGenerateContent?alt=sse") if stream else path
    else:
        body = {"model": "m", "stream": stream, **body}
    records = Records()
    async with Gateway(Redactor([])) as gateway, aiohttp.ClientSession() as http:
        settings = () if top_logprobs is None else (("top_logprobs", str(top_logprobs).encode()),)
        small = model(url, upstream_name="m", capture=capture, attempts=1, set=settings)
        session = gateway.open_session("s", small, records)
        address = await session.listen() + path
        headers = {"Authorization": f"Bearer {session.secret}"}
        async with http.post(address, json={**body, **more}, headers=headers) as reply:
            got = await reply.read()
            assert reply.status == 200, got
            assert reply.content_type == ("text/event-stream" if stream else "application/json")
    return got, records


async def ask(front: str, *, stream: bool, **more: Any) -> tuple[bytes, Records]:
    script = Script(scenes=(Scene(replies=(call("bash", command="ls"),)),))
    async with ScriptedModel(script, tokens=True) as scripted:
        return await ask_at(scripted.url, front, stream=stream, **more)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", REQUESTS)
async def test_every_token_is_in_the_record_and_none_reaches_the_agent(front: str, stream: bool) -> None:
    got, records = await ask(front, stream=stream)
    reply = json.loads(records.only.response)
    choice = reply["choices"][0]
    assert reply["prompt_token_ids"]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == reply["usage"]["completion_tokens"]
    assert records.only.tokens == EXACT
    assert not any(trace in got for trace in TRACES)
    assert b"bash" in got
    assert records.only.delivered == got
    sent = json.loads(records.only.sent or b"")
    assert (sent["return_token_ids"], sent["logprobs"], sent["stream"]) == (True, True, False)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_asks_for_tokens_gets_them(stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    got, records = await ask("chat", stream=stream, logprobs=True, top_logprobs=0, return_token_ids=True, **options)
    assert all(trace in got for trace in TRACES)
    assert records.only.response == got
    assert (records.only.delivered, records.only.tokens) == (None, EXACT)


async def test_fields_of_a_chat_agent_that_no_other_dialect_has_survive() -> None:
    _, records = await ask("chat", stream=True, logit_bias={"7": 1}, my_own_field=1)
    sent = json.loads(records.only.sent or b"")
    assert (sent["logit_bias"], "my_own_field" in sent) == ({"7": 1}, False)
    assert records.only.warnings == ("field my_own_field",)


def entry(logprob: float = -0.5, **more: Any) -> dict[str, Any]:
    return {"token": "a", "logprob": logprob, "bytes": [97], "top_logprobs": []} | more


def reply(**different: Any) -> dict[str, Any]:
    """A reply of two tokens to a prompt of three, as vLLM gives it."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "aa"},
        "finish_reason": "stop",
        "token_ids": [7, 8],
        "logprobs": {"content": [entry(), entry()]},
    }
    top = {"prompt_token_ids": [1, 2, 3], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    whole = {"id": "c", "model": "m", **top, **{key: value for key, value in different.items() if key in top}}
    return whole | {"choices": [choice | {key: value for key, value in different.items() if key not in top}]}


async def recorded(body: Any, capture: str) -> Exchange:
    async with serving(answering(body)) as url:
        _, records = await ask_at(url, "messages", stream=False, capture=capture)
    return records.only


IDS_IN_CHOICE = reply(prompt_token_ids=None)
IDS_IN_CHOICE["choices"][0]["prompt_token_ids"] = [1, 2, 3]
IDS_WITH_LOGPROBS = reply(prompt_token_ids=None, token_ids=None, logprobs={"content": [entry(id=7), entry(id=8)]})


@pytest.mark.parametrize(
    ("body", "capture", "tokens"),
    [
        (IDS_IN_CHOICE, "sglang", EXACT),
        (IDS_WITH_LOGPROBS, "llamacpp", "there are no ids of the prompt"),
        (reply(prompt_token_ids=None, token_ids=None), "openai", "there are no ids, only log-probabilities"),
        (reply(), "none", None),
        (reply(prompt_token_ids=None, token_ids=None, logprobs=None), "vllm", None),
    ],
)
async def test_servers_give_ids_in_forms_of_their_own_or_none(body: Any, capture: str, tokens: str | None) -> None:
    exchange = await recorded(body, capture)
    assert exchange.tokens == tokens
    assert capture != "llamacpp" or json.loads(exchange.sent or b"")["top_logprobs"] == 1


@pytest.mark.parametrize(
    ("capture", "wanted", "sent"), [("vllm", 5, 5), ("openai", 20, 20), ("llamacpp", 3, 3), ("llamacpp", 0, 1)]
)
async def test_the_user_says_how_many_likely_tokens_are_recorded(capture: str, wanted: int, sent: int) -> None:
    async with serving(answering(reply())) as url:
        _, records = await ask_at(url, "messages", stream=False, capture=capture, top_logprobs=wanted)
    assert json.loads(records.only.sent or b"")["top_logprobs"] == sent
    assert records.only.tokens == EXACT


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"token_ids": [7]}, "1 ids, but 2 log-probabilities"),
    ({"logprobs": {"content": [entry()]}}, "2 ids, but 1 log-probabilities"),
    ({"logprobs": None}, "2 ids, but 0 log-probabilities"),
    ({"prompt_token_ids": []}, "there are no ids of the prompt"),
    ({"token_ids": [7, -1]}, "an id is negative"),
    ({"prompt_token_ids": [1, -2, 3]}, "an id is negative"),
    ({"logprobs": {"content": [entry(), entry(0.1)]}}, "a log-probability is above 0 or not finite"),
    ({"logprobs": {"content": [entry(token="token_id:7"), entry(token="token_id:9")]}}, "an id differs from the one"),
    ({"usage": {"prompt_tokens": 4, "completion_tokens": 2}}, "3 ids of the prompt, but its usage says 4"),
    ({"usage": {"prompt_tokens": 3, "completion_tokens": 1}}, "2 ids of the reply, but its usage says 1"),
]


@pytest.mark.parametrize(("different", "fault"), FAULTS)
def test_what_is_wrong_with_tokens_is_said(different: dict[str, Any], fault: str) -> None:
    found = check_tokens(json.dumps(reply(**different)).encode(), streamed=False)
    assert found is not None
    assert found.startswith(fault)


@pytest.mark.parametrize("different", [{}, {"usage": None}, {"logprobs": {"content": [entry(0.0), entry(-9999.0)]}}])
def test_tokens_that_are_all_there_are_exact(different: dict[str, Any]) -> None:
    assert check_tokens(json.dumps(reply(**different)).encode(), streamed=False) == EXACT


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_a_stream_is_exact_however_its_tokens_are_dealt_out(sizes: list[int]) -> None:
    total = max(1, sum(sizes))
    pieces = [*sizes, total - sum(sizes)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {}, "token_ids": [5] * size, "logprobs": {"content": [entry()] * size}}]}
        for size in pieces
    ]
    chunks[0] |= {"prompt_token_ids": [1, 2]}
    usage = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": total}}
    body = b"".join(event(chunk) for chunk in [*chunks, usage]) + event("[DONE]")
    assert check_tokens(body, streamed=True) == EXACT
    assert check_tokens(body.replace(b'"completion_tokens": ', b'"completion_tokens": 1'), streamed=True) != EXACT


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps).map(str.encode), st.booleans())
def test_nothing_that_a_model_sends_breaks_the_check(body: bytes, streamed: bool) -> None:
    assert check_tokens(body, streamed) is None
