"""What a request of the Messages API may hold."""

import re
from typing import Any

from whet.gateway.guards.checks import (
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
    elsewhere,
    for_provider_tools,
    one_of,
    require_name,
    text_or,
)

_RUN_BY_AGENT = re.compile(r"(?:bash|text_editor|memory)_\d{8}")
"""Tools that the provider defines and the agent runs."""
_DECLARED = dict.fromkeys(
    (
        "type",
        "name",
        "description",
        "cache_control",
        "strict",
        "defer_loading",
        "allowed_callers",
        "eager_input_streaming",
        "input_examples",
    ),
    anything,
)


def _schema(value: Any, report: Report) -> Any:
    if isinstance(value, dict):
        return a_schema(value, report)
    raise ValueError("The input_schema of a tool must be an object.")


_CUSTOM = require_name(an_object("a tool", _DECLARED | {"input_schema": _schema}))
_PREDEFINED = require_name(an_object("a tool", _DECLARED | {"max_characters": anything}))


def _kind(tool: Any) -> Any:
    kind = tool.get("type")
    if kind is None and tool.get("input_schema") is None:
        return tool.get("name")
    return "custom" if kind is None else kind


def _check_of(kind: str) -> FieldCheck | None:
    return _CUSTOM if kind == "custom" else _PREDEFINED if _RUN_BY_AGENT.fullmatch(kind) else None


TOOLS = each("tools", a_tool(_kind, _check_of))


def _block(*names: str, **checked: FieldCheck) -> FieldCheck:
    always = dict.fromkeys(("type", "cache_control"), anything)
    return an_object("a content block", {**always, **dict.fromkeys(names, anything), **checked})


def _blocks(value: Any, report: Report) -> Any:
    return _CONTENT(value, report)


def _source(*names: str, **checked: FieldCheck) -> FieldCheck:
    return an_object("a source", {"type": anything, **dict.fromkeys(names, anything), **checked})


_SOURCES = {
    "base64": _source("media_type", data=base64_data),
    "text": _source("media_type", "data"),
    "content": _source(content=_blocks),
    "url": _source(url=elsewhere),
}
_SOURCE = by_kind("A source", _SOURCES)
_BLOCKS = {
    "text": _block("text", "citations"),
    "image": _block(source=_SOURCE),
    "document": _block("title", "context", "citations", source=_SOURCE),
    "search_result": _block("source", "title", "citations", content=_blocks),
    "thinking": _block("thinking", "signature"),
    "redacted_thinking": _block("data"),
    "tool_use": _block("id", "name", "input", "caller"),
    "tool_result": _block("tool_use_id", "is_error", content=_blocks),
    "tool_reference": _block("tool_name"),
    "compaction": _block("encrypted_content", content=_blocks),
}
_CONTENT = text_or(each("content", text_or(by_kind("A content block", _BLOCKS, default="text"))))
_REPEATED = ("role", "id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "cache_control")
"""What programs send of a message besides its content: some repeat the model's reply whole."""
_MESSAGE = an_object("a message", dict.fromkeys(_REPEATED, anything) | {"content": _CONTENT})

_FREE = (
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "thinking",
    "context_management",
    "metadata",
    "cache_control",
)
FIELDS: dict[str, FieldCheck] = dict.fromkeys(_FREE, anything) | {
    "model": anything,  # set to the one that is called
    "messages": each("messages", _MESSAGE),
    "system": _CONTENT,
    "tools": TOOLS,
    "tool_choice": a_choice("auto", "any", "tool", "none"),
    "max_tokens": anything,  # bounded with the model's own limit
    "output_config": a_schema,
    "output_format": a_schema,
    "stream": a_flag("stream"),
    "service_tier": one_of("service_tier", "auto", "standard_only"),
    "mcp_servers": for_provider_tools("mcp_servers"),
    "container": for_provider_tools("container"),
}
