"""A request in the neutral form, written for a model's endpoint that speaks chat completions."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, groupby

import msgspec

from whet.gateway.dialects.chat.message import fitting, function_call, wrapped, write_assistant, write_content
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Json,
    Message,
    Part,
    Request,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
"""The words for effort that servers of this dialect know."""

_RAW_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def write_request(request: Request) -> tuple[bytes, tuple[str, ...]]:
    """The body for a model's endpoint, and what of the request it cannot say."""
    lost: list[str] = []
    body: Json = {"model": request.model, "messages": list(_messages(request.messages, lost))}
    if request.tools:
        # Without tools, servers refuse the fields that speak of them.
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice, request.tools)
        body["parallel_tool_calls"] = request.parallel_tools
    body |= _sampling(request.sampling, lost)
    body["response_format"] = _format(request.format)
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    stated = {key: value for key, value in body.items() if value is not None}
    return msgspec.json.encode(stated), tuple(dict.fromkeys(lost))


def _messages(messages: Iterable[Message], lost: list[str]) -> Iterator[Json]:
    ids = _CallIds()
    for role, group in groupby(messages, key=lambda message: message.role):
        turn = [fitting(role, message.parts, lost) for message in group]
        match role:
            case "system":
                yield from ({"role": "system", "content": write_content(_shown(parts))} for parts in turn if parts)
            case "user":
                yield from _user(turn, ids)
            case "assistant":
                # All calls of a turn must be in one message: their results follow it.
                yield _assistant([part for parts in turn for part in parts], ids, lost)


def _shown(parts: Iterable[Part]) -> list[Text | Image]:
    return [part for part in parts if isinstance(part, Text | Image)]


def _user(turn: Sequence[Sequence[Part]], ids: "_CallIds") -> Iterator[Json]:
    """Tool results come first. They are text only, so their images follow in a message of the user."""
    results = [part for parts in turn for part in parts if isinstance(part, ToolResult)]
    for result in results:
        yield {"role": "tool", "tool_call_id": ids.answered(result), "content": write_content(_result_texts(result))}
    if images := [part for result in results for part in result.parts if isinstance(part, Image)]:
        yield {"role": "user", "content": write_content(images)}
    for parts in turn:
        if (shown := _shown(parts)) or not parts:
            yield {"role": "user", "content": write_content(shown)}


def _result_texts(result: ToolResult) -> list[Text]:
    texts = [part for part in result.parts if isinstance(part, Text)]
    if not texts and result.parts:
        texts = [Text("The image follows.")]
    if not result.is_error:
        return texts
    first = texts[0].text if texts else ""
    return [Text(f"Error: {first}"), *texts[1:]]


def _assistant(parts: Sequence[Part], ids: "_CallIds", lost: list[str]) -> Json:
    ids.next_turn()
    lost += ["hidden thinking" for part in parts if isinstance(part, Thinking) and part.hidden]
    calls = [_call(part, ids) for part in parts if isinstance(part, ToolCall)]
    return write_assistant(parts, write_content(_shown(parts)), calls)


def _call(call: ToolCall, ids: "_CallIds") -> Json:
    arguments = wrapped(call.arguments) if call.custom else call.arguments or "{}"
    return function_call(ids.made(call), _flat(call.name, call.namespace), arguments)


class _CallIds:
    """Gives every call of the conversation an id of its own, and its result the same one.

    Agents leave ids out, or use one again in a later turn; endpoints refuse both.
    """

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._open: list[tuple[ToolCall, str]] = []

    def next_turn(self) -> None:
        """The assistant speaks again: what follows answers its new calls."""
        self._open = []

    def made(self, call: ToolCall) -> str:
        """The id for a call."""
        numbered = (f"{call.id or 'call'}_{number}" for number in count(len(self._given)))
        candidates = chain([call.id], numbered) if call.id else numbered
        unique = next(candidate for candidate in candidates if candidate not in self._given)
        self._given.add(unique)
        self._open.append((call, unique))
        return unique

    def answered(self, result: ToolResult) -> str:
        """The id of the call that this is the result of. Without an id, the tool's name or the order must do."""
        for number, (call, given) in enumerate(self._open):
            if call.id == result.call_id and (call.id or result.name in {None, call.name}):
                del self._open[number]
                return given
        return result.call_id or "call_unknown"


def _flat(name: str, namespace: str | None) -> str:
    return f"{namespace}__{name}" if namespace else name


def _tool(tool: Tool) -> Json:
    description, parameters = tool.description, tool.parameters
    if tool.custom:
        description, parameters = _custom_description(tool), _RAW_TEXT
    stated = {"description": description or None, "parameters": parameters, "strict": tool.strict}
    function = {"name": _flat(tool.name, tool.namespace)} | {
        key: value for key, value in stated.items() if value is not None
    }
    return {"type": "function", "function": function}


def _custom_description(tool: Tool) -> str:
    """A function cannot have a grammar, so the model is told of it."""
    if not tool.grammar:
        return tool.description
    nested = tool.grammar.get("grammar")
    definition = (nested if isinstance(nested, dict) else tool.grammar).get("definition")
    return (
        f"{tool.description}\n\nThe input must follow this grammar:\n{definition}" if definition else tool.description
    )


def _tool_choice(choice: ToolChoice | None, tools: Sequence[Tool]) -> str | Json | None:
    if choice is None:
        return None
    if choice.mode != "tool":
        return choice.mode
    names = (_flat(tool.name, tool.namespace) for tool in tools if choice.name == tool.name)
    name = next(names, None)
    # A tool that no endpoint can be told of was left out of the request; nothing can be forced then.
    return {"type": "function", "function": {"name": name}} if name else "auto"


def _sampling(sampling: Sampling, lost: list[str]) -> Json:
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


def _format(stated: Format | None) -> Json | None:
    if stated is None:
        return None
    if stated.schema is None:
        return {"type": "json_object"}
    strict = {} if stated.strict is None else {"strict": stated.strict}
    return {"type": "json_schema", "json_schema": {"name": stated.name, "schema": stated.schema} | strict}
