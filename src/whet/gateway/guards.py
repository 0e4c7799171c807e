"""What must not cross to a provider: tools that it would run itself, and media that it would fetch.

Both reach the network through the provider although the box has none.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Sorted:
    """The tools of a request without those that the provider would run."""

    kept: bytes | None
    """As JSON; None when none is left."""
    withheld: tuple[str, ...]
    """The names of the others."""


def sorted_tools(tools: bytes, dialect: str) -> Sorted:
    """What may cross of the tools of a request, given as JSON.

    >>> sorted_tools(b'[{"type":"web_search"}]', "responses")
    Sorted(kept=None, withheld=('tool web_search',))
    """
    read = msgspec.json.decode(tools)
    if not isinstance(read, list):
        return Sorted(tools, ())
    kept, named = _sorted_out(read, _gemini_names if dialect == "gemini" else _typed_names)
    return Sorted(msgspec.json.encode(kept) if kept else None, tuple(named))


def provider_tools(
    fields: Mapping[str, bytes], dialect: str, sort: Callable[[bytes, str], Sorted] = sorted_tools
) -> tuple[dict[str, bytes | None], tuple[str, ...]]:
    """The changes that take the tools out of a request that the provider would run, and their names.

    `sort` may remember what it found before.

    >>> provider_tools({"tools": b'[{"type":"web_search"}]', "input": b'"hi"'}, "responses")
    ({'tools': None}, ('tool web_search',))
    """
    changes: dict[str, bytes | None] = {name: None for name in _FIELDS.get(dialect, ()) if name in fields}
    withheld = [f"field {name}" for name in changes]
    found = sort(fields["tools"], dialect) if "tools" in fields else Sorted(None, ())
    if found.withheld:
        changes["tools"] = found.kept
        if found.kept is None:
            changes |= dict.fromkeys({"tool_choice", "toolConfig", "parallel_tool_calls"} & fields.keys())
    return changes, (*withheld, *found.withheld)


def refuse_remote_media(body: bytes) -> None:
    """ValueError when the request names media that lie elsewhere."""
    if b"\\/" in body or b"\\u" in body:
        # Escapes can hide an address from a look at the bytes; written anew, there are none but those in text.
        body = _without_escapes(body)
    # A plain search first: most requests hold no address at all, and the pattern takes long to say so.
    if b"://" in body and _REMOTE_MEDIA.search(body):
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
