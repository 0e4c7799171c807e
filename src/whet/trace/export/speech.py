"""Converts messages to those of chat completions, which text-level trainers read. Call arguments stay text."""

from collections.abc import Iterable, Sequence
from typing import Any

from whet.gateway.dialects.neutral import (
    Image,
    Json,
    Message,
    Part,
    Refusal,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)


def chat_messages(message: Message) -> list[Json]:
    """Convert a message. Each tool result becomes a separate message.

    >>> chat_messages(Message("user", (Text("hi"),)))
    [{'role': 'user', 'content': 'hi'}]
    """
    if message.role == "assistant":
        return [_assistant(message.parts)]
    results = [
        {"role": "tool", "tool_call_id": part.call_id, "content": text_of(part.parts)}
        for part in message.parts
        if isinstance(part, ToolResult)
    ]
    others = [part for part in message.parts if not isinstance(part, ToolResult)]
    return [*results, *([{"role": message.role, "content": _content(others)}] if others or not results else [])]


def chat_tools(tools: Iterable[Tool]) -> list[Json]:
    """The tools that a model is offered."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters or {}},
        }
        for tool in tools
    ]


def text_of(parts: Iterable[Part]) -> str:
    """The text of a message, without reasoning and calls."""
    return "\n".join(part.text for part in parts if isinstance(part, Text | Refusal))


def thoughts_of(parts: Iterable[Part]) -> str:
    """The reasoning of a message."""
    return "\n".join(part.text for part in parts if isinstance(part, Thinking) and part.text)


def _assistant(parts: Sequence[Part]) -> Json:
    message: Json = {"role": "assistant", "content": text_of(parts) or None}
    if thoughts := thoughts_of(parts):
        message["reasoning_content"] = thoughts
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


def _content(parts: Sequence[Part]) -> str | list[Any]:
    if not any(isinstance(part, Image) for part in parts):
        return text_of(parts)
    content = []
    for part in parts:
        match part:
            case Image(media_type, data):
                content.append({"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}})
            case Text(text) | Refusal(text):
                content.append({"type": "text", "text": text})
    return content
