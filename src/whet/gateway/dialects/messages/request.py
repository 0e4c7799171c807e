"""Requests in Anthropic Messages: read from agents, written for models, and a rough count of their tokens."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.messages.wire import (
    MAY_HOLD,
    UNFIT_FOR_ID,
    BlockReader,
    CallIds,
    Lost,
    block,
    dump,
    load,
    put_results_first,
    read_fields,
    select_fitting,
    wire_name,
)

_BILLING = "x-anthropic-billing-header:"
_BUDGETS = ((4096, "low"), (16384, "medium"))
"""Up to how many tokens of thinking an effort is low, medium; beyond that it is high."""

_CHARACTERS_PER_TOKEN = 4
_CHARACTERS_PER_IMAGE = 6000


class _Message(msgspec.Struct):
    role: str
    content: str | list[n.Json | str] | None = None


class _Body(msgspec.Struct):
    model: str
    messages: list[n.Json]
    system: str | list[n.Json | str] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[n.Json] | None = None
    tool_choice: n.Json | None = None
    thinking: n.Json | None = None
    output_config: n.Json | None = None
    stream: bool | None = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: n.Json
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
    format: n.Json | None = None


class _Format(msgspec.Struct):
    type: str
    schema: n.Json | None = None


class _Streamed(msgspec.Struct):
    stream: bool = False


def wants_stream(body: bytes, path: str) -> bool:  # noqa: ARG001 - the body says it
    """Whether the request asks for events."""
    try:
        return load(body, _Streamed).stream
    except ValueError:
        return False


def count_reply(body: bytes) -> bytes:
    """The answer to a count_tokens call: a quarter of the characters. ValueError when it is not a request.

    >>> count_reply(b'{"messages": [{"role": "user", "content": "How many?"}]}')
    b'{"input_tokens":6}'
    """
    request = load(body, n.Json)
    characters = sum(_characters(request.get(key)) for key in ("system", "messages", "tools"))
    return dump({"input_tokens": -(-characters // _CHARACTERS_PER_TOKEN)})


def read_request(body: bytes, path: str) -> n.Request:  # noqa: ARG001 - the body says everything
    """The request in neutral form. ValueError when it is not a request."""
    lost = Lost()
    try:
        return _read(read_fields(load(body, n.Json), _Body, lost), lost)
    except ValueError as error:
        raise ValueError(f"not a Messages request: {error}") from error


def _read(body: _Body, lost: Lost) -> n.Request:
    messages = (*_read_system(body.system, lost), *_read_messages(body.messages, lost))
    tools = tuple(tool for given in body.tools or () if (tool := _read_tool(given, lost)))
    choice, parallel = _read_choice(body.tool_choice, tools, lost)
    effort, form = _read_output_config(body.output_config, lost)
    asked = _read_thinking(body.thinking, lost)
    return n.Request(
        model=body.model,
        messages=messages,
        tools=tools,
        tool_choice=choice,
        parallel_tools=parallel,
        sampling=n.Sampling(
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


def _read_system(system: str | list[n.Json | str] | None, lost: Lost) -> list[n.Message]:
    parts = BlockReader(lost, CallIds()).parts(system)
    texts = (_without_billing(part.text) for part in select_fitting("system", parts, lost) if isinstance(part, n.Text))
    blocks = tuple(n.Text(text) for text in texts if text)
    return [n.Message("system", blocks)] if blocks else []


def _without_billing(text: str) -> str:
    """The text without the line by which an agent accounts to its provider, which is not for other models."""
    return text.partition("\n")[2] if text.startswith(_BILLING) else text


def _read_messages(given: list[n.Json], lost: Lost) -> Iterable[n.Message]:
    blocks = BlockReader(lost, CallIds())
    for fields in given:
        message = read_fields(fields, _Message, lost, "message")
        if message.role not in MAY_HOLD:
            lost.name(f"message of role {message.role}")
        elif parts := select_fitting(message.role, blocks.parts(message.content), lost):
            yield n.Message(message.role, put_results_first(parts))


def _read_tool(given: n.Json, lost: Lost) -> n.Tool | None:
    if given.get("input_schema") is None:
        # Its provider defines it, and mostly runs it too.
        lost.name(f"tool {given.get('name') or given.get('type')}")
        return None
    tool = read_fields(given, _Tool, lost, "tool")
    return n.Tool(tool.name, tool.description or "", tool.input_schema, strict=tool.strict)


def _read_choice(
    given: n.Json | None, tools: tuple[n.Tool, ...], lost: Lost
) -> tuple[n.ToolChoice | None, bool | None]:
    if given is None or not tools:
        return None, None
    choice = read_fields(given, _ToolChoice, lost, "tool_choice")
    parallel = None if choice.disable_parallel_tool_use is None else not choice.disable_parallel_tool_use
    match choice.type:
        case "tool" if any(tool.name == choice.name for tool in tools):
            return n.ToolChoice("tool", choice.name), parallel
        case "any":
            return n.ToolChoice("required"), parallel
        case "none":
            return n.ToolChoice("none"), parallel
        case "auto" | "tool":
            # A tool that is chosen and not there was lost itself.
            return n.ToolChoice("auto"), parallel
    lost.name(f"tool_choice {choice.type}")
    return None, parallel


def _read_output_config(given: n.Json | None, lost: Lost) -> tuple[str | None, n.Format | None]:
    config = read_fields(given or {}, _OutputConfig, lost, "output_config")
    if config.format is None:
        return config.effort, None
    form = read_fields(config.format, _Format, lost, "output_config.format")
    if form.type == "json_schema" and form.schema is not None:
        return config.effort, n.Format(form.schema)
    lost.name(f"output_config.format {form.type}")
    return config.effort, None


def _read_thinking(given: n.Json | None, lost: Lost) -> str | None:
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


DEFAULT_MAX_TOKENS = 8192
"""The API demands a limit; this is it when the request has none."""

_CHOICES = {"auto": "auto", "required": "any", "tool": "tool", "none": "none"}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_TEXT_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The schema of a custom tool, which takes raw text."""


def write_request(request: n.Request) -> tuple[bytes, tuple[str, ...]]:
    """The neutral request as a body for an endpoint of this dialect, and what of it was lost."""
    lost = Lost()
    system, turns = _turns(request.messages, lost)
    limit = request.sampling.max_tokens
    body = {
        "model": request.model,
        "max_tokens": DEFAULT_MAX_TOKENS if limit is None else limit,
        "system": _blocks(system, lost),
        "messages": [{"role": turn.role, "content": _blocks(turn.parts, lost)} for turn in turns],
        "tools": [_write_tool(tool, lost) for tool in request.tools],
        "tool_choice": _write_choice(request),
        **_write_sampling(request.sampling, lost),
        "output_config": _write_output_config(request, lost),
        "thinking": {"type": "disabled"} if request.sampling.effort == "none" else None,
        "stream": request.stream or None,
    }
    return dump({key: value for key, value in body.items() if value not in (None, [], {})}), lost.names()


def _turns(messages: Iterable[n.Message], lost: Lost) -> tuple[tuple[n.Part, ...], list[n.Message]]:
    """The system text of the start, and the turns after it as the API wants them: the user first, no role twice in a
    row, and system text only where it is allowed."""
    ids = _FitIds()
    said = [n.Message(message.role, _writable(message, ids, lost)) for message in messages]
    turns = _merge(message for message in said if message.parts)
    system = turns.pop(0).parts if turns and turns[0].role == "system" else ()
    if not turns or turns[0].role != "user":
        turns.insert(0, n.Message("user", (n.Text("Continue."),)))
        lost.name("beginning without a user message")
    for index, turn in enumerate(turns):
        if turn.role == "system" and not _system_may_stand(turns, index):
            turns[index] = n.Message("user", turn.parts)
            lost.name("system role of a later message")
    return system, [n.Message(turn.role, put_results_first(turn.parts)) for turn in _merge(turns)]


def _writable(message: n.Message, ids: "_FitIds", lost: Lost) -> tuple[n.Part, ...]:
    """The parts of a message that the API accepts, with ids that it accepts."""
    return tuple(
        _give_id(part, ids, lost)
        for part in select_fitting(message.role, message.parts, lost)
        if not _says_nothing(part)
    )


def _give_id(part: n.Part, ids: "_FitIds", lost: Lost) -> n.Part:
    match part:
        case n.Refusal():
            lost.name("refusal, sent as text")
        case n.ToolCall():
            if part.token:
                lost.name("token of a tool call")
            return msgspec.structs.replace(part, id=ids.of_call(part.id))
        case n.ToolResult():
            held = tuple(held for held in part.parts if not _says_nothing(held))
            return msgspec.structs.replace(part, call_id=ids.of_result(part.call_id), parts=held)
    return part


def _says_nothing(part: n.Part) -> bool:
    """Whether it is thinking that left no trace, or text of white space alone, which the API refuses."""
    match part:
        case n.Text(text) | n.Refusal(text):
            return not text.strip()
        case n.Thinking(text, token, hidden):
            return not token and (hidden or not text)
    return False


def _merge(messages: Iterable[n.Message]) -> list[n.Message]:
    """The messages, those of one role in a row made one."""
    rows = groupby(messages, key=lambda message: message.role)
    return [n.Message(role, tuple(part for message in row for part in message.parts)) for role, row in rows]


def _system_may_stand(turns: list[n.Message], index: int) -> bool:
    """Whether the API takes system text here: after the user, and before the assistant or at the end."""
    after = turns[index + 1].role if index + 1 < len(turns) else None
    return turns[index - 1].role == "user" and after in {"assistant", None}


class _FitIds:
    """Ids as the API accepts them: of few characters, and of one call only. Results follow their calls."""

    def __init__(self) -> None:
        self._named = CallIds()
        self._fit: dict[str, str] = {}
        self._times: Counter[str] = Counter()

    def of_call(self, given: str) -> str:
        """The id of the next call."""
        named = self._named.of_call(given)
        fit = UNFIT_FOR_ID.sub("_", named)
        while self._times[fit]:
            self._times[fit] += 1
            fit = f"{fit}_{self._times[fit]}"
        self._times[fit] = 1
        self._fit[named] = fit
        return fit

    def of_result(self, given: str) -> str:
        """The id of the call that the next result answers."""
        named = self._named.of_result(given)
        return self._fit.get(named) or UNFIT_FOR_ID.sub("_", named)


def _blocks(parts: Iterable[n.Part], lost: Lost) -> list[n.Json]:
    return [written for part in parts if (written := block(part, lost))]


def _write_tool(tool: n.Tool, lost: Lost) -> n.Json:
    if tool.grammar:
        lost.name(f"grammar of tool {tool.name}")
    schema = _TEXT_INPUT if tool.custom else {"type": "object"} | (tool.parameters or {"properties": {}})
    written = {"name": wire_name(tool), "description": tool.description or None, "input_schema": schema}
    return {key: value for key, value in (written | {"strict": tool.strict}).items() if value is not None}


def _write_choice(request: n.Request) -> n.Json | None:
    parallel = request.parallel_tools
    if not request.tools or (request.tool_choice is None and parallel is not False):
        return None
    choice = request.tool_choice or n.ToolChoice()
    names = {tool.name: wire_name(tool) for tool in request.tools}
    written: n.Json = {"type": _CHOICES[choice.mode]}
    if choice.mode == "tool":
        written = {"type": "tool", "name": names[choice.name]} if choice.name in names else {"type": "auto"}
    if parallel is not None and choice.mode != "none":
        written["disable_parallel_tool_use"] = not parallel
    return written


def _write_sampling(sampling: n.Sampling, lost: Lost) -> n.Json:
    for name in ("seed", "presence_penalty", "frequency_penalty"):
        if getattr(sampling, name) is not None:
            lost.name(name)
    temperature = sampling.temperature
    if temperature is not None and temperature > 1:
        lost.name("temperature above 1")
        temperature = 1.0
    return {
        "temperature": temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop_sequences": list(sampling.stop),
    }


def _write_output_config(request: n.Request, lost: Lost) -> n.Json:
    config: n.Json = {}
    effort = request.sampling.effort
    if effort in _EFFORTS:
        config["effort"] = _EFFORTS[effort]
    elif effort not in {None, "none"}:
        lost.name(f"effort {effort}")
    if request.format is not None and request.format.schema is not None:
        config["format"] = {"type": "json_schema", "schema": request.format.schema}
    elif request.format is not None:
        lost.name("format of any JSON object")
    return config
