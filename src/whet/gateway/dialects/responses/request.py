"""Requests in OpenAI Responses: read from agents, and written for models."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec

from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.lenient import decode
from whet.gateway.dialects.responses.wire import (
    decode_object,
    read_content,
    read_item,
    read_tools,
    string,
    write_call,
    write_thoughts,
    write_tools,
)

_STATE = ("previous_response_id", "conversation")
_IGNORED = frozenset(
    {
        "client_metadata",
        "include",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
        *_STATE,
    }
)
"""Fields that mean nothing to the model."""
_DEFAULTS = {"background": False, "top_logprobs": 0, "truncation": "disabled"}
"""What asks for nothing special."""
_ROLES: dict[str, n.Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class _Body(msgspec.Struct):
    model: str
    input: str | list[Any]
    instructions: str | list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: str | n.Json | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: n.Json | None = None
    text: n.Json | None = None
    stream: bool | None = None


class _StreamFlag(msgspec.Struct):
    stream: bool | None = None


def wants_stream(body: bytes, path: str) -> bool:  # noqa: ARG001 - the contract of all dialects
    """Whether the request asks for its reply as a stream."""
    try:
        return decode(body, _StreamFlag).stream is True
    except ValueError:
        return False


def read_request(body: bytes, path: str) -> n.Request:  # noqa: ARG001 - the contract of all dialects
    """The request in neutral form. ValueError when it is not a request, or needs what only the provider stores."""
    fields = decode_object(body)
    for name in _STATE:
        if fields.get(name):
            raise ValueError(f"{name} is not supported: send the whole conversation as input")
    asked = msgspec.convert(fields, _Body)

    carried = {*_Body.__struct_fields__, *_IGNORED}
    lost = [name for name, value in fields.items() if name not in carried and value not in (None, _DEFAULTS.get(name))]
    items = [*_items(asked.instructions, "system"), *_items(asked.input, "user")]
    added = (tool for item in items if _declares_tools(item) for tool in item["tools"])
    said = (item for item in items if not _declares_tools(item))
    return n.Request(
        model=asked.model,
        messages=tuple(_turns(_messages(said, lost))),
        tools=tuple(read_tools([*(asked.tools or ()), *added], lost)),
        tool_choice=_read_choice(asked.tool_choice, lost),
        parallel_tools=asked.parallel_tool_calls,
        sampling=n.Sampling(
            max_tokens=asked.max_output_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            effort=_read_effort(asked.reasoning or {}, lost),
        ),
        format=_read_format(asked.text or {}, lost),
        stream=bool(asked.stream),
        lost=tuple(dict.fromkeys(lost)),
    )


def _items(given: str | list[Any] | None, role: n.Role) -> list[Any]:
    if isinstance(given, str):
        return [{"type": "message", "role": role, "content": given}] if given else []
    return given or []


def _declares_tools(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "additional_tools" and isinstance(item.get("tools"), list)


def _messages(items: Iterable[Any], lost: list[str]) -> Iterator[n.Message]:
    """One message for each item that can be carried."""
    ids = _CallIds()
    for item in items:
        match item:
            case {"type": "function_call_output" | "custom_tool_call_output" as kind}:
                yield n.Message("user", (_read_result(item, kind == "custom_tool_call_output", ids, lost),))
            case {"role": str(role)} if item.get("type", "message") == "message":
                if role in _ROLES:
                    yield n.Message(_ROLES[role], read_item({**item, "type": "message"}, "input", lost))
                else:
                    lost.append(f"message of role {role}")
            case _:
                parts = read_item(item, "input", lost)
                if parts:
                    yield n.Message("assistant", tuple(ids.give_id(part) for part in parts))


def _read_result(item: n.Json, custom: bool, ids: "_CallIds", lost: list[str]) -> n.ToolResult:
    parts = tuple(part for part in read_content(item.get("output"), lost) if isinstance(part, n.Text | n.Image))
    call_id = ids.of_result(string(item.get("call_id")))
    return n.ToolResult(call_id, parts, string(item.get("name")) or None, custom=custom)


def _turns(messages: Iterable[n.Message]) -> Iterator[n.Message]:
    """The items of one turn in one message: thoughts with the words or calls they led to, results with each other."""
    for kind, run in groupby(messages, _kind_of_turn):
        if kind in {"assistant", "results"}:
            role: n.Role = "assistant" if kind == "assistant" else "user"
            yield n.Message(role, tuple(part for message in run for part in message.parts))
        else:
            yield from run


def _kind_of_turn(message: n.Message) -> str:
    return "results" if any(isinstance(part, n.ToolResult) for part in message.parts) else message.role


class _CallIds:
    """Gives ids to calls that have none, and to results without one the id of the first call not yet answered."""

    def __init__(self) -> None:
        self._calls = 0
        self._unanswered: dict[str, None] = {}

    def give_id(self, part: n.Part) -> n.Part:
        if not isinstance(part, n.ToolCall):
            return part
        call_id = part.id or f"call_{self._calls}"
        self._calls += 1
        self._unanswered[call_id] = None
        return msgspec.structs.replace(part, id=call_id)

    def of_result(self, given: str) -> str:
        call_id = given or next(iter(self._unanswered), "call_unknown")
        self._unanswered.pop(call_id, None)
        return call_id


def _read_choice(choice: str | n.Json | None, lost: list[str]) -> n.ToolChoice | None:
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return n.ToolChoice(choice)
        case {"type": "function" | "custom", "name": str(name)}:
            return n.ToolChoice("tool", name)
        case {"type": "allowed_tools", "mode": "required"}:
            lost.append("tool_choice allowed_tools")
            return n.ToolChoice("required")
        case {"type": str(kind)} | str(kind):
            lost.append(f"tool_choice {kind}")
        case _:
            lost.append("tool_choice without type")
    return n.ToolChoice("auto")


def _read_effort(reasoning: n.Json, lost: list[str]) -> str | None:
    # How the thoughts are shown does not change them.
    shown = {"effort", "summary", "generate_summary"}
    lost += [f"reasoning.{name}" for name, value in reasoning.items() if name not in shown and value is not None]
    return string(reasoning.get("effort")) or None


def _read_format(text: n.Json, lost: list[str]) -> n.Format | None:
    lost += [f"text.{name}" for name, value in text.items() if name != "format" and value is not None]
    match text.get("format"):
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return n.Format()
        case {"type": "json_schema", "schema": dict(schema)} as wanted:
            if wanted.get("description"):
                lost.append("description of text.format")
            strict = wanted.get("strict")
            name = string(wanted.get("name")) or n.Format().name
            return n.Format(schema, name, strict if isinstance(strict, bool) else None)
    lost.append("text.format")
    return None


def write_request(request: n.Request) -> tuple[bytes, tuple[str, ...]]:
    """The request for a model of this dialect, and what it cannot say."""
    lost = [
        name for name in ("top_k", "stop", "seed", "presence_penalty", "frequency_penalty") if _is_set(request, name)
    ]
    instructions, messages = _instructions(request.messages)
    body = {
        "model": request.model,
        "instructions": instructions,
        "input": list(_write_items(messages, lost)),
        "max_output_tokens": request.sampling.max_tokens,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "reasoning": {"effort": request.sampling.effort} if request.sampling.effort else None,
        # Models that do not think refuse requests for encrypted thoughts.
        "include": ["reasoning.encrypted_content"] if _thinks(request) else None,
        "text": write_format(request.format) if request.format else None,
        "store": False,
        "stream": request.stream or None,
        **(_write_tooling(request) if request.tools else {}),
    }
    return msgspec.json.encode({name: value for name, value in body.items() if value is not None}), tuple(lost)


def _is_set(request: n.Request, name: str) -> bool:
    return getattr(request.sampling, name) not in (None, ())


def _thinks(request: n.Request) -> bool:
    parts = (part for message in request.messages for part in message.parts)
    return request.sampling.effort is not None or any(isinstance(part, n.Thinking) and part.token for part in parts)


def _instructions(messages: tuple[n.Message, ...]) -> tuple[str | None, tuple[n.Message, ...]]:
    """System text of one block at the start has a field of its own; all other system text keeps its place."""
    match messages:
        case (n.Message("system", (n.Text(text),)), *rest) if text:
            return text, tuple(rest)
    return None, messages


def _write_items(messages: Iterable[n.Message], lost: list[str]) -> Iterator[n.Json]:
    ids = _CallIds()
    thoughts = 0
    for message in messages:
        content: list[n.Json] = []
        # Results come first: a model takes words between a call and its result for a call left open.
        for part in sorted(
            message.parts, key=lambda part: not isinstance(part, n.ToolResult) and message.role == "user"
        ):
            match ids.give_id(part):
                case n.Text(text) if message.role == "assistant":
                    # Servers are strict with content lists of the assistant, which must look like their own items.
                    yield {"type": "message", "role": "assistant", "content": text}
                case n.Refusal(text) if message.role == "assistant":
                    refusal = {"type": "refusal", "refusal": text}
                    yield {"type": "message", "role": "assistant", "content": [refusal]}
                case n.Image() if message.role == "assistant":
                    lost.append("image of the assistant")
                case n.Text() | n.Image() | n.Refusal() as piece:
                    content.append(_write_input(piece))
                case n.Thinking(text, token):
                    if text or token:
                        yield _write_thinking(text, token, thoughts)
                        thoughts += 1
                case n.ToolCall() as call:
                    if call.token:
                        lost.append(f"token of call {call.name}")
                    yield write_call(call)
                case n.ToolResult() as result:
                    yield _write_result(result, ids)
        if content:
            yield {"type": "message", "role": message.role, "content": content}


def _write_input(piece: n.Text | n.Image | n.Refusal) -> n.Json:
    if isinstance(piece, n.Image):
        url = f"data:{piece.media_type};base64,{piece.data}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_text", "text": piece.text}


def _write_thinking(text: str, token: str | None, number: int) -> n.Json:
    # A cipher is tied to the id it was made with, and one that was made up is refused; without one, servers that take
    # plain thoughts want an id.
    proof = {"encrypted_content": token} if token else {"id": f"rs_{number}"}
    return {"type": "reasoning", "summary": write_thoughts(text), **proof}


def _write_result(result: n.ToolResult, ids: _CallIds) -> n.Json:
    parts = _with_failure_said(result.parts) if result.is_error else result.parts
    match parts:
        case ():
            output: str | list[n.Json] = ""
        case (n.Text(text),):
            output = text
        case _:
            output = [_write_input(part) for part in parts]
    kind = "custom_tool_call_output" if result.custom else "function_call_output"
    return {"type": kind, "call_id": ids.of_result(result.call_id), "output": output}


def _with_failure_said(parts: tuple[n.Text | n.Image, ...]) -> tuple[n.Text | n.Image, ...]:
    """Say in the text that the tool failed: there is no field for it, and the model must know."""
    match parts:
        case (n.Text(text), *rest):
            return (n.Text(f"Error: {text}"), *rest)
    return (n.Text("Error"), *parts)


def _write_tooling(request: n.Request) -> n.Json:
    return {
        "tools": write_tools(request.tools),
        "tool_choice": write_choice(request.tool_choice, request.tools) if request.tool_choice else None,
        "parallel_tool_calls": request.parallel_tools,
    }


def write_choice(choice: n.ToolChoice, tools: Iterable[n.Tool]) -> str | n.Json:
    """The choice as a request says it."""
    if choice.mode != "tool":
        return choice.mode
    custom = any(tool.custom for tool in tools if tool.name == choice.name)
    return {"type": "custom" if custom else "function", "name": choice.name}


def write_format(wanted: n.Format) -> n.Json:
    """The form of the answer as a request says it."""
    if wanted.schema is None:
        return {"format": {"type": "json_object"}}
    schema = {"type": "json_schema", "name": wanted.name, "schema": wanted.schema}
    return {"format": schema if wanted.strict is None else schema | {"strict": wanted.strict}}
