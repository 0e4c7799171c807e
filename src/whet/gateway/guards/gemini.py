"""What a request of Gemini's API may hold. Every name counts in both spellings, as the provider reads it."""

from collections.abc import Mapping
from typing import Any

from whet.gateway.dialects.gemini.wire import camel
from whet.gateway.guards.checks import (
    WITHHELD,
    FieldCheck,
    Report,
    a_schema,
    an_object,
    anything,
    base64_data,
    each,
    elsewhere,
    one,
    one_of,
    refuse_stored,
    require_name,
    shorten_name,
    text_or,
)


def _object(what: str, *names: str, **checked: FieldCheck) -> FieldCheck:
    return an_object(what, {**dict.fromkeys(names, anything), **checked}, any_case=True)


def _parts(value: Any, report: Report) -> Any:
    return _PARTS(value, report)


def _run_by_provider(value: Any, report: Report) -> Any:
    if report.permits.provider_tools:
        return value
    raise ValueError("A part that tells of a tool of the provider is not allowed here.")


_PART = _object(
    "a part",
    "text",
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "partMetadata",
    "mediaResolution",
    inlineData=_object("inlineData", "mimeType", "displayName", data=base64_data),
    fileData=elsewhere,
    functionCall=_object("functionCall", "id", "name", "args", "partialArgs", "willContinue"),
    functionResponse=_object("functionResponse", "id", "name", "response", "willContinue", "scheduling", parts=_parts),
    executableCode=_run_by_provider,
    codeExecutionResult=_run_by_provider,
    toolCall=_run_by_provider,
    toolResponse=_run_by_provider,
)
_PARTS = text_or(each("parts", text_or(_PART), or_one=True))
_CONTENT = text_or(_object("a content", "role", parts=_PARTS))
_CONTENTS = each("contents", _CONTENT, or_one=True)


def _system(value: Any, report: Report) -> Any:
    # As lenient as the provider: a content, its parts alone, or text.
    return _CONTENT(value, report) if isinstance(value, dict) and "parts" in value else _PARTS(value, report)


_FUNCTION = require_name(
    _object(
        "a function declaration",
        "name",
        "description",
        "behavior",
        parameters=a_schema,
        parametersJsonSchema=a_schema,
        response=a_schema,
        responseJsonSchema=a_schema,
    )
)
_FUNCTIONS = each("functionDeclarations", _FUNCTION, or_one=True)


def _tool(value: Any, report: Report) -> Any:
    """One entry of the tools: each of its keys is a tool, or a list of functions."""
    if report.permits.provider_tools:
        return value
    if not isinstance(value, Mapping):
        return report.withhold("tool that is not an object")
    kept = {}
    for name, given in value.items():
        if camel(name) == "functionDeclarations" and given is not None:
            result = _FUNCTIONS(given, report)
            if result is not WITHHELD:
                kept[name] = result
        elif name in report.permits.tools or given is None:
            kept[name] = given
        else:
            report.withhold(f"tool {shorten_name(name)}")
    if len(kept) == len(value) and all(kept[name] is value[name] for name in kept):
        return value
    return kept or WITHHELD


TOOLS = each("tools", _tool, or_one=True)
_CONFIG = _object(
    "generationConfig",
    "temperature",
    "topP",
    "topK",
    "maxOutputTokens",  # bounded with the model's own limit
    "stopSequences",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseMimeType",
    "responseLogprobs",
    "logprobs",
    "thinkingConfig",
    "mediaResolution",
    "audioTimestamp",
    responseSchema=a_schema,
    responseJsonSchema=a_schema,
    _responseJsonSchema=a_schema,
    candidateCount=one("candidateCount"),
    responseModalities=each("responseModalities", one_of("modality", "TEXT", "text")),
)
FIELDS: dict[str, FieldCheck] = {
    "contents": _CONTENTS,
    "systemInstruction": _system,
    "tools": TOOLS,
    "toolConfig": _object("toolConfig", "functionCallingConfig"),
    "generationConfig": _CONFIG,
    "safetySettings": anything,
    "labels": anything,
    "cachedContent": refuse_stored("cachedContent"),
}


def _model(value: Any, report: Report) -> Any:
    name = f"models/{report.model_name.removeprefix('models/')}"
    return value if value == name else name


def _count(value: Any, report: Report) -> Any:
    named_model = {"model": "", **value} if isinstance(value, dict) else value
    return _COUNTED(named_model, report)


_COUNTED = an_object("generateContentRequest", FIELDS | {"model": _model}, any_case=True)
COUNTED_FIELDS: dict[str, FieldCheck] = FIELDS | {"generateContentRequest": _count}
"""A request to count tokens may hold the whole request that it is about."""
