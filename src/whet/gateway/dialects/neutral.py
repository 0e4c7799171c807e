"""The one form between the dialects: what a request asks, what a reply says, and a reply as it arrives.

A dialect reads its bytes into this form and writes this form as its bytes. What a dialect cannot say is not dropped
in silence: `lost` names it, one short phrase each, and the exchange keeps it as a warning.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Literal

import msgspec

from whet.exchange import Usage

Json = dict[str, Any]


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture, carried in the request itself."""

    media_type: str
    data: str
    """Base64."""


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    """What the model thought before it spoke."""

    text: str
    token: str | None = None
    """Opaque proof or cipher of the provider (signature, encrypted content); must come back byte for byte."""
    hidden: bool = False
    """There is a token and no text."""


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The model's words when it declines."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    id: str
    name: str
    arguments: str
    """JSON text of an object for a function; raw text for a custom tool. As the model wrote it."""
    custom: bool = False
    namespace: str | None = None
    token: str | None = None
    """Opaque token that the provider tied to this call (Gemini's thoughtSignature)."""


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    call_id: str
    parts: tuple[Text | Image, ...]
    name: str | None = None
    """Name of the tool, where the dialect says it."""
    is_error: bool = False
    custom: bool = False


Part = Text | Image | Thinking | Refusal | ToolCall | ToolResult
Role = Literal["system", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    """One turn, or a part of one. Tool results are in user messages, tool calls and thinking in assistant ones.
    System messages may stand anywhere."""

    role: Role
    parts: tuple[Part, ...]


class Tool(msgspec.Struct, frozen=True):
    """A tool that the model may call."""

    name: str
    description: str = ""
    parameters: Json | None = None
    """JSON schema; None for a custom tool."""
    custom: bool = False
    """It takes raw text, not JSON."""
    grammar: Json | None = None
    """What the text of a custom tool must look like, as given."""
    namespace: str | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str | None = None
    """Of the tool to call, with mode `tool`."""


class Sampling(msgspec.Struct, frozen=True):
    """How the model is to sample; None is the provider's default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    effort: str | None = None
    """How hard to think: minimal, low, medium, high, or as the dialect says."""


class Format(msgspec.Struct, frozen=True):
    """The form the answer must have: any JSON object, or one of a schema."""

    schema: Json | None = None
    name: str = "answer"
    strict: bool | None = None


class Request(msgspec.Struct, frozen=True):
    """What a call asks for."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    sampling: Sampling = Sampling()
    format: Format | None = None
    stream: bool = False
    lost: tuple[str, ...] = ()
    """What was in the dialect's request and has no place here."""


class Stop(StrEnum):
    """Why the model stopped."""

    END = "end"
    LENGTH = "length"
    TOOLS = "tools"
    SEQUENCE = "sequence"
    """A stop sequence was met."""
    REFUSED = "refused"
    """It declined, or a filter did."""
    PAUSED = "paused"
    """It wants to be called again with the same conversation."""


class Reply(msgspec.Struct, frozen=True):
    """What the model answered. Parts are Thinking, Text, Refusal and ToolCall."""

    id: str
    model: str
    parts: tuple[Part, ...]
    stop: Stop
    usage: Usage | None = None
    lost: tuple[str, ...] = ()


# A reply as it arrives: one Begin, any deltas, one End. A delta of another kind, or another call's, ends the part
# before it: parts never overlap, and calls come one after the other.


class Begin(msgspec.Struct, frozen=True):
    id: str
    model: str
    usage: Usage | None = None
    """What is known of it at the start."""


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class RefusalDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str = ""
    token: str | None = None
    """Completes the part; a token alone, with `hidden`, is a part of its own."""
    hidden: bool = False


class CallBegin(msgspec.Struct, frozen=True):
    """A tool call begins; its id, name and kind are known, its arguments follow."""

    id: str
    name: str
    custom: bool = False
    namespace: str | None = None
    token: str | None = None


class CallDelta(msgspec.Struct, frozen=True):
    arguments: str
    """The next piece of the arguments of the call that began last."""


class End(msgspec.Struct, frozen=True):
    stop: Stop
    usage: Usage | None = None
    lost: tuple[str, ...] = ()


Delta = TextDelta | RefusalDelta | ThinkingDelta | CallBegin | CallDelta
Event = Begin | Delta | End


def assemble(events: Iterable[Event]) -> Reply:
    """The reply that these events make up. ValueError when they do not begin or end.

    >>> assemble([Begin("r1", "m"), TextDelta("Hel"), TextDelta("lo"), End(Stop.END)]).parts
    (Text(text='Hello'),)
    """
    begin: Begin | None = None
    end: End | None = None
    parts: list[_Growing] = []
    for event in events:
        if isinstance(event, Begin):
            begin = event
        elif isinstance(event, End):
            end = event
        elif not parts or not parts[-1].take(event):
            parts.append(_Growing(event))
    if begin is None or end is None:
        raise ValueError("the reply has no beginning or no end")
    return Reply(
        begin.id, begin.model, tuple(part.whole() for part in parts), end.stop, end.usage or begin.usage, end.lost
    )


class _Growing:
    """A part whose pieces are still coming; they are joined once, at the end."""

    def __init__(self, first: Delta) -> None:
        if isinstance(first, CallDelta):
            raise ValueError("arguments came before their call began")
        self._first = self._last = first
        self._pieces = [] if isinstance(first, CallBegin) else [first.text]

    def take(self, delta: Delta) -> bool:
        """Whether the delta belongs to this part."""
        match self._first, delta:
            case (
                (CallBegin(), CallDelta(piece))
                | (TextDelta(), TextDelta(piece))
                | (RefusalDelta(), RefusalDelta(piece))
            ):
                self._pieces.append(piece)
            case ThinkingDelta(), ThinkingDelta(piece, _, False) if not _completes(self._last):
                self._pieces.append(piece)
                self._last = delta
            case _:
                return False
        return True

    def whole(self) -> Part:
        text = "".join(self._pieces)
        match self._first:
            case TextDelta():
                return Text(text)
            case RefusalDelta():
                return Refusal(text)
            case CallBegin(id_, name, custom, namespace, token):
                return ToolCall(id_, name, text, custom, namespace, token)
        assert isinstance(self._last, ThinkingDelta)
        return Thinking(text, self._last.token, self._last.hidden)


def _completes(delta: Delta) -> bool:
    return isinstance(delta, ThinkingDelta) and (delta.token is not None or delta.hidden)


def disassemble(reply: Reply) -> Iterator[Event]:
    """The events of a reply that is known whole: one delta per part."""
    yield Begin(reply.id, reply.model, reply.usage)
    for part in reply.parts:
        match part:
            case Text(text):
                yield TextDelta(text)
            case Refusal(text):
                yield RefusalDelta(text)
            case Thinking(text, token, hidden):
                yield ThinkingDelta(text, token, hidden)
            case ToolCall(id_, name, arguments, custom, namespace, token):
                yield CallBegin(id_, name, custom, namespace, token)
                yield CallDelta(arguments)
            case _:
                raise ValueError(f"a reply holds no {type(part).__name__}")
    yield End(reply.stop, reply.usage, reply.lost)
