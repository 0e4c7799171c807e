"""What the engine tells of tokens: all of them, in one piece and as a stream, and nothing that is not sure."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from support.models_world import Asked
from support.models_world import engine_fixture as engine_fixture
from support.models_world import smollm2_fixture as smollm2_fixture
from whet.exchange import EXACT
from whet.gateway.token_capture import check_tokens
from whet.models.exact import exact_front
from whet.models.sampled import surely

CHAT = "/v1/chat/completions"
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Repeat after me: 🌤 sun 🌤"}],
    "temperature": 0,
    "max_tokens": 9,
    "return_token_ids": True,
    "logprobs": True,
    "top_logprobs": 0,
}
YES = {**ASKED, "messages": [{"role": "user", "content": "Say just: yes"}]}


def ids_of(told: Any) -> list[int]:
    ids: list[int] = told["choices"][0]["token_ids"]
    return ids


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(ASKED, id="characters of several tokens"),
        pytest.param({**ASKED, "max_tokens": 2}, id="cut within a character"),
        pytest.param({**ASKED, "stop": ["sun"]}, id="cut by a stop string"),
        pytest.param(YES, id="the model ends its turn"),
        pytest.param({**YES, "tools": [{"type": "function", "function": {"name": "f"}}]}, id="with tools"),
        pytest.param({**ASKED, "messages": [*ASKED["messages"], {"role": "assistant", "content": "Sun"}]}, id="begun"),
    ],
)
def test_every_sampled_token_is_told_with_its_log_probability(engine: Asked, asked: Any) -> None:
    reply = engine.text(CHAT, asked)
    assert check_tokens(reply.encode(), streamed=False) == EXACT
    told = json.loads(reply)
    assert told["prompt_token_ids"] == engine.prompt_ids(asked)
    entries = told["choices"][0]["logprobs"]["content"]
    assert [entry["id"] for entry in entries] == ids_of(told)
    assert all(entry["top_logprobs"] == [] for entry in entries)
    assert len(ids_of(told)) == told["usage"]["completion_tokens"]


def test_the_end_of_the_turn_is_one_of_the_sampled_tokens(engine: Asked) -> None:
    told = engine.post(CHAT, YES)
    assert ids_of(told)[-1:] == engine.tokenize("<|im_end|>")
    assert engine.detokenize(ids_of(told)[:-1]) == told["choices"][0]["message"]["content"]


def test_a_stream_tells_the_same_tokens(engine: Asked) -> None:
    whole = engine.post(CHAT, ASKED)
    stream = engine.text(CHAT, {**ASKED, "stream": True, "stream_options": {"include_usage": True}})
    assert check_tokens(stream.encode(), streamed=True) == EXACT
    *chunks, done = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert done == "[DONE]"
    pieces = [json.loads(chunk) for chunk in chunks]
    choices = [choice for piece in pieces for choice in piece["choices"]]
    assert [id_ for choice in choices for id_ in choice.get("token_ids", ())] == ids_of(whole)
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert text == whole["choices"][0]["message"]["content"]
    assert [choice["finish_reason"] for choice in choices] == [None, "length"]
    assert pieces[-1]["usage"]["completion_tokens"] == len(ids_of(whole))


def test_likely_tokens_are_told_to_who_asks_for_them(engine: Asked) -> None:
    told = engine.post(CHAT, {**YES, "top_logprobs": 3})
    assert {len(entry["top_logprobs"]) for entry in told["choices"][0]["logprobs"]["content"]} == {3}


def test_other_calls_pass_and_tell_nothing_of_the_inside(engine: Asked) -> None:
    plain = {name: YES[name] for name in ("messages", "temperature", "max_tokens")}
    assert set(engine.post(CHAT, plain)) >= {"choices", "usage"}
    for path, body in (
        (CHAT, plain),
        (CHAT, {**plain, "stream": True}),
        ("/v1/completions", {"prompt": "One, two,", "max_tokens": 2}),
        ("/v1/messages", plain),
    ):
        reply = engine.text(path, body)
        assert "__verbose" not in reply
        assert "token_ids" not in reply


async def test_a_refusal_of_the_engine_is_passed_on(engine: Asked) -> None:
    async with aiohttp.ClientSession(engine.url) as http:
        for body in (b"{no", b"[]", json.dumps({**ASKED, "n": 2}).encode(), b'{"return_token_ids": true}'):
            async with http.post(CHAT, data=body) as reply:
                assert reply.status >= 400
                assert (await reply.json())["error"]["message"]


@pytest.mark.parametrize(("read", "count", "told"), [("hi", 1, True), ("hi", 2, False), ("another text", 1, False)])
async def test_ids_of_a_prompt_that_are_unsure_are_not_told(tmp_path: Path, read: str, count: int, told: bool) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answers = {
        CHAT: {
            "id": "r",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {"role": "assistant", "content": None, "tool_calls": [call]},
                    "logprobs": {"content": [{"id": 9, "token": "x", "logprob": -1.0, "top_logprobs": []}]},
                }
            ],
            "usage": {"prompt_tokens": count, "completion_tokens": 1},
            "__verbose": {"tokens": [9], "prompt": read},
        },
        "/apply-template": {"prompt": "hi"},
        "/tokenize": {"tokens": [5]},
        "/detokenize": {"content": "hi"},
    }

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(answers[request.path])

    llama = web.Application()
    llama.router.add_post("/{path:.*}", answer)
    runners = [web.AppRunner(llama), web.AppRunner(exact_front(tmp_path / "llama.sock"))]
    for runner in runners:
        await runner.setup()
    try:
        await web.UnixSite(runners[0], str(tmp_path / "llama.sock")).start()
        site = web.TCPSite(runners[1], "127.0.0.1", 0)
        await site.start()
        port = runners[1].addresses[0][1]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
            async with http.post(CHAT, json=ASKED) as reply:
                assert ("prompt_token_ids" in await reply.json()) is told
            async with http.post(CHAT, json={**ASKED, "stream": True}) as reply:
                first = json.loads((await reply.text()).partition("\n")[0].removeprefix("data: "))
                assert first["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **call}]
                assert first["choices"][0]["token_ids"] == [9]
    finally:
        for runner in reversed(runners):
            await runner.cleanup()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12))
def test_an_entry_is_given_to_no_token_but_its_own(sampled: list[tuple[int, bool]]) -> None:
    told = [(place, id_) for place, (id_, kept) in enumerate(sampled) if kept]
    places = surely([id_ for id_, _ in sampled], [id_ for _, id_ in told])
    assert all(told[entry][0] == place for place, entry in enumerate(places) if entry is not None)
    if len(told) == len(sampled):
        assert places == list(range(len(sampled)))
