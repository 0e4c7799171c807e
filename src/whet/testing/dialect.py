"""What the dialects of the scripted model share: the request as the play needs it, ids, counts, pieces of a stream."""

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol, TypeVar

import msgspec

from whet.ids import digest
from whet.testing.play import Turn
from whet.testing.script import Reply, ToolCall
from whet.testing.tools import Tool

MODEL = "scripted"
CREATED = 1_700_000_000
"""A fixed time, so that two plays of a script give the same bytes."""

_FEW_WORDS = re.compile(r"(?:\S+\s*){1,3}|\s+")
_FRAGMENT = 24
"""Characters of tool arguments in one delta."""

T = TypeVar("T")


class BadRequestError(Exception):
    """The request is not what the dialect asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the play needs of a request. A dialect adds what its rendering needs."""

    digest: str
    """Of the body; every id of the answer comes from it."""
    model: str
    stream: bool
    conversation: tuple[Turn, ...]
    tokens: int
    """How many the conversation holds."""
    tools: tuple[Tool, ...] = ()
    """What it offers to be called."""
    schema: Any = None
    """The JSON schema that it wants its answer to fit."""
    sse: bool = True
    """Whether a stream comes as server-sent events; otherwise it is one JSON array."""


R = TypeVar("R", bound=Request, contravariant=True)


class Dialect(Protocol[R]):
    """What a module does that renders answers."""

    def whole(self, request: R, reply: Reply | None) -> bytes:
        """The answer in one piece; without a reply it is empty."""
        ...

    def events(self, request: R, reply: Reply | None) -> list[bytes]:
        """The answer as a stream: at least two events for a reply, the last of which ends it."""
        ...

    def error(self, status: int, message: str) -> bytes:
        """The body of an answer with an error status."""
        ...


class Provider(Protocol):
    """What a module does for requests that no reply answers."""

    def models(self) -> bytes:
        """The list of models: one."""
        ...

    def error(self, status: int, message: str) -> bytes:
        """The body of an answer with an error status."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. Every dialect says the same, in its own words."""

    input: int
    output: int
    reasoning: int
    """Of the output, what was thought and not said."""


def decode(body: bytes, kind: type[T]) -> T:
    """The body as this kind of object; BadRequestError says what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(str(error)) from None


def encode(value: Any) -> bytes:
    """The value as JSON."""
    return msgspec.json.encode(value)


def event(data: Any) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + encode(data) + b"\n\n"


def named_event(data: dict[str, Any]) -> bytes:
    """A server-sent event that is named after its type."""
    return f"event: {data['type']}\n".encode() + event(data)


def pieces(text: str) -> list[str]:
    """The text, a few words at a time."""
    return _FEW_WORDS.findall(text)


def fragments(arguments: str) -> Iterator[str]:
    """The arguments of a tool, some characters at a time."""
    for start in range(0, len(arguments), _FRAGMENT):
        yield arguments[start : start + _FRAGMENT]


def speaks(reply: Reply) -> bool:
    """Whether an answer that lists its parts has one of text. A reply that asks for nothing says at least nothing."""
    return bool(reply.text) or not reply.tools


def arguments_text(tool: ToolCall) -> str:
    """The arguments as text, for the dialects that send them so."""
    return tool.arguments if isinstance(tool.arguments, str) else encode(tool.arguments).decode()


def arguments_object(tool: ToolCall) -> Any:
    """The arguments as an object, for the dialects that send them so. Text that is none stays text, as a fault."""
    if not isinstance(tool.arguments, str):
        return tool.arguments
    try:
        return msgspec.json.decode(tool.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return tool.arguments


def item_id(prefix: str, request: Request, index: int) -> str:
    """The id of the part of an answer that has this index."""
    return f"{prefix}_{digest(request.digest.encode(), str(index).encode())[:24]}"


def signature(thinking: str) -> str:
    """What vouches for a thought when it is sent back; base64, as some clients demand."""
    return b64encode(bytes.fromhex(digest(thinking.encode()))).decode()


def usage(request: Request, reply: Reply | None) -> Usage:
    """What the call costs."""
    if reply is None:
        return Usage(request.tokens, 0, 0)
    thinking = reply.thinking or ""
    calls = (tool.name + arguments_text(tool) for tool in reply.tools)
    return Usage(request.tokens, count(thinking, reply.text or "", *calls), count(thinking))


def count_turns(conversation: Sequence[Turn]) -> int:
    """How many tokens a conversation holds."""
    return count(*(turn.text + turn.besides for turn in conversation))


def count(*texts: str) -> int:
    """About as many tokens as a real tokenizer would count."""
    return ceil(sum(map(len, texts)) / 4)
