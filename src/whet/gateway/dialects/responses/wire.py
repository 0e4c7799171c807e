"""What requests, replies and streams of OpenAI Responses share: items, tools and their neutral values."""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from whet.gateway.dialects import neutral as n

BETWEEN_THOUGHTS = "\n\n"
"""Parts the pieces of one thought, which the dialect keeps apart."""
_FORGED = "whet."
"""Begins the tokens that stand where the provider gave none; they mean nothing and are dropped when they come back."""
_INLINE_IMAGE = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "properties": {}}
_TOOL_FIELDS = frozenset(
    {"type", "name", "description", "parameters", "strict", "format", "tools", "defer_loading", "allowed_callers"}
)
"""What a tool may have that is carried, or means nothing once every tool is shown to the model."""


def decode_object(document: bytes) -> n.Json:
    """The JSON object in these bytes. ValueError when they are not one."""
    try:
        return msgspec.json.decode(document, type=dict[str, Any])
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error


def string(value: Any) -> str:
    """The value if it is text, else no text: clients and servers send null, or nothing, for what they do not know."""
    return value if isinstance(value, str) else ""


def read_item(item: Any, side: Literal["input", "output"], lost: list[str]) -> tuple[n.Part, ...]:
    """What an item of the assistant says: a message, a thought or a call. An id that is missing is left empty."""
    match item:
        case {"type": "message"}:
            if item.get("phase") is not None:
                lost.append("phase of a message")
            return read_content(item.get("content"), lost)
        case {"type": "reasoning"}:
            return _read_thinking(item, lost)
        case {"type": "function_call", "name": str(name)}:
            return (_read_call(item, name, item.get("arguments"), custom=False),)
        case {"type": "custom_tool_call", "name": str(name)}:
            return (_read_call(item, name, item.get("input"), custom=True),)
        case {"type": str(kind)}:
            lost.append(f"{side} item {kind}")
        case _:
            lost.append(f"{side} item without type")
    return ()


def _read_call(item: n.Json, name: str, arguments: Any, *, custom: bool) -> n.ToolCall:
    call_id = string(item.get("call_id")) or string(item.get("id"))
    return n.ToolCall(call_id, name, _text_of(arguments), custom, string(item.get("namespace")) or None)


def _text_of(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()


def _read_thinking(item: n.Json, lost: list[str]) -> tuple[n.Part, ...]:
    pieces = [piece for key in ("summary", "content") if isinstance(item.get(key), list) for piece in item[key]]
    texts = (string(piece.get("text")) for piece in pieces if isinstance(piece, dict))
    text = BETWEEN_THOUGHTS.join(text for text in texts if text)
    token = string(item.get("encrypted_content"))
    if not text and not token:
        lost.append("reasoning that only the provider has")
        return ()
    own = token if not token.startswith(_FORGED) else ""
    return (n.Thinking(text, own or None, hidden=bool(own and not text)),)


def read_content(content: Any, lost: list[str]) -> tuple[n.Part, ...]:
    """The content of a message or of a tool's output: a string, or a list of parts."""
    if isinstance(content, str):
        return (n.Text(content),) if content else ()
    parts = (_read_part(part, lost) for part in content) if isinstance(content, list) else ()
    return tuple(part for part in parts if part is not None)


def _read_part(part: Any, lost: list[str]) -> n.Part | None:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return n.Text(text)
        case {"type": "refusal", "refusal": str(text)}:
            return n.Refusal(text)
        case {"type": "input_image", "image_url": str(url) | {"url": str(url)}} if inline := _INLINE_IMAGE.match(url):
            return n.Image(inline[1], inline[2])
        case {"type": "input_image"}:
            lost.append("image that is not inline")
        case {"type": str(kind)}:
            lost.append(f"content {kind}")
        case _:
            lost.append("content without type")
    return None


def write_call(call: n.ToolCall) -> n.Json:
    """The call without what only a reply has: its item's id and status."""
    kind, key = ("custom_tool_call", "input") if call.custom else ("function_call", "arguments")
    namespace = {"namespace": call.namespace} if call.namespace else {}
    return {"type": kind, "call_id": call.id, "name": call.name, key: call.arguments, **namespace}


def write_thoughts(text: str) -> list[n.Json]:
    """The text of a thought as the summary of a reasoning item."""
    return [write_part(n.Thinking(text))] if text else []


def write_item(part: n.Part, status: str) -> n.Json:
    """A part of a reply as the item that a client gets, but for its id."""
    match part:
        case n.Text() | n.Refusal():
            return {"type": "message", "status": status, "role": "assistant", "content": [write_part(part)]}
        case n.Thinking(text, token):
            # Clients drop, or refuse to send back, reasoning that has no cipher.
            cipher = token or _FORGED + blake2b(text.encode(), digest_size=16).hexdigest()
            return {"type": "reasoning", "summary": write_thoughts(text), "encrypted_content": cipher}
        case n.ToolCall():
            return {"status": status, **write_call(part)}
    raise ValueError(f"a reply holds no {type(part).__name__}")


def write_part(part: n.Text | n.Refusal | n.Thinking) -> n.Json:
    """What an item of the assistant holds, as its stream announces it."""
    match part:
        case n.Text(text):
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        case n.Refusal(text):
            return {"type": "refusal", "refusal": text}
        case n.Thinking(text):
            return {"type": "summary_text", "text": text}


def read_tools(declared: Iterable[Any], lost: list[str], namespace: str | None = None) -> Iterator[n.Tool]:
    """The tools that the client runs; those that the provider runs are lost."""
    for tool in declared:
        match tool:
            case {"type": "function", "name": str(name)}:
                parameters = tool.get("parameters")
                yield n.Tool(
                    name,
                    string(tool.get("description")),
                    parameters if isinstance(parameters, dict) else dict(_ANY_OBJECT),
                    namespace=namespace,
                    strict=tool["strict"] if isinstance(tool.get("strict"), bool) else None,
                )
            case {"type": "custom", "name": str(name)}:
                grammar = tool.get("format")
                yield n.Tool(
                    name,
                    string(tool.get("description")),
                    custom=True,
                    grammar=grammar if isinstance(grammar, dict) else None,
                    namespace=namespace,
                )
            case {"type": "namespace", "name": str(name), "tools": list(inner)} if namespace is None:
                if tool.get("description"):
                    lost.append(f"description of namespace {name}")
                yield from read_tools(inner, lost, name)
            case {"type": str(kind)}:
                lost.append(f"tool {kind}")
                continue
            case _:
                lost.append("tool without type")
                continue
        lost += [f"{field} of tool {name}" for field, value in tool.items() if field not in _TOOL_FIELDS and value]


def write_tools(tools: Iterable[n.Tool]) -> list[n.Json]:
    """Tools as a request declares them, those of one namespace together."""
    written: list[n.Json] = []
    spaces: dict[str, list[n.Json]] = {}
    for tool in tools:
        if tool.namespace is None:
            written.append(_write_tool(tool))
            continue
        if tool.namespace not in spaces:
            inner = spaces[tool.namespace] = []
            written.append({"type": "namespace", "name": tool.namespace, "description": "", "tools": inner})
        spaces[tool.namespace].append(_write_tool(tool))
    return written


def _write_tool(tool: n.Tool) -> n.Json:
    if tool.custom:
        grammar = {} if tool.grammar is None else {"format": tool.grammar}
        return {"type": "custom", "name": tool.name, "description": tool.description, **grammar}
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": _ANY_OBJECT if tool.parameters is None else tool.parameters,
        # Left out, it would mean true here, and false in every other dialect.
        "strict": bool(tool.strict),
    }


def by_flat_name(tools: Iterable[n.Tool]) -> dict[str, n.Tool]:
    """The tools by the names they have in a dialect without namespaces."""
    return {
        tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}": tool
        for tool in sorted(tools, key=lambda tool: tool.namespace is None)
    }


def as_declared(call: n.ToolCall, tools: Mapping[str, n.Tool]) -> n.ToolCall:
    """The call with the name and kind that its tool was declared with; another dialect may have renamed the tool.

    >>> as_declared(n.ToolCall("1", "patch", '{"input": "+a"}'), by_flat_name([n.Tool("patch", custom=True)])).arguments
    '+a'
    """
    tool = tools.get(call.name if call.namespace is None else f"{call.namespace}__{call.name}")
    if tool is None:
        return call
    arguments = _unwrap_input(call.arguments) if tool.custom and not call.custom else call.arguments
    return n.ToolCall(call.id, tool.name, arguments, tool.custom or call.custom, tool.namespace, call.token)


def _unwrap_input(arguments: str) -> str:
    """The raw text for a custom tool, out of the object that stood in for it."""
    try:
        wrapped = decode_object(arguments.encode())
    except ValueError:
        return arguments
    return wrapped["input"] if isinstance(wrapped.get("input"), str) else arguments
