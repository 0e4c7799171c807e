"""The four dialects as bytes: requests of agents, replies and errors of models, and a server that sends them."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from support.gateway_world import Handler, stream
from whet.gateway.dialects import DIALECTS
from whet.testing import Reply
from whet.testing.wire import read_call, write_stream, write_whole

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/tiny:generateContent",
}
TURN = [{"role": "user", "content": "2+2?"}]
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "tiny", "messages": TURN},
    "responses": {"model": "tiny", "input": TURN},
    "messages": {"model": "tiny", "max_tokens": 99, "messages": TURN},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "2+2?"}]}]},
}
_CUT_SHORT = {
    "chat": [('"finish_reason":"stop"', '"finish_reason":"length"')],
    "responses": [
        ('"created_at":0,"status":"completed"', '"created_at":0,"status":"incomplete"'),
        ('"incomplete_details":null', '"incomplete_details":{"reason":"max_output_tokens"}'),
        ("response.completed", "response.incomplete"),
    ],
    "messages": [('"stop_reason":"end_turn"', '"stop_reason":"max_tokens"')],
    "gemini": [('"finishReason":"STOP"', '"finishReason":"MAX_TOKENS"')],
}
"""What a model says otherwise when it ran out of tokens; no script can play it."""


def asked(front: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """Path and body of a request."""
    if not stream:
        return PATHS[front], BODIES[front]
    if front == "gemini":
        return "/v1beta/models/tiny:streamGenerateContent?alt=sse", BODIES[front]
    return PATHS[front], BODIES[front] | {"stream": True}


def played(back: str, reply: Reply, *, stream: bool, cut_short: bool = False) -> bytes:
    """The reply as a model of this dialect sends it. Its ids are the same in both forms."""
    options = {"stream_options": {"include_usage": True}} if back == "chat" else {}
    call = read_call(DIALECTS[back], json.dumps(BODIES[back] | options).encode(), PATHS[back])
    body = b"".join(write_stream(call, reply)) if stream else write_whole(call, reply)
    for usual, instead in _CUT_SHORT[back] if cut_short else ():
        body = body.replace(usual.encode(), instead.encode())
    return body


def error_of(back: str, status: int, message: str) -> bytes:
    """The body of an error as a model of this dialect sends it."""
    return DIALECTS[back].error_body(status, message)


def says_error(front: str, status: int, body: bytes) -> bool:
    """Whether the body is an error as an agent of this dialect expects it with this status."""
    match front, json.loads(body):
        case "messages", {"type": "error", "error": {"type": str(), "message": str()}, "request_id": _}:
            return True
        case "gemini", {"error": {"code": code, "message": str(), "status": str(), "details": list()}}:
            return bool(code == status)
        case "chat" | "responses", {"error": {"message": str(), "type": str(), "param": _, "code": _}}:
            return True
    return False


class CannedServer:
    """A model server that answers as the test says, with whole replies and with streams."""

    def __init__(self) -> None:
        self.handler: Handler = self._send
        self.whole = b""
        self.pieces: Sequence[bytes] = ()
        self.asked = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        return await self.handler(request)

    def send(self, whole: bytes, *pieces: bytes) -> None:
        """From now on, send this reply."""
        self.handler, self.whole, self.pieces = self._send, whole, pieces

    async def _send(self, request: web.BaseRequest) -> web.StreamResponse:
        if not await wants_stream(request):
            return web.Response(body=self.whole, content_type="application/json")
        response = await stream(request)
        for piece in self.pieces:
            await response.write(piece)
            await _seen_by_the_reader()
        return response


async def wants_stream(request: web.BaseRequest) -> bool:
    """Whether the gateway asks for a stream."""
    return "stream" in request.path or bool(json.loads(await request.read()).get("stream"))


async def _seen_by_the_reader() -> None:
    """Let the gateway, which runs on the same loop, read what was written before more of it comes."""
    for _ in range(4):
        await asyncio.sleep(0)
