"""Requests as agents make them: into the neutral form, and how many tokens one has, by a rough count."""

from collections.abc import Iterable
from typing import Any

import msgspec

from whet.gateway.dialects.messages.blocks import (
    MAY_HOLD,
    BlockReader,
    CallIds,
    Lost,
    dump,
    fitting,
    load,
    read_fields,
    results_first,
)
from whet.gateway.dialects.neutral import Format, Json, Message, Request, Sampling, Text, Tool, ToolChoice

_BILLING = "x-anthropic-billing-header:"
_BUDGETS = ((4096, "low"), (16384, "medium"))
"""Up to how many tokens of thinking an effort is low, medium; beyond that it is high."""

_CHARACTERS_PER_TOKEN = 4
_CHARACTERS_PER_IMAGE = 6000


class _Message(msgspec.Struct):
    role: str
    content: str | list[Json | str] | None = None


class _Body(msgspec.Struct):
    model: str
    messages: list[Json]
    system: str | list[Json | str] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[Json] | None = None
    tool_choice: Json | None = None
    thinking: Json | None = None
    output_config: Json | None = None
    stream: bool | None = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: Json
    description: str | None = None
    strict: bool | None = None


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _ThinkingConfig(msgspec.Struct):
    type: str
    budget_tokens: int | None = None
    display: str | None = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: Json | None = None


class _Format(msgspec.Struct):
    type: str
    schema: Json | None = None


class _Streamed(msgspec.Struct):
    stream: bool = False


def wants_stream(body: bytes, path: str) -> bool:  # noqa: ARG001 - the body says it
    """Whether the request asks for events."""
    try:
        return load(body, _Streamed).stream
    except ValueError:
        return False


def count_reply(body: bytes) -> bytes:
    """The answer to the question how many tokens a request has: a quarter of its characters. ValueError if it is none.

    >>> count_reply(b'{"messages": [{"role": "user", "content": "How many?"}]}')
    b'{"input_tokens":6}'
    """
    request = load(body, Json)
    characters = sum(_characters(request.get(key)) for key in ("system", "messages", "tools"))
    return dump({"input_tokens": -(-characters // _CHARACTERS_PER_TOKEN)})


def read_request(body: bytes, path: str) -> Request:  # noqa: ARG001 - the body says everything
    """The request in neutral form. ValueError when it is none."""
    lost = Lost()
    try:
        return _read(read_fields(load(body, Json), _Body, lost), lost)
    except ValueError as error:
        raise ValueError(f"not a Messages request: {error}") from error


def _read(body: _Body, lost: Lost) -> Request:
    messages = (*_read_system(body.system, lost), *_read_messages(body.messages, lost))
    tools = tuple(tool for given in body.tools or () if (tool := _read_tool(given, lost)))
    choice, parallel = _read_choice(body.tool_choice, tools, lost)
    effort, form = _read_output_config(body.output_config, lost)
    asked = _read_thinking(body.thinking, lost)
    return Request(
        model=body.model,
        messages=messages,
        tools=tools,
        tool_choice=choice,
        parallel_tools=parallel,
        sampling=Sampling(
            max_tokens=body.max_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            stop=tuple(body.stop_sequences or ()),
            effort=effort or asked,
        ),
        format=form,
        stream=body.stream or False,
        lost=lost.names(),
    )


def _read_system(system: str | list[Json | str] | None, lost: Lost) -> list[Message]:
    parts = BlockReader(lost, CallIds()).parts(system)
    texts = (_without_billing(part.text) for part in fitting("system", parts, lost) if isinstance(part, Text))
    blocks = tuple(Text(text) for text in texts if text)
    return [Message("system", blocks)] if blocks else []


def _without_billing(text: str) -> str:
    """The text without the line by which an agent accounts to its provider, which is not for other models."""
    return text.partition("\n")[2] if text.startswith(_BILLING) else text


def _read_messages(given: list[Json], lost: Lost) -> Iterable[Message]:
    blocks = BlockReader(lost, CallIds())
    for fields in given:
        message = read_fields(fields, _Message, lost, "message")
        if message.role not in MAY_HOLD:
            lost.name(f"message of role {message.role}")
        elif parts := fitting(message.role, blocks.parts(message.content), lost):
            yield Message(message.role, results_first(parts))


def _read_tool(given: Json, lost: Lost) -> Tool | None:
    if given.get("input_schema") is None:
        # Its provider defines it, and mostly runs it too.
        lost.name(f"tool {given.get('name') or given.get('type')}")
        return None
    tool = read_fields(given, _Tool, lost, "tool")
    return Tool(tool.name, tool.description or "", tool.input_schema, strict=tool.strict)


def _read_choice(given: Json | None, tools: tuple[Tool, ...], lost: Lost) -> tuple[ToolChoice | None, bool | None]:
    if given is None or not tools:
        return None, None
    choice = read_fields(given, _ToolChoice, lost, "tool_choice")
    parallel = None if choice.disable_parallel_tool_use is None else not choice.disable_parallel_tool_use
    match choice.type:
        case "tool" if any(tool.name == choice.name for tool in tools):
            return ToolChoice("tool", choice.name), parallel
        case "any":
            return ToolChoice("required"), parallel
        case "none":
            return ToolChoice("none"), parallel
        case "auto" | "tool":
            # A tool that is chosen and not there was lost itself.
            return ToolChoice("auto"), parallel
    lost.name(f"tool_choice {choice.type}")
    return None, parallel


def _read_output_config(given: Json | None, lost: Lost) -> tuple[str | None, Format | None]:
    config = read_fields(given or {}, _OutputConfig, lost, "output_config")
    if config.format is None:
        return config.effort, None
    form = read_fields(config.format, _Format, lost, "output_config.format")
    if form.type == "json_schema" and form.schema is not None:
        return config.effort, Format(form.schema)
    lost.name(f"output_config.format {form.type}")
    return config.effort, None


def _read_thinking(given: Json | None, lost: Lost) -> str | None:
    """The effort that comes nearest. Adaptive thinking leaves it to the model, as saying nothing does."""
    if given is None:
        return None
    config = read_fields(given, _ThinkingConfig, lost, "thinking")
    if config.type == "enabled":
        budget = config.budget_tokens or 0
        return next((effort for most, effort in _BUDGETS if budget <= most), "high")
    if config.type != "adaptive":
        # Not the effort "none": many endpoints refuse a request that says so.
        lost.name(f"thinking {config.type}")
    return None


def _characters(value: Any) -> int:
    """The characters of all text in a value. Pictures count as much as they cost, not as much as they are long."""
    total, rest = 0, [value]
    while rest:
        match rest.pop():
            case str(text):
                total += len(text)
            case {"type": "base64"}:
                total += _CHARACTERS_PER_IMAGE
            case dict(fields):
                rest += [*fields, *fields.values()]
            case list(items):
                rest += items
    return total
