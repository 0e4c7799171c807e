"""The chat completions dialect: reads a request, and renders a reply as JSON or as server-sent events."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from whet.ids import digest
from whet.testing import dialect, tokens
from whet.testing.dialect import (
    CREATED,
    MODEL,
    BadRequestError,
    arguments_text,
    encode,
    fragments,
    item_id,
    pieces,
)
from whet.testing.play import Turn
from whet.testing.script import Reply, ToolCall
from whet.testing.tokens import Mark
from whet.testing.tools import offered

_ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "overloaded"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(dialect.Request):
    """A request for a chat completion."""

    include_usage: bool
    prompt_ids: tuple[int, ...] | None
    """None when the model keeps its tokens to itself."""
    return_token_ids: bool
    return_logprobs: bool


class _ContentPart(msgspec.Struct):
    text: str = ""
    type: str = "text"


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    role: str
    content: str | list[_ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content) if isinstance(self.content, list) else self.content or ""

    @property
    def thinking(self) -> str:
        return self.reasoning_content or self.reasoning or ""

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(call.function.name, call.function.arguments) for call in self.tool_calls or ()]

    @property
    def turn(self) -> Turn:
        role = "system" if self.role == "developer" else self.role
        return Turn(
            role,
            self.text,
            self.thinking + "".join(map("".join, self.calls)),
            calls=tuple(name for name, _ in self.calls),
            image=isinstance(self.content, list) and any(part.type == "image_url" for part in self.content),
        )

    @property
    def ids(self) -> list[int]:
        return tokens.speech(self.thinking, self.text, self.calls)


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _JsonSchema(msgspec.Struct):
    schema: Any = None


class _ResponseFormat(msgspec.Struct):
    json_schema: _JsonSchema | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str = MODEL
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    return_token_ids: bool | None = None
    logprobs: bool | None = None
    tools: Any = None
    response_format: _ResponseFormat | None = None


def read(body: bytes, *, with_tokens: bool = False) -> Request:
    """The request in a body; BadRequestError says what is wrong with it. Without tokens, asking for them is idle."""
    parsed = dialect.decode(body, _Body)
    messages = parsed.messages
    if not messages:
        raise BadRequestError("Expected at least one message - at `$.messages`")
    conversation = tuple(message.turn for message in messages)
    prompt_ids = tokens.prompt((message.role, message.ids) for message in messages) if with_tokens else None
    return Request(
        digest=digest(body),
        model=parsed.model,
        stream=bool(parsed.stream),
        include_usage=bool(parsed.stream_options and parsed.stream_options.include_usage),
        conversation=conversation,
        tokens=dialect.count_turns(conversation) if prompt_ids is None else len(prompt_ids),
        tools=tuple(offered(parsed.tools)),
        schema=wanted.json_schema.schema if (wanted := parsed.response_format) and wanted.json_schema else None,
        prompt_ids=prompt_ids,
        return_token_ids=with_tokens and bool(parsed.return_token_ids),
        return_logprobs=with_tokens and bool(parsed.logprobs),
    )


def whole(request: Request, reply: Reply | None) -> bytes:
    """The answer in one piece; without a reply it has no choices."""
    choices = []
    if reply is not None:
        message: dict[str, Any] = {"role": "assistant", "content": _content(reply)}
        if reply.thinking:
            message["reasoning_content"] = reply.thinking
        if reply.tools:
            message["tool_calls"] = [
                {"id": item_id("call", request, index), "type": "function", "function": _function(tool)}
                for index, tool in enumerate(reply.tools)
            ]
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        choices.append(choice | _sampled(request, _completion(reply), 0))
    head = _head(request, "chat.completion") | _prompt(request)
    return encode(head | {"choices": choices, "usage": _usage(request, reply)})


def events(request: Request, reply: Reply | None) -> list[bytes]:
    """The answer as a stream; without a reply no chunk of it has choices."""
    head = _head(request, "chat.completion.chunk")
    if request.include_usage:
        head["usage"] = None
    chunks = [head | {"choices": choices} for choices in _streamed_choices(request, reply)]
    chunks[0] |= _prompt(request)
    if request.include_usage:
        chunks.append(head | {"choices": [], "usage": _usage(request, reply)})
    return [*map(dialect.event, chunks), b"data: [DONE]\n\n"]


def error(status: int, message: str) -> bytes:
    """The body of an answer with an error status."""
    kind, code = _ERRORS[status]
    return encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def models() -> bytes:
    """The list of models: one."""
    model = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "whet"}
    return encode({"object": "list", "data": [model]})


def _streamed_choices(request: Request, reply: Reply | None) -> Iterator[list[dict[str, Any]]]:
    if reply is None:
        yield []
        return
    place = 0
    for delta, ids in _deltas(request, reply):
        yield [{"index": 0, "delta": delta, "finish_reason": None} | _sampled(request, ids, place)]
        place += len(ids)
    yield [{"index": 0, "delta": {}, "finish_reason": _finish(reply)} | _sampled(request, [Mark.END], place)]


def _deltas(request: Request, reply: Reply) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """What each chunk adds, and the ids that were sampled for it."""
    content = _content(reply)
    yield {"role": "assistant", "content": None if content is None else ""}, []
    for key, mark, text in (("reasoning_content", Mark.THINK, reply.thinking), ("content", Mark.SAY, content)):
        for number, words in enumerate(pieces(text or "")):
            yield {key: words}, [*([] if number else [mark]), *tokens.encode(words)]
    for index, tool in enumerate(reply.tools):
        function = _function(tool) | {"arguments": ""}
        opening = {"index": index, "id": item_id("call", request, index), "type": "function", "function": function}
        yield {"tool_calls": [opening]}, [Mark.CALL, *tokens.encode(tool.name), Mark.ARGUMENTS]
        for fragment in fragments(arguments_text(tool)):
            yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}, tokens.encode(fragment)


def _head(request: Request, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.digest}", "object": kind, "created": CREATED, "model": request.model}


def _content(reply: Reply) -> str | None:
    return reply.text if reply.text is not None or reply.tools else ""


def _function(tool: ToolCall) -> dict[str, str]:
    return {"name": tool.name, "arguments": arguments_text(tool)}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.tools else "stop"


def _prompt(request: Request) -> dict[str, Any]:
    return {"prompt_token_ids": request.prompt_ids} if request.return_token_ids else {}


def _sampled(request: Request, ids: Sequence[int], place: int) -> dict[str, Any]:
    """What a choice says about ids that were sampled for it, the first of which has this place."""
    said: dict[str, Any] = {}
    if request.return_logprobs:
        said["logprobs"] = {"content": tokens.logprobs(ids, place)} if ids else None
    if request.return_token_ids:
        said["token_ids"] = ids or None
    return said


def _completion(reply: Reply) -> list[int]:
    calls = [(tool.name, arguments_text(tool)) for tool in reply.tools]
    return [*tokens.speech(reply.thinking or "", reply.text or "", calls), Mark.END]


def _usage(request: Request, reply: Reply | None) -> dict[str, Any]:
    used = dialect.usage(request, reply)
    output, reasoning = used.output, used.reasoning
    if request.prompt_ids is not None and reply is not None:
        output, reasoning = len(_completion(reply)), len(tokens.speech(reply.thinking or "", "", ()))
    return {
        "prompt_tokens": used.input,
        "completion_tokens": output,
        "total_tokens": used.input + output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
