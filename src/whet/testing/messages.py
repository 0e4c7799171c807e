"""The messages dialect: reads a request, and renders a reply as JSON or as server-sent events."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from whet.ids import digest
from whet.testing import dialect
from whet.testing.dialect import (
    CREATED,
    MODEL,
    BadRequestError,
    Request,
    arguments_object,
    arguments_text,
    encode,
    fragments,
    item_id,
    pieces,
    signature,
    speaks,
)
from whet.testing.play import Turn
from whet.testing.script import Reply
from whet.testing.tools import offered

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class _Block(msgspec.Struct):
    type: str = "text"
    text: str = ""
    thinking: str = ""
    name: str = ""
    input: Any = None
    content: "str | list[_Block] | None" = None

    @property
    def besides(self) -> str:
        return self.thinking + (self.name + encode(self.input).decode() if self.type == "tool_use" else "")


_Content = str | list[_Block]


class _Message(msgspec.Struct):
    role: str
    content: _Content


class _Format(msgspec.Struct):
    schema: Any = None


class _OutputConfig(msgspec.Struct):
    format: _Format | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str = MODEL
    max_tokens: int | None = None
    system: _Content | None = None
    stream: bool | None = None
    tools: Any = None
    output_config: _OutputConfig | None = None


def read(body: bytes) -> Request:
    """The request in a body; BadRequestError says what is wrong with it."""
    parsed = dialect.decode(body, _Body)
    if parsed.max_tokens is None:
        raise BadRequestError("Object missing required field `max_tokens`")
    conversation = _turns(parsed)
    return Request(
        digest=digest(body),
        model=parsed.model,
        stream=bool(parsed.stream),
        conversation=conversation,
        tokens=dialect.count_turns(conversation),
        tools=tuple(offered(parsed.tools)),
        schema=wanted.format.schema if (wanted := parsed.output_config) and wanted.format else None,
    )


def count(body: bytes) -> bytes:
    """The answer to a request that only asks how many tokens it holds."""
    return encode({"input_tokens": dialect.count_turns(_turns(dialect.decode(body, _Body)))})


def whole(request: Request, reply: Reply | None) -> bytes:
    """The answer in one piece; without a reply it has no content."""
    message = _message(request, _content(request, reply), _stop_reason(reply))
    return encode(message | {"usage": _usage(request, reply)})


def events(request: Request, reply: Reply | None) -> list[bytes]:
    """The answer as a stream; without a reply no block comes."""
    begun = _message(request, [], None) | {"usage": _usage(request, None)}
    ended = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    data = [
        {"type": "message_start", "message": begun},
        *_streamed_blocks(request, reply),
        {"type": "message_delta", "delta": ended, "usage": _usage(request, reply)},
        {"type": "message_stop"},
    ]
    return [dialect.named_event(one) for one in data]


def error(status: int, message: str) -> bytes:
    """The body of an answer with an error status."""
    body = {"type": "error", "error": {"type": _ERRORS[status], "message": message}}
    return encode(body | {"request_id": f"req_{digest(message.encode())[:24]}"})


def models() -> bytes:
    """The list of models: one."""
    created = datetime.fromtimestamp(CREATED, UTC)
    model = {"type": "model", "id": MODEL, "display_name": MODEL, "created_at": created, "lifecycle": "active"}
    return encode({"data": [model], "has_more": False, "first_id": MODEL, "last_id": MODEL})


def _turns(parsed: _Body) -> tuple[Turn, ...]:
    if not parsed.messages:
        raise BadRequestError("Expected at least one message - at `$.messages`")
    system = [Turn("system", _text(parsed.system))] if parsed.system else []
    return (*system, *(turn for message in parsed.messages for turn in _message_turns(message)))


def _message_turns(message: _Message) -> Iterator[Turn]:
    """The results of tools, which come in messages of the user, are turns of their own."""
    content = [_Block(text=message.content)] if isinstance(message.content, str) else message.content
    results = [block for block in content if block.type == "tool_result"]
    for result in results:
        yield Turn("tool", _text(result.content or ""), image=_pictured(result.content or ""))
    spoken = [block for block in content if block.type != "tool_result"]
    if spoken or not results:
        yield Turn(
            message.role,
            _text(spoken),
            "".join(block.besides for block in spoken),
            calls=tuple(block.name for block in spoken if block.type == "tool_use"),
            image=_pictured(spoken),
        )


def _text(content: _Content) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _pictured(content: _Content) -> bool:
    return isinstance(content, list) and any(block.type == "image" for block in content)


def _message(request: Request, content: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
    return {
        "id": f"msg_{request.digest}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }


def _content(request: Request, reply: Reply | None) -> list[dict[str, Any]]:
    if reply is None:
        return []
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": signature(reply.thinking)})
    if speaks(reply):
        blocks.append({"type": "text", "text": reply.text or ""})
    for index, tool in enumerate(reply.tools):
        use = {"type": "tool_use", "id": item_id("toolu", request, index), "name": tool.name}
        blocks.append(use | {"input": arguments_object(tool)})
    return blocks


def _streamed_blocks(request: Request, reply: Reply | None) -> Iterator[dict[str, Any]]:
    arguments = [] if reply is None else [arguments_text(tool) for tool in reply.tools]
    blocks = _content(request, reply)
    for index, block in enumerate(blocks):
        match block["type"]:
            case "thinking":
                unfilled: dict[str, Any] = {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": words} for words in pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "text":
                unfilled = {"text": ""}
                deltas = [{"type": "text_delta", "text": words} for words in pieces(block["text"])]
            case _:
                unfilled = {"input": {}}
                text = arguments[index - len(blocks)]
                deltas = [{"type": "input_json_delta", "partial_json": fragment} for fragment in fragments(text)]
        yield {"type": "content_block_start", "index": index, "content_block": block | unfilled}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def _stop_reason(reply: Reply | None) -> str:
    return "tool_use" if reply is not None and reply.tools else "end_turn"


def _usage(request: Request, reply: Reply | None) -> dict[str, Any]:
    used = dialect.usage(request, reply)
    return {
        "input_tokens": used.input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": used.output,
    }
