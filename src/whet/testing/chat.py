"""The chat completions dialect: reads a request, and renders a reply as JSON or as server-sent events."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec

from whet.ids import digest
from whet.testing.play import Turn
from whet.testing.script import Reply, ToolCall

MODEL = "scripted"
CREATED = 1_700_000_000
"""A fixed time, so that two plays of a script give the same bytes."""

_FEW_WORDS = re.compile(r"(?:\S+\s*){1,3}|\s+")
_FRAGMENT = 24
"""Characters of tool arguments in one delta."""

_ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    529: ("server_error", "overloaded"),
}


class BadRequestError(Exception):
    """The request is not what the dialect asks for."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the play and the rendering need of a request."""

    digest: str
    """Of the body; every id of the answer comes from it."""
    model: str
    stream: bool
    include_usage: bool
    conversation: tuple[Turn, ...]
    tokens: int


class _ContentPart(msgspec.Struct):
    text: str = ""


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    role: str
    content: str | list[_ContentPart] | None = None
    tool_calls: list[_Call] | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content) if isinstance(self.content, list) else self.content or ""


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str = MODEL
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


def read(body: bytes) -> Request:
    """The request in a body; BadRequestError says what is wrong with it."""
    try:
        parsed = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(str(error)) from None
    if not parsed.messages:
        raise BadRequestError("Expected at least one message - at `$.messages`")
    calls = [call.function for message in parsed.messages for call in message.tool_calls or ()]
    turns = tuple(Turn("system" if m.role == "developer" else m.role, m.text) for m in parsed.messages)
    return Request(
        digest=digest(body),
        model=parsed.model,
        stream=bool(parsed.stream),
        include_usage=bool(parsed.stream_options and parsed.stream_options.include_usage),
        conversation=turns,
        tokens=_tokens(*(turn.text for turn in turns), *(call.name + call.arguments for call in calls)),
    )


def whole(request: Request, reply: Reply | None) -> bytes:
    """The answer in one piece; without a reply it has no choices."""
    choices = []
    if reply is not None:
        message: dict[str, Any] = {"role": "assistant", "content": _content(reply)}
        if reply.tools:
            message["tool_calls"] = [
                {"id": _call_id(request, index), "type": "function", "function": _function(tool)}
                for index, tool in enumerate(reply.tools)
            ]
        choices.append({"index": 0, "message": message, "finish_reason": _finish(reply)})
    return _json(_head(request, "chat.completion") | {"choices": choices, "usage": _usage(request, reply)})


def events(request: Request, reply: Reply | None) -> list[bytes]:
    """The answer as a stream; without a reply no chunk of it has choices."""
    head = _head(request, "chat.completion.chunk")
    if request.include_usage:
        head["usage"] = None
    chunks = [head | {"choices": choices} for choices in _streamed_choices(request, reply)]
    if request.include_usage:
        chunks.append(head | {"choices": [], "usage": _usage(request, reply)})
    return [b"data: " + data + b"\n\n" for data in (*map(_json, chunks), b"[DONE]")]


def error(status: int, message: str) -> bytes:
    """The body of an answer with an error status."""
    kind, code = _ERRORS[status]
    return _json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def models() -> bytes:
    """The list of models: one."""
    model = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "whet"}
    return _json({"object": "list", "data": [model]})


def _streamed_choices(request: Request, reply: Reply | None) -> Iterator[list[dict[str, Any]]]:
    if reply is None:
        yield []
        return
    for delta in _deltas(request, reply):
        yield [{"index": 0, "delta": delta, "finish_reason": None}]
    yield [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]


def _deltas(request: Request, reply: Reply) -> Iterator[dict[str, Any]]:
    content = _content(reply)
    yield {"role": "assistant", "content": None if content is None else ""}
    for words in _FEW_WORDS.findall(content or ""):
        yield {"content": words}
    for index, tool in enumerate(reply.tools):
        function = _function(tool)
        arguments = function["arguments"]
        opening = {"id": _call_id(request, index), "type": "function", "function": function | {"arguments": ""}}
        yield {"tool_calls": [{"index": index} | opening]}
        for start in range(0, len(arguments), _FRAGMENT):
            fragment = arguments[start : start + _FRAGMENT]
            yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def _head(request: Request, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.digest}", "object": kind, "created": CREATED, "model": request.model}


def _content(reply: Reply) -> str | None:
    return reply.text if reply.text is not None or reply.tools else ""


def _function(tool: ToolCall) -> dict[str, str]:
    arguments = tool.arguments if isinstance(tool.arguments, str) else _json(tool.arguments).decode()
    return {"name": tool.name, "arguments": arguments}


def _call_id(request: Request, index: int) -> str:
    return f"call_{digest(request.digest.encode(), str(index).encode())[:24]}"


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.tools else "stop"


def _usage(request: Request, reply: Reply | None) -> dict[str, Any]:
    said = [] if reply is None else [reply.text or "", *("".join(_function(tool).values()) for tool in reply.tools)]
    output = _tokens(*said)
    return {
        "prompt_tokens": request.tokens,
        "completion_tokens": output,
        "total_tokens": request.tokens + output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _tokens(*texts: str) -> int:
    """About as many as a real tokenizer would count."""
    return ceil(sum(map(len, texts)) / 4)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
