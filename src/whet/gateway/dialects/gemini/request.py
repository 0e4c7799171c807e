"""Requests to and from the neutral form, and the count of their tokens."""

from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import Any

import msgspec

from whet.gateway.dialects.gemini.fields import a_list, a_string, an_object, bounded, fields, others
from whet.gateway.dialects.gemini.parts import (
    SKIP_VALIDATION,
    CallIds,
    read_part,
    wire_name,
    write_call,
    write_image,
    write_result,
    write_said,
)
from whet.gateway.dialects.gemini.paths import STREAM, target
from whet.gateway.dialects.gemini.schema import json_schema
from whet.gateway.dialects.gemini.tools import read_tool_choice, read_tools, write_tool, write_tool_choice
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Json,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Sampling,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_KNOWN = frozenset({"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"})
_WITHOUT_MEANING = frozenset({"model", "labels", "safetySettings", "serviceTier", "store"})
"""What a request may say that changes nothing for the model."""

_ROLES: dict[str, Role] = {"user": "user", "function": "user", "model": "assistant", "system": "system"}
_LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
_NEAREST_LEVELS = {"none": "MINIMAL", "xhigh": "HIGH", "max": "HIGH"}

_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_PICTURE = 258


class _Generation(msgspec.Struct, rename="camel"):
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    candidate_count: int | None = None
    response_mime_type: str = "text/plain"
    response_schema: Json | None = None
    response_json_schema: Json | None = None
    thinking_config: Json = {}


@bounded()
def read_request(body: bytes, path: str) -> Request:
    """What the call asks for. ValueError when it is no call, or one that cannot be answered."""
    called = target(path)
    if called is None:
        raise ValueError("not a gemini request: the path names no model")
    document = fields(msgspec.json.decode(body), "the request")
    if "contents" not in document:
        raise ValueError("not a gemini request: no contents")
    if "cachedContent" in document:
        raise ValueError("cachedContent cannot be used here: the conversation must be in the request")
    lost = others(document, _KNOWN | _WITHOUT_MEANING)
    generation = _read_generation(document.get("generationConfig", {}), lost)
    tools = tuple(read_tools(document.get("tools", []), lost))
    return Request(
        model=called.model,
        messages=(
            *_read_system(document.get("systemInstruction", []), lost),
            *_read_contents(document["contents"], lost),
        ),
        tools=tools,
        tool_choice=read_tool_choice(document.get("toolConfig", {}), tools, lost),
        sampling=_read_sampling(generation),
        format=_read_format(generation, lost),
        stream=called.method == STREAM,
        lost=tuple(dict.fromkeys(lost)),
    )


def write_request(request: Request) -> tuple[bytes, tuple[str, ...]]:
    """The body that asks for the same, and what it cannot say."""
    lost: list[str] = []
    leading = list(takewhile(lambda message: message.role == "system", request.messages))
    document: Json = {"contents": _write_contents(request.messages[len(leading) :], lost)}
    if system := [said for message in leading for part in message.parts for said in _write_system(part, lost)]:
        document["systemInstruction"] = {"parts": system}
    if request.tools:
        document["tools"] = [{"functionDeclarations": [write_tool(tool, lost) for tool in request.tools]}]
        document |= write_tool_choice(request)
    if request.parallel_tools is False:
        lost.append("one tool call at a time")
    if config := _write_sampling(request.sampling, lost) | _write_format(request.format):
        document["generationConfig"] = config
    return msgspec.json.encode(document), tuple(dict.fromkeys(lost))


@bounded()
def count_reply(body: bytes) -> bytes:
    """The answer to a countTokens call: an estimate by length. ValueError when the body is no JSON object."""
    characters, pictures = 0, 0
    left: list[Any] = [an_object(msgspec.json.decode(body), "the request")]
    while left:
        match left.pop():
            case str(text):
                characters += len(text)
            case list(items):
                left += items
            case {"mimeType": _, "data": _} | {"mime_type": _, "data": _}:
                pictures += 1
            case dict(named):
                characters += sum(map(len, named))
                left += named.values()
    tokens = -(-characters // _CHARACTERS_PER_TOKEN) + pictures * _TOKENS_PER_PICTURE
    details = [{"modality": "TEXT", "tokenCount": tokens}]
    return msgspec.json.encode({"totalTokens": tokens, "promptTokensDetails": details})


def _read_system(raw: Any, lost: list[str]) -> list[Message]:
    content = raw if isinstance(raw, dict) and "parts" in raw else {"parts": raw}
    parts = [part for block in a_list(content["parts"] or []) for part in read_part(block, lost)]
    texts = tuple(part for part in parts if isinstance(part, Text))
    lost += [f"{type(part).__name__.lower()} in systemInstruction" for part in parts if not isinstance(part, Text)]
    return [Message("system", texts)] if texts else []


def _read_contents(raw: Any, lost: list[str]) -> Iterator[Message]:
    ids = CallIds()
    for item in a_list(raw):
        content = fields({"parts": item} if isinstance(item, str) else item, "a content")
        lost += others(content, frozenset({"role", "parts"}), "content ")
        said = (part for block in a_list(content.get("parts", [])) for part in read_part(block, lost))
        parts = [_identified(part, ids) for part in said]
        yield from _read_turn(_read_role(content.get("role", "user"), lost), parts)


def _read_turn(role: Role, parts: list[Part]) -> Iterator[Message]:
    """The messages of one turn: more than one where clients put results into a turn of the model."""
    for speaker, together in groupby(parts, key=lambda part: _speaker(part, role)):
        yield Message(speaker, tuple(sorted(together, key=lambda part: not isinstance(part, ToolResult))))


def _read_role(raw: Any, lost: list[str]) -> Role:
    name = a_string(raw, "role") or "user"
    if name not in _ROLES:
        lost.append(f"role {name}")
    return _ROLES.get(name, "user")


def _identified(part: Part, ids: CallIds) -> Part:
    if isinstance(part, ToolCall):
        return msgspec.structs.replace(part, id=ids.of_call(part.id, part.name))
    if isinstance(part, ToolResult):
        call_id, name = ids.of_answered(part.call_id, part.name or "")
        return msgspec.structs.replace(part, call_id=call_id, name=name or None)
    return part


def _speaker(part: Part, role: Role) -> Role:
    match part:
        case ToolCall() | Thinking():
            return "assistant"
        case ToolResult():
            return "user"
        case _:
            return role


def _read_generation(raw: Any, lost: list[str]) -> _Generation:
    config = fields(raw, "generationConfig")
    known = frozenset(_Generation.__struct_encode_fields__)
    lost += others(config, known, "generationConfig.")
    generation = msgspec.convert(config, _Generation, strict=False)
    if (generation.candidate_count or 1) > 1:
        raise ValueError(f"candidateCount is {generation.candidate_count}, but only one answer can be given")
    return generation


def _read_sampling(generation: _Generation) -> Sampling:
    level = fields(generation.thinking_config, "thinkingConfig").get("thinkingLevel")
    efforts = {name: effort for effort, name in _LEVELS.items()}
    return Sampling(
        max_tokens=generation.max_output_tokens,
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        stop=generation.stop_sequences,
        seed=generation.seed,
        presence_penalty=generation.presence_penalty,
        frequency_penalty=generation.frequency_penalty,
        effort=efforts.get(level.upper()) if isinstance(level, str) else None,
    )


def _read_format(generation: _Generation, lost: list[str]) -> Format | None:
    kind, schema = generation.response_mime_type, generation.response_json_schema
    if schema is None and generation.response_schema is not None:
        schema = json_schema(generation.response_schema)
    if kind not in {"application/json", "text/plain"}:
        lost.append(f"generationConfig.responseMimeType {kind}")
        return None
    return Format(schema) if schema is not None or kind == "application/json" else None


def _write_system(part: Part, lost: list[str]) -> list[Json]:
    if isinstance(part, Text):
        return write_said(part)
    lost.append(f"{type(part).__name__.lower()} in a system message")
    return []


def _write_contents(messages: tuple[Message, ...], lost: list[str]) -> list[Json]:
    """The turns. What one side says in several messages is one turn: the answers to calls must stand in one."""
    if any(message.role == "system" for message in messages):
        lost.append("role of a system message inside the conversation")
    ids = CallIds()
    contents = []
    for model_speaks, turn in groupby(messages, key=lambda message: message.role == "assistant"):
        parts = [said for message in turn for part in message.parts for said in _write_part(part, ids, lost)]
        parts.sort(key=lambda part: "functionResponse" not in part)
        if parts:
            contents.append({"role": "model" if model_speaks else "user", "parts": parts})
    return contents


def _write_part(part: Part, ids: CallIds, lost: list[str]) -> list[Json]:
    match part:
        case ToolCall(call_id, name, namespace=namespace):
            return [write_call(part, ids.of_call(call_id, wire_name(name, namespace)), SKIP_VALIDATION, lost)]
        case ToolResult(call_id, name=name):
            return write_result(part, *ids.of_answered(call_id, name or "unknown"))
        case Image():
            return [write_image(part)]
        case Refusal():
            lost.append("refusal, sent as text")
            return write_said(part)
        case Text() | Thinking():
            return write_said(part)


def _write_sampling(sampling: Sampling, lost: list[str]) -> Json:
    config = {
        "maxOutputTokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "stopSequences": sampling.stop or None,
        "seed": sampling.seed,
        "presencePenalty": sampling.presence_penalty,
        "frequencyPenalty": sampling.frequency_penalty,
        "thinkingConfig": _write_effort(sampling.effort, lost) if sampling.effort else None,
    }
    return {name: value for name, value in config.items() if value is not None}


def _write_effort(effort: str, lost: list[str]) -> Json | None:
    if effort not in _LEVELS:
        lost.append(f"effort {effort}")
    level = _LEVELS.get(effort) or _NEAREST_LEVELS.get(effort)
    # Who says how hard to think wants to see the thoughts; the provider hides them unless asked.
    return {"thinkingLevel": level, "includeThoughts": True} if level else None


def _write_format(form: Format | None) -> Json:
    if form is None:
        return {}
    return {"responseMimeType": "application/json"} | (
        {} if form.schema is None else {"responseJsonSchema": form.schema}
    )
