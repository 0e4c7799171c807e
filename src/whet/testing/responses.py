"""The responses dialect: reads a request, and renders a reply as JSON or as server-sent events."""

from collections.abc import Iterator
from typing import Any

import msgspec

from whet.ids import digest
from whet.testing import dialect
from whet.testing.chat import error as error
from whet.testing.dialect import (
    CREATED,
    MODEL,
    BadRequestError,
    Request,
    arguments_text,
    encode,
    fragments,
    item_id,
    pieces,
    signature,
    speaks,
)
from whet.testing.play import Turn
from whet.testing.script import Reply, ToolCall
from whet.testing.tools import offered


class _Part(msgspec.Struct):
    text: str = ""
    type: str = ""


_Content = str | list[_Part]


class _Item(msgspec.Struct):
    type: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: _Content


class _Reasoning(msgspec.Struct):
    summary: list[_Part]


class _Call(msgspec.Struct):
    name: str
    arguments: str = ""
    input: str = ""


class _Output(msgspec.Struct):
    output: _Content


class _Format(msgspec.Struct):
    schema: Any = None


class _TextConfig(msgspec.Struct):
    format: _Format | None = None


class _Body(msgspec.Struct):
    input: str | list[msgspec.Raw]
    model: str = MODEL
    instructions: str | None = None
    stream: bool | None = None
    tools: Any = None
    text: _TextConfig | None = None
    previous_response_id: str | None = None


def read(body: bytes) -> Request:
    """The request in a body; BadRequestError says what is wrong with it."""
    parsed = dialect.decode(body, _Body)
    if parsed.previous_response_id is not None:
        raise BadRequestError("The scripted model stores no responses; send the whole input")
    if not parsed.input:
        raise BadRequestError("Expected at least one item - at `$.input`")
    turns = [Turn("system", parsed.instructions)] if parsed.instructions else []
    if isinstance(parsed.input, str):
        turns.append(Turn("user", parsed.input))
    else:
        turns += [turn for item in parsed.input if (turn := _read_item(bytes(item)))]
    return Request(
        digest=digest(body),
        model=parsed.model,
        stream=bool(parsed.stream),
        conversation=tuple(turns),
        tokens=dialect.count_turns(turns),
        tools=tuple(offered(parsed.tools)),
        schema=wanted.format.schema if (wanted := parsed.text) and wanted.format else None,
    )


def whole(request: Request, reply: Reply | None) -> bytes:
    """The answer in one piece; without a reply it has no output."""
    return encode(_completed(request, reply))


def events(request: Request, reply: Reply | None) -> list[bytes]:
    """The answer as a stream; without a reply no item comes."""
    begun = _head(request) | {"status": "in_progress", "output": [], "usage": None}
    data = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(one for index, item in enumerate(_output(request, reply)) for one in _streamed(index, item)),
        {"type": "response.completed", "response": _completed(request, reply)},
    ]
    return [dialect.named_event(one | {"sequence_number": number}) for number, one in enumerate(data)]


def _read_item(item: bytes) -> Turn | None:
    """The turn that an item is, or is part of; None for kinds that nobody speaks in, such as declared tools."""
    match dialect.decode(item, _Item).type:
        case None | "message":
            message = dialect.decode(item, _Message)
            role = "system" if message.role == "developer" else message.role
            return Turn(role, _text(message.content), image=_pictured(message.content))
        case "reasoning":
            return Turn("assistant", "", _text(dialect.decode(item, _Reasoning).summary))
        case "function_call" | "custom_tool_call":
            call = dialect.decode(item, _Call)
            return Turn("assistant", "", call.name + call.arguments + call.input, calls=(call.name,))
        case "function_call_output" | "custom_tool_call_output":
            output = dialect.decode(item, _Output).output
            return Turn("tool", _text(output), image=_pictured(output))
        case _:
            return None


def _text(content: _Content) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _pictured(content: _Content) -> bool:
    return isinstance(content, list) and any(part.type == "input_image" for part in content)


def _completed(request: Request, reply: Reply | None) -> dict[str, Any]:
    done = {"status": "completed", "output": _output(request, reply), "usage": _usage(request, reply)}
    return _head(request) | done


def _head(request: Request) -> dict[str, Any]:
    return {
        "id": f"resp_{request.digest}",
        "object": "response",
        "created_at": CREATED,
        "model": request.model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }


def _output(request: Request, reply: Reply | None) -> list[dict[str, Any]]:
    if reply is None:
        return []
    items: list[dict[str, Any]] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        thought = {"id": item_id("rs", request, 0), "type": "reasoning", "summary": summary}
        items.append(thought | {"encrypted_content": signature(reply.thinking)})
    if speaks(reply):
        message = {"id": item_id("msg", request, 0), "type": "message", "role": "assistant", "status": "completed"}
        items.append(message | {"content": [_output_text(reply.text or "")]})
    return [*items, *(_call(request, index, tool) for index, tool in enumerate(reply.tools))]


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(request: Request, index: int, tool: ToolCall) -> dict[str, Any]:
    head = {"call_id": item_id("call", request, index), "name": tool.name, "status": "completed"}
    text = arguments_text(tool)
    declared = next((declared for declared in request.tools if declared.name == tool.name), None)
    if declared is not None and declared.namespace is not None:
        head["namespace"] = declared.namespace
    if declared is not None and declared.custom and isinstance(tool.arguments, str):
        return {"id": item_id("ctc", request, index), "type": "custom_tool_call", **head, "input": text}
    return {"id": item_id("fc", request, index), "type": "function_call", **head, "arguments": text}


def _streamed(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One item of the output, from nothing to whole."""
    place = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "reasoning":
            unfilled: dict[str, Any] = {"summary": [], "encrypted_content": None}
            filling = _streamed_summary(place, item["summary"][0])
        case "message":
            unfilled = {"content": [], "status": "in_progress"}
            filling = _streamed_text(place, item["content"][0])
        case "function_call":
            unfilled = {"arguments": "", "status": "in_progress"}
            filling = _streamed_arguments(place, "function_call_arguments", "arguments", item["arguments"])
        case _:
            unfilled = {"input": "", "status": "in_progress"}
            filling = _streamed_arguments(place, "custom_tool_call_input", "input", item["input"])
    yield {"type": "response.output_item.added", "output_index": index, "item": item | unfilled}
    yield from filling
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _streamed_summary(place: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = place | {"summary_index": 0}
    yield {"type": "response.reasoning_summary_part.added", **place, "part": part | {"text": ""}}
    for words in pieces(part["text"]):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": words}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}


def _streamed_text(place: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = place | {"content_index": 0}
    yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
    for words in pieces(part["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": words, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}


def _streamed_arguments(place: dict[str, Any], kind: str, key: str, text: str) -> Iterator[dict[str, Any]]:
    for fragment in fragments(text):
        yield {"type": f"response.{kind}.delta", **place, "delta": fragment}
    yield {"type": f"response.{kind}.done", **place, key: text}


def _usage(request: Request, reply: Reply | None) -> dict[str, Any]:
    used = dialect.usage(request, reply)
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }
