"""What requests, replies and streams of chat completions share: one message, whole or as a delta, and its parts."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from whet.gateway.dialects import neutral as n

_INLINE = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)
_FITTING: dict[n.Role, tuple[type, ...]] = {
    "system": (n.Text,),
    "user": (n.Text, n.Image, n.ToolResult),
    "assistant": (n.Text, n.Refusal, n.Thinking, n.ToolCall),
}


class ImageUrl(msgspec.Struct):
    url: str = ""


class Block(msgspec.Struct):
    """A piece of a message's content."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class Custom(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class Call(msgspec.Struct):
    """A tool call, or a fragment of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    custom: Custom | None = None

    @property
    def name(self) -> str:
        """The tool's name, where this fragment says it."""
        return (self.function and self.function.name) or (self.custom and self.custom.name) or ""

    @property
    def arguments(self) -> str:
        """The arguments, or what this fragment adds to them."""
        if self.custom is not None:
            return self.custom.input or ""
        stated = self.function.arguments if self.function else None
        return compact(stated) if isinstance(stated, dict) else stated or ""


class ReasoningDetail(msgspec.Struct):
    type: str = ""
    text: str | None = None
    summary: str | None = None


class WireMessage(msgspec.Struct):
    """A message of any role. A delta of a stream has the same fields."""

    role: str | None = None
    content: str | list[Block | str] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[ReasoningDetail] | None = None
    tool_calls: list[Call | None] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    # Known, but without a place in the neutral form.
    audio: Any = None
    function_call: Any = None
    images: Any = None


def compact(value: n.Json) -> str:
    """The JSON text of a value, without spaces."""
    return msgspec.json.encode(value).decode()


def select_fitting(role: n.Role, parts: Iterable[n.Part], lost: list[str]) -> list[n.Part]:
    """The parts that a message of this role can have."""
    fits: list[n.Part] = []
    for part in parts:
        if isinstance(part, _FITTING[role]):
            fits.append(part)
        else:
            lost.append(f"{part.__struct_config__.tag} in a message of the {role}")
    return fits


def read_speech(message: WireMessage, lost: list[str]) -> list[n.Part]:
    """What an assistant thinks and says in this message, its tool calls apart."""
    lost += [key for key in ("audio", "function_call", "images") if getattr(message, key)]
    thought = _read_thought(message, lost)
    parts: list[n.Part] = [n.Thinking(thought)] if thought else []
    parts += select_fitting("assistant", read_content(message.content, lost), lost)
    return [*parts, n.Refusal(message.refusal)] if message.refusal else parts


def _read_thought(message: WireMessage, lost: list[str]) -> str:
    """Servers name the field differently; one that fills several says the same in each."""
    details = message.reasoning_details or ()
    texts = [detail.text or detail.summary or "" for detail in details]
    lost += [f"reasoning_details {detail.type}" for detail, text in zip(details, texts, strict=True) if not text]
    return message.reasoning_content or message.reasoning or "".join(texts)


def read_content(content: str | Iterable[Block | str] | None, lost: list[str]) -> list[n.Text | n.Image | n.Refusal]:
    """The parts of a message's content; what is empty is left out."""
    if isinstance(content, str):
        return [n.Text(content)] if content else []
    parts = (n.Text(block) if isinstance(block, str) else _block_part(block, lost) for block in content or ())
    return [part for part in parts if part is not None and (isinstance(part, n.Image) or part.text)]


def _block_part(block: Block, lost: list[str]) -> n.Text | n.Image | n.Refusal | None:
    match block.type:
        case "text":
            return n.Text(block.text or "")
        case "refusal":
            return n.Refusal(block.refusal or "")
        case "image_url":
            url = block.image_url.url if isinstance(block.image_url, ImageUrl) else block.image_url or ""
            if inline := _INLINE.fullmatch(url):
                return n.Image(inline[1], inline[2])
            lost.append("image_url that is not inline")
        case kind:
            lost.append(f"content {kind}")
    return None


def read_calls(message: WireMessage, lost: list[str]) -> list[n.ToolCall]:
    """The tool calls of a whole message."""
    found = [call for call in message.tool_calls or () if call is not None]
    lost += ["tool call without a name" for call in found if not call.name]
    return [
        n.ToolCall(call.id or "", call.name, call.arguments, call.custom is not None) for call in found if call.name
    ]


def write_content(parts: Sequence[n.Text | n.Image]) -> str | list[n.Json]:
    """Parts as the content of a message. A single text goes as a string: that is what every server takes."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], n.Text):
        return parts[0].text
    return [_block(part) for part in parts]


def _block(part: n.Text | n.Image) -> n.Json:
    if isinstance(part, n.Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}


def write_assistant(parts: Sequence[n.Part], content: str | list[n.Json], calls: list[n.Json]) -> n.Json:
    """An assistant's message with this content and these calls; thinking and refusal are taken from the parts."""
    message: n.Json = {"role": "assistant", "content": content or (None if calls else "")}
    if refusal := "".join(part.text for part in parts if isinstance(part, n.Refusal)):
        message |= {"content": content or None, "refusal": refusal}
    if thought := "".join(part.text for part in parts if isinstance(part, n.Thinking)):
        message["reasoning_content"] = thought
    return message | ({"tool_calls": calls} if calls else {})


def function_call(call_id: str, name: str, arguments: str) -> n.Json:
    """A call of a function."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def custom_call(call_id: str, name: str, text: str) -> n.Json:
    """A call of a tool that takes raw text."""
    return {"id": call_id, "type": "custom", "custom": {"name": name, "input": text}}


def wrap_input(text: str) -> str:
    """The arguments of the function that stands in for a custom tool.

    >>> wrap_input("*** Begin")
    '{"input":"*** Begin"}'
    """
    return compact({"input": text})


def unwrap_input(arguments: str) -> str:
    """The raw text for a custom tool out of the arguments of the function that stood in for it.

    >>> unwrap_input('{"input": "*** Begin"}'), unwrap_input("*** Begin")
    ('*** Begin', '*** Begin')
    """
    try:
        value = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
