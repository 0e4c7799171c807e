"""Gemini streams without `alt=sse`: one JSON array, element by element, whatever the model speaks."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import answering, event, read_to_break, read_until, session_for, stream, streaming, world
from whet.gateway.calls import transfer
from whet.testing import Scene, Script, ScriptedModel, say

PATH = "/v1beta/models/tiny:streamGenerateContent"
BODY = {"contents": [{"role": "user", "parts": [{"text": "2+2?"}]}]}


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], "not_known_to_us": [1]}


def said(elements: list[Any]) -> str:
    parts = [part for element in elements for part in element["candidates"][0]["content"]["parts"]]
    return "".join(part.get("text", "") for part in parts)


@pytest.mark.parametrize(
    ("back", "capture"),
    [("chat", "none"), ("chat", "vllm"), ("responses", "none"), ("messages", "none"), ("gemini", "none")],
)
async def test_every_model_can_be_streamed_as_an_array(back: str, capture: str) -> None:
    script = Script(scenes=(Scene(replies=(say("It is four."),)),))
    async with (
        ScriptedModel(script, tokens=capture != "none") as model,
        session_for(model.url, dialect=back, capture=capture) as w,
    ):
        async with w.post(PATH, json=BODY) as reply:
            body = await reply.read()
            assert (reply.status, reply.content_type) == (200, "application/json")
        elements = json.loads(body)
        assert said(elements) == "It is four."
        assert elements[-1]["candidates"][0]["finishReason"] == "STOP"
        assert elements[-1]["usageMetadata"]["candidatesTokenCount"] > 0
        exchange = w.records.only
        assert (exchange.delivered, exchange.error) == (body, None)


async def test_elements_go_out_as_they_come_and_unknown_fields_survive() -> None:
    go_on = asyncio.Event()

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        assert request.query["alt"] == "sse"
        response = await stream(request)
        await response.write(b": a comment\n\n" + event(chunk("fo")))
        await go_on.wait()
        await response.write(event(chunk("ur", "STOP")))
        return response

    async with world(model, dialect="gemini") as w, w.post(PATH, json=BODY) as reply:
        first = await read_until(reply, b'"fo"')
        assert first.startswith(b"[{")
        go_on.set()
        assert json.loads(first + await reply.read()) == [chunk("fo"), chunk("ur", "STOP")]


async def test_a_model_that_does_not_stream_gives_an_array_of_one() -> None:
    async with world(answering(chunk("four", "STOP")), dialect="gemini") as w, w.post(PATH, json=BODY) as reply:
        assert await reply.json() == [chunk("four", "STOP")]


async def test_a_silent_model_keeps_the_array_alive_with_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "GRACE_SEC", 0.02)
    monkeypatch.setattr(transfer, "KEEP_ALIVE_SEC", 0.02)
    go_on = asyncio.Event()

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        await go_on.wait()
        response = await stream(request)
        await response.write(event(chunk("four", "STOP")))
        return response

    async with world(model, dialect="gemini") as w, w.post(PATH, json=BODY) as reply:
        blanks = await read_until(reply, b"\n\n")
        go_on.set()
        assert json.loads(blanks + await reply.read()) == [chunk("four", "STOP")]


@pytest.mark.parametrize("parts", [(event(chunk("fo")),), (event(chunk("fo")), b"data: {nonsense\n\n")])
async def test_a_reply_that_breaks_off_ends_in_an_error(parts: tuple[bytes, ...]) -> None:
    async with world(streaming(*parts), dialect="gemini") as w, w.post(PATH, json=BODY) as reply:
        *elements, error = json.loads(await read_to_break(reply))
        assert elements == [chunk("fo")]
        assert error["error"]["code"] == 502


async def test_an_error_of_the_model_is_an_error_and_no_array() -> None:
    refused = answering({"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}, 400)
    async with world(refused, dialect="gemini") as w, w.post(PATH, json=BODY) as reply:
        assert (reply.status, (await reply.json())["error"]["message"]) == (400, "no")
