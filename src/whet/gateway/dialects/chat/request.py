"""Requests in chat completions: read from agents, and written for models."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, groupby
from typing import Any

import msgspec

from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.chat.wire import (
    WireMessage,
    function_call,
    read_calls,
    read_content,
    read_speech,
    select_fitting,
    wrap_input,
    write_assistant,
    write_content,
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


def read_request(body: bytes, path: str) -> n.Request:  # noqa: ARG001 - the contract of all dialects
    """What the request asks for. ValueError when it is not a chat request.

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
    return n.Request(
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


def _unknown(document: n.Json) -> list[str]:
    """The fields that ask for something that has no place in the neutral form."""
    known = MEANS_NOTHING_TO_THE_MODEL.union(_Request.__struct_fields__)
    return [key for key, value in document.items() if key not in known and value not in (None, False, [], {})]


def _read_messages(messages: Iterable[WireMessage], lost: list[str]) -> Iterator[n.Message]:
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
                    yield n.Message("assistant", (*read_speech(message, lost), *called))
            case "tool":
                yield n.Message("user", tuple(_read_result(message, custom, lost) for message in group))
            case _:
                lost.append(f"message role {role}")


def _read_plain(role: n.Role, message: WireMessage, lost: list[str]) -> n.Message:
    return n.Message(role, tuple(select_fitting(role, read_content(message.content, lost), lost)))


def _read_result(message: WireMessage, custom: set[str], lost: list[str]) -> n.ToolResult:
    call_id = message.tool_call_id or ""
    parts = tuple(part for part in read_content(message.content, lost) if not isinstance(part, n.Refusal))
    return n.ToolResult(call_id, parts, message.name, custom=call_id in custom)


def _read_tools(tools: Iterable[_Tool], lost: list[str]) -> Iterator[n.Tool]:
    for tool in tools:
        if tool.type == "function" and (function := tool.function):
            yield n.Tool(function.name, function.description or "", function.parameters, strict=function.strict)
        elif tool.type == "custom" and (custom := tool.custom):
            yield n.Tool(custom.name, custom.description or "", custom=True, grammar=custom.format)
        else:
            lost.append(f"tool {tool.type}")


def _read_tool_choice(choice: _ToolChoice | str | None, lost: list[str]) -> n.ToolChoice | None:
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return n.ToolChoice(choice)
        case _ToolChoice(function=_Named(name)) | _ToolChoice(custom=_Named(name)):
            return n.ToolChoice("tool", name)
    lost.append(f"tool_choice {choice if isinstance(choice, str) else choice.type}")
    return None


def _read_sampling(wire: _Request) -> n.Sampling:
    return n.Sampling(
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


def _read_format(stated: _Format | None, lost: list[str]) -> n.Format | None:
    if stated is None or stated.type == "text":
        return None
    if stated.type == "json_object":
        return n.Format()
    if stated.type == "json_schema" and (schema := stated.json_schema):
        return n.Format(schema.schema, schema.name, schema.strict)
    lost.append(f"response_format {stated.type}")
    return None


EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
"""The words for effort that servers of this dialect know."""

_RAW_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def write_request(request: n.Request) -> tuple[bytes, tuple[str, ...]]:
    """The body for a model's endpoint, and what of the request it cannot say."""
    lost: list[str] = []
    body: n.Json = {"model": request.model, "messages": list(_write_messages(request.messages, lost))}
    if request.tools:
        # Without tools, servers refuse the fields that speak of them.
        body["tools"] = [_write_tool(tool) for tool in request.tools]
        body["tool_choice"] = _write_tool_choice(request.tool_choice, request.tools)
        body["parallel_tool_calls"] = request.parallel_tools
    body |= _write_sampling(request.sampling, lost)
    body["response_format"] = _write_format(request.format)
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    stated = {key: value for key, value in body.items() if value is not None}
    return msgspec.json.encode(stated), tuple(dict.fromkeys(lost))


def _write_messages(messages: Iterable[n.Message], lost: list[str]) -> Iterator[n.Json]:
    ids = _CallIds()
    for role, group in groupby(messages, key=lambda message: message.role):
        turn = [select_fitting(role, message.parts, lost) for message in group]
        match role:
            case "system":
                yield from (
                    {"role": "system", "content": write_content(_texts_and_images(parts))} for parts in turn if parts
                )
            case "user":
                yield from _write_user(turn, ids)
            case "assistant":
                # All calls of a turn must be in one message: their results follow it.
                yield _write_assistant_turn([part for parts in turn for part in parts], ids, lost)


def _texts_and_images(parts: Iterable[n.Part]) -> list[n.Text | n.Image]:
    return [part for part in parts if isinstance(part, n.Text | n.Image)]


def _write_user(turn: Sequence[Sequence[n.Part]], ids: "_CallIds") -> Iterator[n.Json]:
    """Tool results come first. They are text only, so their images follow in a message of the user."""
    results = [part for parts in turn for part in parts if isinstance(part, n.ToolResult)]
    for result in results:
        yield {
            "role": "tool",
            "tool_call_id": ids.id_for_result(result),
            "content": write_content(_result_texts(result)),
        }
    if images := [part for result in results for part in result.parts if isinstance(part, n.Image)]:
        yield {"role": "user", "content": write_content(images)}
    for parts in turn:
        if (shown := _texts_and_images(parts)) or not parts:
            yield {"role": "user", "content": write_content(shown)}


def _result_texts(result: n.ToolResult) -> list[n.Text]:
    texts = [part for part in result.parts if isinstance(part, n.Text)]
    if not texts and result.parts:
        texts = [n.Text("The image follows.")]
    if not result.is_error:
        return texts
    first = texts[0].text if texts else ""
    return [n.Text(f"Error: {first}"), *texts[1:]]


def _write_assistant_turn(parts: Sequence[n.Part], ids: "_CallIds", lost: list[str]) -> n.Json:
    ids.next_turn()
    lost += ["hidden thinking" for part in parts if isinstance(part, n.Thinking) and part.hidden]
    calls = [_write_call(part, ids) for part in parts if isinstance(part, n.ToolCall)]
    return write_assistant(parts, write_content(_texts_and_images(parts)), calls)


def _write_call(call: n.ToolCall, ids: "_CallIds") -> n.Json:
    arguments = wrap_input(call.arguments) if call.custom else call.arguments or "{}"
    return function_call(ids.id_for_call(call), _flat_name(call.name, call.namespace), arguments)


class _CallIds:
    """Gives every call of the conversation an id of its own, and its result the same one.

    Agents leave ids out, or use one again in a later turn; endpoints refuse both.
    """

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._open: list[tuple[n.ToolCall, str]] = []

    def next_turn(self) -> None:
        """The assistant speaks again: what follows answers its new calls."""
        self._open = []

    def id_for_call(self, call: n.ToolCall) -> str:
        """The id for a call."""
        numbered = (f"{call.id or 'call'}_{number}" for number in count(len(self._given)))
        candidates = chain([call.id], numbered) if call.id else numbered
        unique = next(candidate for candidate in candidates if candidate not in self._given)
        self._given.add(unique)
        self._open.append((call, unique))
        return unique

    def id_for_result(self, result: n.ToolResult) -> str:
        """The id of the call that this is the result of. Without an id, the tool's name or the order must do."""
        for number, (call, given) in enumerate(self._open):
            if call.id == result.call_id and (call.id or result.name in {None, call.name}):
                del self._open[number]
                return given
        return result.call_id or "call_unknown"


def _flat_name(name: str, namespace: str | None) -> str:
    return f"{namespace}__{name}" if namespace else name


def _write_tool(tool: n.Tool) -> n.Json:
    description, parameters = tool.description, tool.parameters
    if tool.custom:
        description, parameters = _custom_description(tool), _RAW_TEXT
    stated = {"description": description or None, "parameters": parameters, "strict": tool.strict}
    function = {"name": _flat_name(tool.name, tool.namespace)} | {
        key: value for key, value in stated.items() if value is not None
    }
    return {"type": "function", "function": function}


def _custom_description(tool: n.Tool) -> str:
    """A function cannot have a grammar, so its description states it."""
    if not tool.grammar:
        return tool.description
    nested = tool.grammar.get("grammar")
    definition = (nested if isinstance(nested, dict) else tool.grammar).get("definition")
    return (
        f"{tool.description}\n\nThe input must follow this grammar:\n{definition}" if definition else tool.description
    )


def _write_tool_choice(choice: n.ToolChoice | None, tools: Sequence[n.Tool]) -> str | n.Json | None:
    if choice is None:
        return None
    if choice.mode != "tool":
        return choice.mode
    names = (_flat_name(tool.name, tool.namespace) for tool in tools if choice.name == tool.name)
    name = next(names, None)
    # The tool was left out of the request because chat cannot declare it, so it cannot be forced.
    return {"type": "function", "function": {"name": name}} if name else "auto"


def _write_sampling(sampling: n.Sampling, lost: list[str]) -> n.Json:
    if sampling.top_k is not None:
        lost.append("top_k")
    if sampling.effort is not None and sampling.effort not in EFFORTS:
        lost.append(f"effort {sampling.effort}")
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop": sampling.stop or None,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "reasoning_effort": sampling.effort if sampling.effort in EFFORTS else None,
    }


def _write_format(stated: n.Format | None) -> n.Json | None:
    if stated is None:
        return None
    if stated.schema is None:
        return {"type": "json_object"}
    strict = {} if stated.strict is None else {"strict": stated.strict}
    return {"type": "json_schema", "json_schema": {"name": stated.name, "schema": stated.schema} | strict}
