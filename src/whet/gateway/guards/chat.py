"""What a chat completions request may hold."""

from typing import Any

from whet.gateway.guards.checks import (
    WITHHELD,
    FieldCheck,
    Report,
    a_choice,
    a_flag,
    a_schema,
    a_tool,
    an_object,
    anything,
    base64_data,
    by_kind,
    each,
    for_provider_tools,
    inline,
    one,
    one_of,
    refuse_stored,
    require_name,
    settings,
    text_or,
)

_MEDIA = an_object("media", {"url": inline, "detail": anything, "format": anything})


def _media(value: Any, report: Report) -> Any:
    return inline(value, report) if isinstance(value, str) else _MEDIA(value, report)


def _part(**fields: FieldCheck) -> FieldCheck:
    return an_object("a content part", {"type": anything, "cache_control": anything, **fields})


_AUDIO = an_object("input_audio", {"data": base64_data, "format": anything})
_FILE = an_object(
    "file",
    {"file_data": inline, "filename": anything, "format": anything, "file_id": refuse_stored("A file by its id")},
)
_PARTS = {
    "text": _part(text=anything, annotations=anything),
    "refusal": _part(refusal=anything),
    "thinking": _part(thinking=anything, signature=anything, closed=anything),
    "image_url": _part(image_url=_media),
    "video_url": _part(video_url=_media),
    "audio_url": _part(audio_url=_media),
    "input_audio": _part(input_audio=_AUDIO),
    "file": _part(file=_FILE),
}
_CONTENT = text_or(each("content", text_or(by_kind("A content part", _PARTS, default="text"))))
_CALL = an_object(
    "a tool call",
    dict.fromkeys(
        ("id", "index", "function", "custom", "cache_control", "extra_content", "provider_specific_fields"), anything
    )
    | {"type": one_of("tool call", "function", "custom")},
)
_SPOKEN = (
    "role",
    "name",
    "id",
    "refusal",
    "tool_call_id",
    "function_call",
    "annotations",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "reasoning_opaque",
    "reasoning_signature",
    "reasoning_text",
    "thinking",
    "thinking_blocks",
    "thought_signature",
    "phase",
    "prefix",
    "partial",
    "cache_control",
    "copilot_cache_control",
    "extra_content",
    "provider_specific_fields",
)
"""What programs send of a message besides its content. Most of it is what the model's server sent them."""
_MESSAGE = an_object(
    "a message", dict.fromkeys(_SPOKEN, anything) | {"content": _CONTENT, "tool_calls": each("tool_calls", _CALL)}
)

_DECLARED = {"name": anything, "description": anything, "cache_control": anything}
_FUNCTION = require_name(an_object("a function", _DECLARED | {"parameters": a_schema, "strict": anything}))
_CUSTOM = require_name(an_object("a custom tool", _DECLARED | {"format": anything}))


def _wrap_tool(key: str, inner: FieldCheck) -> FieldCheck:
    outer = an_object("a tool", {"type": anything, "cache_control": anything, key: anything})

    def check(value: Any, report: Report) -> Any:
        held = inner(value.get(key), report)
        if held is WITHHELD:
            return WITHHELD
        kept = outer(value, report)
        return kept if held is value[key] else {**kept, key: held}

    return check


_KINDS = {"function": _wrap_tool("function", _FUNCTION), "custom": _wrap_tool("custom", _CUSTOM)}
TOOLS = each("tools", a_tool(lambda tool: tool.get("type") or "function", _KINDS.get))

_FREE = (
    "temperature",
    "top_p",
    "top_k",
    "top_a",
    "min_p",
    "typical_p",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "length_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "skip_special_tokens",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "prediction",
    "reasoning",
    "reasoning_effort",
    "reasoning_format",
    "include_reasoning",
    "thinking",
    "enable_thinking",
    "thinking_budget",
    "verbosity",
    "parallel_tool_calls",
    "function_call",
    "stream_options",
    "user",
    "metadata",
    "store",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_control",
    "cache_prompt",
)
"""Sampling, the form of the answer, and who asks."""
FIELDS: dict[str, FieldCheck] = dict.fromkeys(_FREE, anything) | {
    "model": anything,  # set to the one that is called
    "messages": each("messages", _MESSAGE),
    "tools": TOOLS,
    "tool_choice": a_choice("function", "custom", "allowed_tools"),
    "functions": each("functions", _FUNCTION),
    "max_tokens": anything,  # bounded with the model's own limit
    "max_completion_tokens": anything,
    "min_tokens": anything,
    "response_format": a_schema,
    "guided_json": a_schema,
    "structured_outputs": a_schema,
    "chat_template_kwargs": settings("chat_template_kwargs"),
    "stream": a_flag("stream"),
    "n": one("n"),
    "best_of": one("best_of"),
    # Another tier has another price than the one that limits count with.
    "service_tier": one_of("service_tier", "auto", "default", "flex"),
    "modalities": each("modalities", one_of("modality", "text")),
    "web_search_options": for_provider_tools("web_search_options"),
    "plugins": for_provider_tools("plugins"),
    "search_parameters": for_provider_tools("search_parameters"),
    "enable_search": for_provider_tools("enable_search"),
}
