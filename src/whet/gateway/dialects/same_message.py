"""When two messages are the same message, although an agent sent the second with changes.

Agents strip thinking, write the arguments of a tool call anew, move cache marks and split or join texts. None of that
makes another message. There are two forms of one rule: `wire_form` for messages as they are on the wire, which costs
little while a call waits, and `neutral_form` for messages that were read. The neutral form also ignores the ids of tool
calls, because one dialect has none.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from whet.gateway.dialects.neutral import Image, Message, Part, Refusal, Text, ToolCall, ToolResult

_VOLATILE = frozenset(
    {
        *("cache_control", "annotations", "index", "status"),
        *("reasoning", "reasoning_content", "reasoning_details"),
        *("signature", "thoughtSignature", "thought_signature"),
    }
)
"""Keys of a message on the wire that come and go while it stays the same message."""
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def wire_form(value: Any, key: str = "") -> Any:
    """A message on the wire, without everything that may change while it stays the same message.

    >>> marked = {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
    >>> wire_form(marked) == wire_form({"role": "user", "content": "Hi"})
    True
    """
    match value:
        case dict():
            kept = {name: wire_form(item, name) for name, item in value.items() if name not in _VOLATILE}
            return {name: item for name, item in kept.items() if item not in (None, "", [], {})}
        case list():
            items = [wire_form(item) for item in value if not is_thought(item)]
            match items:
                case [{"text": str(text), **others}] if others.keys() <= {"type"}:
                    return text
            return items
        case str() if key == "arguments":
            return sort_arguments(value)
        case _:
            return value


def is_thought(item: Any) -> bool:
    """Whether a message or a part of one, on the wire, is the model's thinking."""
    match item:
        case {"type": str(kind)} if kind in _THOUGHTS:
            return True
        case {"thought": True}:
            return True
    return False


def neutral_form(message: Message) -> list[Any]:
    """A message that was read, without everything that may change while it stays the same message."""
    return [message.role, *_neutral_parts(message.parts)]


def _neutral_parts(parts: Sequence[Part]) -> Iterator[Any]:
    for kind, together in groupby(parts, key=type):
        if kind in {Text, Refusal}:
            words = "\n".join(part.text for part in together if isinstance(part, Text | Refusal)).strip()
            if words:
                yield words
            continue
        for part in together:
            match part:
                case Image(media_type, data):
                    yield ["image", media_type, data]
                case ToolCall(_, name, arguments):
                    yield ["call", name, sort_arguments(arguments)]
                case ToolResult(_, inner):
                    yield ["result", *_neutral_parts(inner)]


def sort_arguments(arguments: str) -> str:
    """The arguments of a tool call in one form; as they are when they are not JSON."""
    try:
        return msgspec.json.encode(json.loads(arguments or "{}"), order="sorted").decode()
    except (ValueError, RecursionError, OverflowError):
        return arguments
