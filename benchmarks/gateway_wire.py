"""The four dialects as the gateway benchmark speaks them: requests of an agent, and canned replies of a model."""

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

TOOLS = 20
TOOL_BYTES = 600
REPLY_BYTES = 400

_POOL = "".join(
    "".join(letters) + " "
    for rng in [random.Random(0)]
    for letters in (rng.choices("etaoinshrdlucmfwypvbgkq", k=rng.randint(2, 9)) for _ in range(40_000))
)


def words(size: int) -> str:
    """Text of this size that is hardly ever the same twice, and compresses like prose."""
    start = random.randrange(len(_POOL) - size)
    return _POOL[start : start + size]


def encoded(data: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(data, separators=(",", ":")).encode()


def _event(data: Any) -> bytes:
    return b"data: " + encoded(data) + b"\n\n"


def _named(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\n".encode() + _event(data)


@dataclass(frozen=True)
class Dialect:
    """How one dialect looks on the wire."""

    path: str
    stream_path: str
    before: dict[str, Any]
    """What a request says before its conversation."""
    conversation: str
    """The key of the conversation."""
    stream: dict[str, Any]
    """What a request says to have its reply streamed."""
    tool: Callable[[str, str], Any]
    """A tool, from its name and description."""
    tools: Callable[[list[Any]], Any]
    user: Callable[[str], Any]
    """One turn of the user."""
    reply: Callable[[str], Any]
    said: Callable[[Any], list[Any]]
    """What a reply adds to the conversation."""
    opening: bytes
    """The events before the first text."""
    delta: Callable[[str], bytes]
    """The event that carries a piece of text."""
    closing: Callable[[str], bytes]
    """The events after the last text, from all of it."""

    def request_edges(self, *, tools: int, streamed: bool) -> tuple[bytes, bytes]:
        """The bytes of a request before and after the turns of its conversation."""
        after = dict(self.stream) if streamed else {}
        if tools:
            after["tools"] = self.tools([self.tool(f"tool_{n}", words(TOOL_BYTES)) for n in range(tools)])
        body = encoded({**self.before, self.conversation: [], **after})
        before, empty, rest = body.partition(encoded(self.conversation) + b":[")
        return before + empty, rest


_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def _chat_choice(finish: str | None, **content: Any) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{time.monotonic_ns()}",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, **content, "finish_reason": finish}],
    }


_CHAT_USAGE = {"usage": {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000}}

_CHAT = Dialect(
    path="/v1/chat/completions",
    stream_path="/v1/chat/completions",
    before={"model": "bench"},
    conversation="messages",
    stream={"stream": True, "stream_options": {"include_usage": True}},
    tool=lambda name, text: {
        "type": "function",
        "function": {"name": name, "description": text, "parameters": _SCHEMA},
    },
    tools=lambda tools: tools,
    user=lambda text: {"role": "user", "content": text},
    reply=lambda text: {
        **_chat_choice("stop", message={"role": "assistant", "content": text}),
        "object": "chat.completion",
        **_CHAT_USAGE,
    },
    said=lambda reply: [reply["choices"][0]["message"]],
    opening=_event(
        {**_chat_choice(None, delta={"role": "assistant", "content": ""}), "object": "chat.completion.chunk"}
    ),
    delta=lambda text: _event({**_chat_choice(None, delta={"content": text}), "object": "chat.completion.chunk"}),
    closing=lambda _: (
        _event({**_chat_choice("stop", delta={}), "object": "chat.completion.chunk"})
        + _event({**_chat_choice(None), "object": "chat.completion.chunk", "choices": [], **_CHAT_USAGE})
        + b"data: [DONE]\n\n"
    ),
)


def _response(status: str, text: str | None) -> dict[str, Any]:
    usage = {
        "input_tokens": 900,
        "output_tokens": 100,
        "total_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": f"resp_{time.monotonic_ns()}",
        "object": "response",
        "created_at": 0,
        "model": "bench",
        "status": status,
        "output": [] if text is None else [_output_message(text)],
        "usage": None if text is None else usage,
    }


def _output_message(text: str | None) -> dict[str, Any]:
    return {
        "id": "msg_0",
        "type": "message",
        "role": "assistant",
        "status": "in_progress" if text is None else "completed",
        "content": [] if text is None else [_output_text(text)],
    }


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _in_message(kind: str, **more: Any) -> bytes:
    return _named({"type": f"response.{kind}", "item_id": "msg_0", "output_index": 0, "content_index": 0, **more})


_RESPONSES = Dialect(
    path="/v1/responses",
    stream_path="/v1/responses",
    before={"model": "bench", "store": False},
    conversation="input",
    stream={"stream": True},
    tool=lambda name, text: {"type": "function", "name": name, "description": text, "parameters": _SCHEMA},
    tools=lambda tools: tools,
    user=lambda text: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
    reply=lambda text: _response("completed", text),
    said=lambda reply: list(reply["output"]),
    opening=(
        _named({"type": "response.created", "response": _response("in_progress", None)})
        + _named({"type": "response.output_item.added", "output_index": 0, "item": _output_message(None)})
        + _in_message("content_part.added", part=_output_text(""))
    ),
    delta=lambda text: _in_message("output_text.delta", delta=text),
    closing=lambda text: (
        _in_message("output_text.done", text=text)
        + _in_message("content_part.done", part=_output_text(text))
        + _named({"type": "response.output_item.done", "output_index": 0, "item": _output_message(text)})
        + _named({"type": "response.completed", "response": _response("completed", text)})
    ),
)


def _message(text: str | None) -> dict[str, Any]:
    return {
        "id": f"msg_{time.monotonic_ns()}",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [] if text is None else [{"type": "text", "text": text}],
        "stop_reason": None if text is None else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 900, "output_tokens": 1 if text is None else 100},
    }


_MESSAGES = Dialect(
    path="/v1/messages",
    stream_path="/v1/messages",
    before={"model": "bench", "max_tokens": 1000},
    conversation="messages",
    stream={"stream": True},
    tool=lambda name, text: {"name": name, "description": text, "input_schema": _SCHEMA},
    tools=lambda tools: tools,
    user=lambda text: {"role": "user", "content": text},
    reply=_message,
    said=lambda reply: [{"role": "assistant", "content": reply["content"]}],
    opening=(
        _named({"type": "message_start", "message": _message(None)})
        + _named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    ),
    delta=lambda text: _named(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    ),
    closing=lambda _: (
        _named({"type": "content_block_stop", "index": 0})
        + _named(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 100},
            }
        )
        + _named({"type": "message_stop"})
    ),
)


def _candidate(text: str, finish: str | None) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    return {
        "candidates": [{**candidate, "finishReason": finish} if finish else candidate],
        "usageMetadata": {"promptTokenCount": 900, "candidatesTokenCount": 100, "totalTokenCount": 1000},
        "modelVersion": "bench",
        "responseId": str(time.monotonic_ns()),
    }


_GEMINI = Dialect(
    path="/v1beta/models/bench:generateContent",
    stream_path="/v1beta/models/bench:streamGenerateContent?alt=sse",
    before={},
    conversation="contents",
    stream={},
    tool=lambda name, text: {"name": name, "description": text, "parameters": _SCHEMA},
    tools=lambda tools: [{"functionDeclarations": tools}],
    user=lambda text: {"role": "user", "parts": [{"text": text}]},
    reply=lambda text: _candidate(text, "STOP"),
    said=lambda reply: [reply["candidates"][0]["content"]],
    opening=b"",
    delta=lambda text: _event(_candidate(text, None)),
    closing=lambda _: _event(_candidate("", "STOP")),
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {"chat": _CHAT, "responses": _RESPONSES, "messages": _MESSAGES, "gemini": _GEMINI}
)
