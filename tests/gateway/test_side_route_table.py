"""All that the programs are known to ask for besides replies, and what they get: an answer, or a 404 on record."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import answer_unary, world
from whet.exchange import CallError

OPENAI, ANTHROPIC, GOOGLE = "authorization", "x-api-key", "x-goog-api-key"


@dataclass(frozen=True)
class Route:
    """What is asked, and how it is answered by a session whose model speaks chat."""

    asked: str
    key: str = OPENAI
    status: int = 200
    dialect: str | None = None
    """Of the answer. What has none is the same in all."""
    recorded: bool = False


def missing(asked: str, key: str, dialect: str, status: int = 404) -> Route:
    return Route(asked, key, status, dialect, recorded=True)


ROUTES = [
    Route("HEAD /", ""),
    Route("GET /", ""),
    Route("GET /health", ""),
    Route("OPTIONS /v1/chat/completions", "", 204),
    Route("GET /v1/models", OPENAI, dialect="chat"),
    Route("GET /models", OPENAI, dialect="chat"),
    Route("GET /v1/models/tiny", OPENAI, dialect="chat"),
    Route("GET /v1/models", ANTHROPIC, dialect="messages"),
    Route("GET /v1/models/tiny", ANTHROPIC, dialect="messages"),
    Route("GET /v1beta/models", GOOGLE, dialect="gemini"),
    Route("GET /v1beta/models/tiny", GOOGLE, dialect="gemini"),
    Route("GET /v1beta/models", OPENAI, dialect="gemini"),
    Route("GET /v1/models", GOOGLE, dialect="gemini"),
    Route("GET /v1/models/another", OPENAI, 404, "chat"),
    Route("GET /v1/models/another:latest", OPENAI, 404, "chat"),
    Route("GET /v1beta/models/another", OPENAI, 404, "gemini"),
    Route("POST /v1/messages/count_tokens", ANTHROPIC, dialect="messages"),
    Route("POST /v1beta/models/tiny:countTokens", GOOGLE, dialect="gemini"),
    missing("POST /v1/responses/compact", OPENAI, "responses"),
    missing("POST /v1/responses/input_tokens", OPENAI, "responses"),
    missing("GET /v1/responses/resp_1", OPENAI, "responses"),
    missing("POST /v1/completions", OPENAI, "chat"),
    missing("POST /v1/embeddings", OPENAI, "chat"),
    missing("GET /metrics", OPENAI, "chat"),
    missing("POST /v1/messages/batches", ANTHROPIC, "messages"),
    missing("POST /api/event_logging/batch", ANTHROPIC, "messages"),
    missing("POST /v1beta/models/tiny:embedContent", GOOGLE, "gemini"),
    missing("POST /v1beta/models/tiny:batchEmbedContents", GOOGLE, "gemini"),
    missing("POST /v1beta/cachedContents", GOOGLE, "gemini"),
]


def in_dialect(dialect: str, status: int, body: Any) -> bool:
    """Whether the body is what a caller of this dialect can read."""
    match dialect, status, body:
        case "messages", 404, {"type": "error", "error": {"type": "not_found_error", "message": str()}}:
            return True
        case "gemini", 404, {"error": {"code": 404, "message": str(), "status": "NOT_FOUND"}}:
            return True
        case "chat" | "responses", 404, {"error": {"message": str(), "type": "invalid_request_error"}}:
            return True
        case "chat", 200, {"object": "list", "data": [{"id": "tiny"}]} | {"object": "model", "id": "tiny"}:
            return True
        case "messages", 200, {"data": [{"type": "model", "id": "tiny"}], "has_more": False} | {"id": "tiny"}:
            return True
        case "gemini", 200, {"models": [{"name": "models/tiny"}]} | {"name": "models/tiny"}:
            return True
        case "messages", 200, {"input_tokens": int()}:
            return True
        case "gemini", 200, {"totalTokens": int()}:
            return True
    return False


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.asked} {route.key}")
async def test_each_route_is_answered_in_the_callers_dialect(route: Route) -> None:
    method, path = route.asked.split(" ")
    async with world(answer_unary) as w:
        headers = {route.key: f"Bearer {w.session.secret}" if route.key == OPENAI else w.session.secret}
        if route.key == ANTHROPIC:
            headers["anthropic-version"] = "2023-06-01"
        body: Any = {"messages": [], "contents": []} if method == "POST" else None
        async with w.http.request(method, w.url + path, json=body, headers=headers if route.key else {}) as reply:
            assert reply.status == route.status
            if route.dialect is not None:
                assert in_dialect(route.dialect, route.status, await reply.json())
        recorded = [(exchange.path, exchange.dialect, exchange.error) for exchange in w.records.exchanges]
        assert recorded == ([(path, route.dialect, CallError.REJECTED)] if route.recorded else [])
        assert w.session.totals.calls == 0


async def test_health_says_nothing_but_that() -> None:
    async with world(answer_unary) as w, w.http.get(f"{w.url}/health") as reply:
        assert await reply.json() == {"status": "ok"}
        assert {name.lower() for name in reply.headers} == {"content-type", "server", "content-length", "date"}
        assert reply.headers["Server"] == ""


async def test_a_websocket_is_refused_so_that_plain_requests_follow() -> None:
    async with world(answer_unary) as w:
        headers = {"Authorization": f"Bearer {w.session.secret}", "Connection": "Upgrade", "Upgrade": "websocket"}
        async with w.http.get(f"{w.url}/v1/responses", headers=headers) as reply:
            assert reply.status == 426
            assert "message" in (await reply.json())["error"]
        assert w.records.only.status == 426


async def test_compaction_goes_to_a_model_that_speaks_responses() -> None:
    compacted = {
        "id": "r",
        "object": "response.compaction",
        "output": [{"type": "compaction", "encrypted_content": "x"}],
    }
    paths = []

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        paths.append(request.path)
        return web.json_response(compacted)

    async with world(model, dialect="responses") as w:
        async with w.post("/v1/responses/compact", json={"model": "tiny", "input": "hi", "new": 1}) as reply:
            assert await reply.json() == compacted
        assert paths == ["/v1/responses/compact"]
        assert json.loads(w.records.only.request) == {"model": "tiny", "input": "hi", "new": 1}
        assert w.records.only.error is None


@pytest.mark.parametrize("front", ["chat", "messages", "responses"])
async def test_whatever_model_is_asked_for_the_chosen_one_is_called(front: str) -> None:
    sent = []

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        sent.append(json.loads(await request.read())["model"])
        return web.json_response({})

    paths = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
    body = {"model": "a-dearer-one", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "max_tokens": 1}
    async with world(model, dialect=front) as w, w.post(paths[front], json=body):
        pass
    assert sent == ["tiny"]
