"""Counts of tokens: a model that speaks the agent's dialect is asked, all others are estimated. None is a turn."""

import json
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import PROVIDER_KEY, Handler, World, answer_unary, world
from whet.exchange import CallError, Kind

QUESTION = "How many tokens is this, about?"
PATHS = {"messages": "/v1/messages/count_tokens", "gemini": "/v1beta/models/tiny:countTokens"}
BODIES: dict[str, dict[str, Any]] = {
    "messages": {"model": "another", "messages": [{"role": "user", "content": QUESTION}], "top_k": 5, "own_field": 1},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": QUESTION}]}]},
}
FIELDS = {"messages": "input_tokens", "gemini": "totalTokens"}
BOTH = pytest.mark.parametrize("front", list(PATHS))


def counting(status: int, body: Any, asked: list[web.BaseRequest]) -> Handler:
    async def model(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        asked.append(request)
        return web.json_response(body, status=status)

    return model


async def count(w: World, front: str, **options: Any) -> int:
    async with w.post(PATHS[front], json=BODIES[front], **options) as reply:
        assert reply.status == 200
        return int((await reply.json())[FIELDS[front]])


@BOTH
async def test_a_model_of_the_same_dialect_counts_and_it_is_no_turn(front: str) -> None:
    asked: list[web.BaseRequest] = []
    async with world(counting(200, {FIELDS[front]: 4711}, asked), dialect=front) as w:
        assert await count(w, front) == 4711
        (sent,) = asked
        assert sent.path == PATHS[front]
        assert PROVIDER_KEY in {sent.headers.get("x-api-key"), sent.headers.get("x-goog-api-key")}
        exchange = w.records.only
        assert exchange.speaker is not None
        assert (exchange.speaker.kind, exchange.error, exchange.usage) == (Kind.UTILITY, None, None)
        assert "count" in exchange.speaker.thread
        assert (w.session.totals.calls, w.session.totals.answered) == (0, 0)


async def test_the_models_name_is_set_and_what_is_allowed_passes() -> None:
    asked: list[web.BaseRequest] = []
    async with world(counting(200, {"input_tokens": 1}, asked), dialect="messages", set=(("top_k", b"1"),)) as w:
        await count(w, "messages", headers={"x-api-key": w.session.secret, "anthropic-beta": "b"})
        allowed = {name: value for name, value in BODIES["messages"].items() if name != "own_field"}
        assert json.loads(await asked[0].read()) == allowed | {"model": "tiny"}
        assert w.records.only.warnings == ("field own_field",)
        assert asked[0].headers["anthropic-beta"] == "b"


@BOTH
@pytest.mark.parametrize(("status", "body"), [(404, {}), (400, {}), (200, {"no": "count"}), (200, [])])
async def test_what_the_model_cannot_count_is_estimated(front: str, status: int, body: Any) -> None:
    asked: list[web.BaseRequest] = []
    async with world(counting(status, body, asked), dialect=front) as w:
        assert 5 <= await count(w, front) <= 30
        exchange = w.records.only
        assert exchange.error is (CallError.MALFORMED if status == 200 else CallError.STATUS)
        assert FIELDS[front].encode() in (exchange.delivered or b"")


@BOTH
async def test_an_endpoint_that_knows_no_such_route_is_asked_once(front: str) -> None:
    asked: list[web.BaseRequest] = []
    async with world(counting(404, {}, asked), dialect=front) as w:
        assert await count(w, front) == await count(w, front)
        assert len(asked) == len(w.records.exchanges) == 1


@BOTH
async def test_a_model_of_another_dialect_is_not_asked(front: str) -> None:
    async with world(answer_unary) as w:
        assert 5 <= await count(w, front) <= 30
        assert not w.records.exchanges


async def test_media_elsewhere_are_refused_here_too() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [image]}]}
    asked: list[web.BaseRequest] = []
    async with world(counting(200, {"input_tokens": 1}, asked), dialect="messages") as w:
        async with w.post(PATHS["messages"], json=body) as reply:
            assert reply.status == 400
        assert not asked
