"""Requests for an endpoint of this dialect, written from the neutral form."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

import msgspec

from whet.gateway.dialects.messages.blocks import (
    UNFIT_FOR_ID,
    CallIds,
    Lost,
    block,
    dump,
    fitting,
    results_first,
    wire_name,
)
from whet.gateway.dialects.neutral import (
    Json,
    Message,
    Part,
    Refusal,
    Request,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

DEFAULT_MAX_TOKENS = 8192
"""The API demands a limit; this is it when the request has none."""

_CHOICES = {"auto": "auto", "required": "any", "tool": "tool", "none": "none"}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_TEXT_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The schema of a custom tool, which takes raw text."""


def write_request(request: Request) -> tuple[bytes, tuple[str, ...]]:
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


def _turns(messages: Iterable[Message], lost: Lost) -> tuple[tuple[Part, ...], list[Message]]:
    """The system text of the start, and the turns after it as the API wants them: the user first, no role twice in a
    row, and system text only where it is allowed."""
    ids = _FitIds()
    said = [Message(message.role, _writable(message, ids, lost)) for message in messages]
    turns = _merged(message for message in said if message.parts)
    system = turns.pop(0).parts if turns and turns[0].role == "system" else ()
    if not turns or turns[0].role != "user":
        turns.insert(0, Message("user", (Text("Continue."),)))
        lost.name("beginning without a user message")
    for index, turn in enumerate(turns):
        if turn.role == "system" and not _system_may_stand(turns, index):
            turns[index] = Message("user", turn.parts)
            lost.name("system role of a later message")
    return system, [Message(turn.role, results_first(turn.parts)) for turn in _merged(turns)]


def _writable(message: Message, ids: "_FitIds", lost: Lost) -> tuple[Part, ...]:
    """The parts of a message that the API accepts, with ids that it accepts."""
    return tuple(
        _identified(part, ids, lost) for part in fitting(message.role, message.parts, lost) if not _says_nothing(part)
    )


def _identified(part: Part, ids: "_FitIds", lost: Lost) -> Part:
    match part:
        case Refusal():
            lost.name("refusal, sent as text")
        case ToolCall():
            if part.token:
                lost.name("token of a tool call")
            return msgspec.structs.replace(part, id=ids.of_call(part.id))
        case ToolResult():
            held = tuple(held for held in part.parts if not _says_nothing(held))
            return msgspec.structs.replace(part, call_id=ids.of_result(part.call_id), parts=held)
    return part


def _says_nothing(part: Part) -> bool:
    """Whether it is thinking that left no trace, or text of white space alone, which the API refuses."""
    match part:
        case Text(text) | Refusal(text):
            return not text.strip()
        case Thinking(text, token, hidden):
            return not token and (hidden or not text)
    return False


def _merged(messages: Iterable[Message]) -> list[Message]:
    """The messages, those of one role in a row made one."""
    rows = groupby(messages, key=lambda message: message.role)
    return [Message(role, tuple(part for message in row for part in message.parts)) for role, row in rows]


def _system_may_stand(turns: list[Message], index: int) -> bool:
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


def _blocks(parts: Iterable[Part], lost: Lost) -> list[Json]:
    return [written for part in parts if (written := block(part, lost))]


def _write_tool(tool: Tool, lost: Lost) -> Json:
    if tool.grammar:
        lost.name(f"grammar of tool {tool.name}")
    schema = _TEXT_INPUT if tool.custom else {"type": "object"} | (tool.parameters or {"properties": {}})
    written = {"name": wire_name(tool), "description": tool.description or None, "input_schema": schema}
    return {key: value for key, value in (written | {"strict": tool.strict}).items() if value is not None}


def _write_choice(request: Request) -> Json | None:
    parallel = request.parallel_tools
    if not request.tools or (request.tool_choice is None and parallel is not False):
        return None
    choice = request.tool_choice or ToolChoice()
    names = {tool.name: wire_name(tool) for tool in request.tools}
    written: Json = {"type": _CHOICES[choice.mode]}
    if choice.mode == "tool":
        written = {"type": "tool", "name": names[choice.name]} if choice.name in names else {"type": "auto"}
    if parallel is not None and choice.mode != "none":
        written["disable_parallel_tool_use"] = not parallel
    return written


def _write_sampling(sampling: Sampling, lost: Lost) -> Json:
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


def _write_output_config(request: Request, lost: Lost) -> Json:
    config: Json = {}
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
