"""A request in chat completions, read into the neutral form."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec

from whet.gateway.dialects.chat.message import WireMessage, fitting, read_calls, read_content, read_speech
from whet.gateway.dialects.neutral import (
    Format,
    Json,
    Message,
    Refusal,
    Request,
    Role,
    Sampling,
    Tool,
    ToolChoice,
    ToolResult,
)

MEANS_NOTHING_TO_THE_MODEL = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Custom(msgspec.Struct):
    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: _Function | None = None
    custom: _Custom | None = None


class _Named(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    type: str = "function"
    function: _Named | None = None
    custom: _Named | None = None


class _Schema(msgspec.Struct):
    schema: dict[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None


class _Format(msgspec.Struct):
    type: str
    json_schema: _Schema | None = None


class _Request(msgspec.Struct):
    model: str
    messages: list[WireMessage]
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | str | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning_effort: str | None = None
    response_format: _Format | None = None
    stream: bool | None = None
    n: int | None = None


class _StreamFlag(msgspec.Struct):
    stream: bool | None = None


def wants_stream(body: bytes, path: str) -> bool:  # noqa: ARG001 - the contract of all dialects
    """Whether the reply is to come as server-sent events."""
    try:
        return bool(msgspec.json.decode(body, type=_StreamFlag).stream)
    except (ValueError, RecursionError):
        return False


def read_request(body: bytes, path: str) -> Request:  # noqa: ARG001 - the contract of all dialects
    """What the request asks for. ValueError when it is no chat request.

    >>> read_request(b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}', "").messages
    (Message(role='user', parts=(Text(text='hi'),)),)
    """
    try:
        document = msgspec.json.decode(body)
        wire = msgspec.convert(document, _Request)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a chat request: {error}") from error
    if wire.n not in {None, 1}:
        raise ValueError("n must be 1: a call gives one reply")
    lost = _unknown(document)
    return Request(
        model=wire.model,
        messages=tuple(_read_messages(wire.messages, lost)),
        tools=tuple(_read_tools(wire.tools or (), lost)),
        tool_choice=_read_tool_choice(wire.tool_choice, lost),
        parallel_tools=wire.parallel_tool_calls,
        sampling=_read_sampling(wire),
        format=_read_format(wire.response_format, lost),
        stream=bool(wire.stream),
        lost=tuple(dict.fromkeys(lost)),
    )


def _unknown(document: Json) -> list[str]:
    """The fields that ask for something that has no place in the neutral form."""
    known = MEANS_NOTHING_TO_THE_MODEL.union(_Request.__struct_fields__)
    return [key for key, value in document.items() if key not in known and value not in (None, False, [], {})]


def _read_messages(messages: Iterable[WireMessage], lost: list[str]) -> Iterator[Message]:
    custom: set[str] = set()
    for role, group in groupby(messages, key=lambda message: message.role):
        match role:
            case "system" | "developer":
                yield from (_read_plain("system", message, lost) for message in group)
            case "user":
                yield from (_read_plain("user", message, lost) for message in group)
            case "assistant":
                for message in group:
                    called = read_calls(message, lost)
                    custom.update(call.id for call in called if call.custom)
                    yield Message("assistant", (*read_speech(message, lost), *called))
            case "tool":
                yield Message("user", tuple(_read_result(message, custom, lost) for message in group))
            case _:
                lost.append(f"message role {role}")


def _read_plain(role: Role, message: WireMessage, lost: list[str]) -> Message:
    return Message(role, tuple(fitting(role, read_content(message.content, lost), lost)))


def _read_result(message: WireMessage, custom: set[str], lost: list[str]) -> ToolResult:
    call_id = message.tool_call_id or ""
    parts = tuple(part for part in read_content(message.content, lost) if not isinstance(part, Refusal))
    return ToolResult(call_id, parts, message.name, custom=call_id in custom)


def _read_tools(tools: Iterable[_Tool], lost: list[str]) -> Iterator[Tool]:
    for tool in tools:
        if tool.type == "function" and (function := tool.function):
            yield Tool(function.name, function.description or "", function.parameters, strict=function.strict)
        elif tool.type == "custom" and (custom := tool.custom):
            yield Tool(custom.name, custom.description or "", custom=True, grammar=custom.format)
        else:
            lost.append(f"tool {tool.type}")


def _read_tool_choice(choice: _ToolChoice | str | None, lost: list[str]) -> ToolChoice | None:
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case _ToolChoice(function=_Named(name)) | _ToolChoice(custom=_Named(name)):
            return ToolChoice("tool", name)
    lost.append(f"tool_choice {choice if isinstance(choice, str) else choice.type}")
    return None


def _read_sampling(wire: _Request) -> Sampling:
    return Sampling(
        max_tokens=wire.max_tokens if wire.max_completion_tokens is None else wire.max_completion_tokens,
        temperature=wire.temperature,
        top_p=wire.top_p,
        top_k=wire.top_k,
        stop=(wire.stop,) if isinstance(wire.stop, str) else tuple(wire.stop or ()),
        seed=wire.seed,
        presence_penalty=wire.presence_penalty,
        frequency_penalty=wire.frequency_penalty,
        effort=wire.reasoning_effort,
    )


def _read_format(stated: _Format | None, lost: list[str]) -> Format | None:
    if stated is None or stated.type == "text":
        return None
    if stated.type == "json_object":
        return Format()
    if stated.type == "json_schema" and (schema := stated.json_schema):
        return Format(schema.schema, schema.name, schema.strict)
    lost.append(f"response_format {stated.type}")
    return None
