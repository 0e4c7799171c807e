"""Requests in Gemini's generateContent: read from agents, written for models, and a rough count of their tokens."""

from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import Any, Literal

import msgspec

from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.gemini.wire import (
    SKIP_VALIDATION,
    STREAM,
    CallIds,
    a_list,
    a_string,
    an_object,
    fields,
    json_schema,
    others,
    read_part,
    refuse_deep_nesting,
    target,
    wire_name,
    write_call,
    write_image,
    write_result,
    write_said,
)

_KNOWN = frozenset({"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"})
_WITHOUT_MEANING = frozenset({"model", "labels", "safetySettings", "serviceTier", "store"})
"""What a request may say that changes nothing for the model."""

_ROLES: dict[str, n.Role] = {"user": "user", "function": "user", "model": "assistant", "system": "system"}
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
    response_schema: n.Json | None = None
    response_json_schema: n.Json | None = None
    thinking_config: n.Json = {}


def wants_stream(body: bytes, path: str) -> bool:  # noqa: ARG001 - here the path says it, not the body
    """Whether the answer is to be streamed."""
    called = target(path)
    return called is not None and called.method == STREAM


@refuse_deep_nesting()
def read_request(body: bytes, path: str) -> n.Request:
    """What the call asks for. ValueError when it is not a request, or cannot be answered."""
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
    return n.Request(
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


def write_request(request: n.Request) -> tuple[bytes, tuple[str, ...]]:
    """The body that asks for the same, and what it cannot say."""
    lost: list[str] = []
    leading = list(takewhile(lambda message: message.role == "system", request.messages))
    document: n.Json = {"contents": _write_contents(request.messages[len(leading) :], lost)}
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


@refuse_deep_nesting()
def count_reply(body: bytes) -> bytes:
    """The answer to a countTokens call: an estimate by length. ValueError when the body is not a JSON object."""
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


def _read_system(raw: Any, lost: list[str]) -> list[n.Message]:
    content = raw if isinstance(raw, dict) and "parts" in raw else {"parts": raw}
    parts = [part for block in a_list(content["parts"] or []) for part in read_part(block, lost)]
    texts = tuple(part for part in parts if isinstance(part, n.Text))
    lost += [f"{type(part).__name__.lower()} in systemInstruction" for part in parts if not isinstance(part, n.Text)]
    return [n.Message("system", texts)] if texts else []


def _read_contents(raw: Any, lost: list[str]) -> Iterator[n.Message]:
    ids = CallIds()
    for item in a_list(raw):
        content = fields({"parts": item} if isinstance(item, str) else item, "a content")
        lost += others(content, frozenset({"role", "parts"}), "content ")
        said = (part for block in a_list(content.get("parts", [])) for part in read_part(block, lost))
        parts = [_give_id(part, ids) for part in said]
        yield from _read_turn(_read_role(content.get("role", "user"), lost), parts)


def _read_turn(role: n.Role, parts: list[n.Part]) -> Iterator[n.Message]:
    """The messages of one turn: more than one where clients put results into a turn of the model."""
    for speaker, together in groupby(parts, key=lambda part: _speaker(part, role)):
        yield n.Message(speaker, tuple(sorted(together, key=lambda part: not isinstance(part, n.ToolResult))))


def _read_role(raw: Any, lost: list[str]) -> n.Role:
    name = a_string(raw, "role") or "user"
    if name not in _ROLES:
        lost.append(f"role {name}")
    return _ROLES.get(name, "user")


def _give_id(part: n.Part, ids: CallIds) -> n.Part:
    if isinstance(part, n.ToolCall):
        return msgspec.structs.replace(part, id=ids.name_call(part.id, part.name))
    if isinstance(part, n.ToolResult):
        call_id, name = ids.match_result(part.call_id, part.name or "")
        return msgspec.structs.replace(part, call_id=call_id, name=name or None)
    return part


def _speaker(part: n.Part, role: n.Role) -> n.Role:
    match part:
        case n.ToolCall() | n.Thinking():
            return "assistant"
        case n.ToolResult():
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


def _read_sampling(generation: _Generation) -> n.Sampling:
    level = fields(generation.thinking_config, "thinkingConfig").get("thinkingLevel")
    efforts = {name: effort for effort, name in _LEVELS.items()}
    return n.Sampling(
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


def _read_format(generation: _Generation, lost: list[str]) -> n.Format | None:
    kind, schema = generation.response_mime_type, generation.response_json_schema
    if schema is None and generation.response_schema is not None:
        schema = json_schema(generation.response_schema)
    if kind not in {"application/json", "text/plain"}:
        lost.append(f"generationConfig.responseMimeType {kind}")
        return None
    return n.Format(schema) if schema is not None or kind == "application/json" else None


def _write_system(part: n.Part, lost: list[str]) -> list[n.Json]:
    if isinstance(part, n.Text):
        return write_said(part)
    lost.append(f"{type(part).__name__.lower()} in a system message")
    return []


def _write_contents(messages: tuple[n.Message, ...], lost: list[str]) -> list[n.Json]:
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


def _write_part(part: n.Part, ids: CallIds, lost: list[str]) -> list[n.Json]:
    match part:
        case n.ToolCall(call_id, name, namespace=namespace):
            return [write_call(part, ids.name_call(call_id, wire_name(name, namespace)), SKIP_VALIDATION, lost)]
        case n.ToolResult(call_id, name=name):
            return write_result(part, *ids.match_result(call_id, name or "unknown"))
        case n.Image():
            return [write_image(part)]
        case n.Refusal():
            lost.append("refusal, sent as text")
            return write_said(part)
        case n.Text() | n.Thinking():
            return write_said(part)


def _write_sampling(sampling: n.Sampling, lost: list[str]) -> n.Json:
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


def _write_effort(effort: str, lost: list[str]) -> n.Json | None:
    if effort not in _LEVELS:
        lost.append(f"effort {effort}")
    level = _LEVELS.get(effort) or _NEAREST_LEVELS.get(effort)
    # An agent that sets the effort wants to see the thoughts; the provider hides them by default.
    return {"thinkingLevel": level, "includeThoughts": True} if level else None


def _write_format(form: n.Format | None) -> n.Json:
    if form is None:
        return {}
    return {"responseMimeType": "application/json"} | (
        {} if form.schema is None else {"responseJsonSchema": form.schema}
    )


_DECLARATION_FIELDS = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
_CALLING_FIELDS = frozenset({"mode", "allowedFunctionNames", "streamFunctionCallArguments"})
_MODES: dict[str, Literal["auto", "none", "required"]] = {"AUTO": "auto", "NONE": "none", "ANY": "required"}

_NO_PARAMETERS: n.Json = {"type": "object", "properties": {}}
_RAW_TEXT: n.Json = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of a custom tool where there are only functions."""


def read_tools(raw: Any, lost: list[str]) -> Iterator[n.Tool]:
    """The functions among the tools; the provider's own tools are lost."""
    for entry in a_list(raw):
        tool = fields(entry, "a tool")
        lost += others(tool, frozenset({"functionDeclarations"}), "tool ")
        for declared in a_list(tool.get("functionDeclarations", [])):
            declaration = fields(declared, "a function declaration")
            lost += others(declaration, _DECLARATION_FIELDS, "functionDeclarations.")
            yield n.Tool(
                name=a_string(declaration.get("name"), "the name of a function declaration"),
                description=a_string(declaration.get("description", ""), "the description of a function declaration"),
                parameters=_read_parameters(declaration),
            )


def _read_parameters(declaration: n.Json) -> n.Json:
    if "parametersJsonSchema" in declaration:
        return an_object(declaration["parametersJsonSchema"], "parametersJsonSchema")
    return json_schema(declaration.get("parameters", _NO_PARAMETERS))


def read_tool_choice(raw: Any, tools: tuple[n.Tool, ...], lost: list[str]) -> n.ToolChoice | None:
    """How the tools are to be called; None when it is not said, or there are none."""
    config = fields(raw, "toolConfig")
    calling = fields(config.get("functionCallingConfig", {}), "functionCallingConfig")
    lost += others(config, frozenset({"functionCallingConfig"}), "toolConfig.")
    lost += others(calling, _CALLING_FIELDS, "functionCallingConfig.")
    mode = a_string(calling.get("mode", "MODE_UNSPECIFIED"), "mode").upper()
    if not tools or mode == "MODE_UNSPECIFIED":
        return None
    allowed = a_list(calling.get("allowedFunctionNames", []))
    if mode == "ANY" and len(allowed) == 1:
        # A tool that is not carried over cannot be demanded either.
        declared = any(tool.name == allowed[0] for tool in tools)
        return n.ToolChoice("tool", allowed[0]) if declared else n.ToolChoice("auto")
    if allowed:
        lost.append("functionCallingConfig.allowedFunctionNames")
    if mode not in _MODES:
        lost.append(f"functionCallingConfig.mode {mode}")
    return n.ToolChoice(_MODES.get(mode, "auto"))


def write_tool(tool: n.Tool, lost: list[str]) -> n.Json:
    """The declaration of a function that stands for this tool."""
    if tool.grammar is not None:
        lost.append(f"grammar of tool {tool.name}")
    if tool.strict:
        lost.append("strict tools")
    parameters = _RAW_TEXT if tool.custom else tool.parameters or _NO_PARAMETERS
    name = wire_name(tool.name, tool.namespace)
    return {"name": name, "description": tool.description, "parametersJsonSchema": parameters}


def write_tool_choice(request: n.Request) -> n.Json:
    """The field that says how the tools are to be called, if the request says it."""
    choice = request.tool_choice
    if choice is None:
        return {}
    if choice.mode == "tool":
        named = [wire_name(tool.name, tool.namespace) for tool in request.tools if tool.name == choice.name]
        config: n.Json = {"mode": "ANY", "allowedFunctionNames": named} if named else {"mode": "AUTO"}
    else:
        config = {"mode": {"auto": "AUTO", "none": "NONE", "required": "ANY"}[choice.mode]}
    return {"toolConfig": {"functionCallingConfig": config}}
