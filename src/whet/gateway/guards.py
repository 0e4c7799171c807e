"""What must not cross to a provider: tools that it would run itself, and media that it would fetch.

Both reach the network through the provider although the box has none.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

_REMOTE_MEDIA = re.compile(
    rb'"(?:image_url|file_url|file_uri|fileuri|url|uri)"\s*:\s*(?:\{\s*"url"\s*:\s*)?"(?:https?|file|ftp|gs)://',
    re.IGNORECASE,
)
_RUN_BY_PROVIDER = re.compile(
    r"web_search|web_fetch|code_interpreter|code_execution|file_search|image_generation|mcp|computer_use"
)
_GEMINI_FUNCTIONS = frozenset({"functionDeclarations", "function_declarations"})
_FIELDS = {"chat": ("web_search_options",), "messages": ("mcp_servers", "container")}
"""Top-level fields that switch such a tool on."""


def provider_tools(fields: Mapping[str, bytes], dialect: str) -> tuple[dict[str, bytes | None], tuple[str, ...]]:
    """The changes that take the tools out of a request that the provider would run, and their names.

    >>> provider_tools({"tools": b'[{"type":"web_search"}]', "input": b'"hi"'}, "responses")
    ({'tools': None}, ('tool web_search',))
    """
    changes: dict[str, bytes | None] = {name: None for name in _FIELDS.get(dialect, ()) if name in fields}
    withheld = [f"field {name}" for name in changes]
    tools = msgspec.json.decode(fields.get("tools", b"[]"))
    if isinstance(tools, list):
        kept, named = _sorted_out(tools, _gemini_names if dialect == "gemini" else _typed_names)
        withheld += named
        if named:
            changes["tools"] = msgspec.json.encode(kept) if kept else None
            if not kept:
                changes |= dict.fromkeys({"tool_choice", "toolConfig", "parallel_tool_calls"} & fields.keys())
    return changes, tuple(withheld)


def refuse_remote_media(body: bytes) -> None:
    """ValueError when the request names media that lie elsewhere."""
    if b"\\/" in body or b"\\u" in body:
        # Escapes can hide an address from a look at the bytes; written anew, there are none but those in text.
        body = _without_escapes(body)
    if _REMOTE_MEDIA.search(body):
        raise ValueError("Media must be part of the request, as a data: URI; addresses are not followed.")


def _without_escapes(body: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(body))
    except (ValueError, RecursionError):
        return body  # not JSON: no model will read it either


def _sorted_out(tools: list[Any], names: Callable[[Mapping[str, Any]], Iterator[str]]) -> tuple[list[Any], list[str]]:
    kept, named = [], []
    for tool in tools:
        found = list(names(tool)) if isinstance(tool, dict) else []
        named += [f"tool {name}" for name in found]
        if not found:
            kept.append(tool)
    return kept, named


def _typed_names(tool: Mapping[str, Any]) -> Iterator[str]:
    kind = str(tool.get("type", "function"))
    if "input_schema" not in tool and _RUN_BY_PROVIDER.match(kind):
        yield kind


def _gemini_names(tool: Mapping[str, Any]) -> Iterator[str]:
    # One entry holds either functions or one of the provider's own tools.
    if not _GEMINI_FUNCTIONS & tool.keys():
        yield from tool
