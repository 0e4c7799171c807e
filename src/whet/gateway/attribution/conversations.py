"""The conversation in a request. The next request of an agent is known by the bytes that it shares with the one before,
so only what is new in it is read."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import msgspec

from whet.gateway.dialects.same_message import is_thought, wire_form

FIELDS = {"chat": "messages", "messages": "messages", "responses": "input", "gemini": "contents"}
"""Where a request has its conversation, by dialect."""
_ARRAYS = ("messages", "input", "contents")
SYSTEM_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction")
SYSTEM_ROLES = frozenset({"system", "developer"})

NEEDLE = 256
"""So many of a conversation's first bytes are searched for in a request; all others are compared."""
SLACK = 1 << 16
"""By so much may the part before a conversation, such as the system text, have grown since the last request."""
MARKED = 6
"""Among so many of the last messages, programs move their marks for the provider's cache about."""

_SCHEMA = re.compile(rb'"(?:json_schema|response_?json_?schema|response_?schema)"', re.IGNORECASE)

_MARK = b'"cache_control"'
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_SEPARATOR = re.compile(rb"[ \t\r\n,]*")

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Setting:
    """What surrounds a conversation: all of the request but its messages."""

    frame: bytes
    """The request as JSON, with its leading system messages and without all other messages."""
    tools: frozenset[str]
    """The names of the tools that the model is offered."""
    system: str
    """The text that the model is told to follow."""

    @property
    def wants_schema(self) -> bool:
        """Whether the answer must have a given form."""
        return _SCHEMA.search(self.frame) is not None


def setting(frame: bytes) -> Setting:
    """What a request says beside its conversation."""
    try:
        fields = msgspec.json.decode(frame)
    except (ValueError, RecursionError):
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    system = [_text(fields[name]) for name in SYSTEM_FIELDS if name in fields]
    system += [said(message) for name in _ARRAYS for message in _list(fields.get(name))]
    return Setting(frame, frozenset(_tool_names(_list(fields.get("tools")))), "\n".join(system))


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of one request, after those of the system. `links[n]` stands for all of them up to message n."""

    front: bytes
    """The request before the first message."""
    settled: tuple[bytes, ...]
    """The messages that will be sent again with the same bytes, as they lie in the request, in a few pieces."""
    settled_links: int
    links: tuple[bytes, ...]
    rest: bytes
    """The request behind the last message."""

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.front) + sum(map(len, self.settled)) + len(self.rest)

    @property
    def frame(self) -> bytes:
        """The request without these messages."""
        return self.front.rstrip().removesuffix(b",") + self.rest

    def grown(self, body: bytes) -> "tuple[Conversation, list[Any]] | None":
        """This conversation as another request continues or repeats it, and its messages that are not settled here.

        None when the bytes do not show that it does.
        """
        at = body.find(self.settled[0][:NEEDLE], 0, len(self.front) + SLACK) if self.settled else -1
        if at < 0 or body[:at].rstrip()[-1:] not in b"[,":
            return None
        end = at
        for piece in self.settled:
            if not body.startswith(piece, end):
                return None
            end += len(piece)
        try:
            messages, ends, rest = _elements(body, end)
            links = _chained(self.links[: self.settled_links], messages)
        except (ValueError, OverflowError, RecursionError):
            return None
        if self.links[-1] not in links[self.settled_links - 1 :]:
            return None
        fresh, unsettled = _fresh(body, end, ends)
        return Conversation(body[:at], _joined(self.settled, fresh), len(links) - unsettled, links, rest), messages


def read(body: bytes, dialect: str) -> tuple[Conversation, list[Any]]:
    """The conversation of a request, and its messages. ValueError when there is none that can be read."""
    try:
        array = bytes(_OBJECT.decode(body)[FIELDS[dialect]]).strip()
        if not array.startswith(b"["):
            # The Responses API takes a bare text for a conversation of one message.
            link = _link(b"", {"role": "user", "content": json.loads(array)})
            return Conversation(body, (), 0, (link,), b""), [json.loads(array)]
        begin = body.find(array) + 1
        # As if the first message followed another one.
        messages, ends, rest = _elements(body[:begin] + b"," + body[begin:], begin)
        systems = len(list(takewhile(_is_system, messages)))
        messages, bounds = messages[systems:], [begin, *(end - 1 for end in ends)][systems:]
        if not messages:
            raise ValueError("no messages")
        separator = _SEPARATOR.match(body, bounds[0])
        assert separator is not None
        start = separator.end()
        fresh, unsettled = _fresh(body, start, bounds[1:])
        links = _chained((), messages)
        return Conversation(body[:start], _joined((), fresh), len(links) - unsettled, links, rest), messages
    except (KeyError, OverflowError, RecursionError) as error:
        raise ValueError("there is no conversation that can be read") from error


def said(message: Any) -> str:
    """What a message says in words. What tools answered does not count.

    >>> said({"role": "user", "content": [{"type": "text", "text": "2+2?"}]})
    '2+2?'
    """
    if not isinstance(message, dict):
        return message if isinstance(message, str) else ""
    return "" if message.get("role") == "tool" else _text(message)


def _fresh(body: bytes, start: int, ends: Sequence[int]) -> tuple[bytes, int]:
    """Of the messages that begin at `start` and end at `ends`, those that will stay as they are; how many will not."""
    bounds = [start, *ends]
    most = min(MARKED, len(ends))
    marked = next((n for n in range(most, 0, -1) if body.find(_MARK, bounds[-n - 1], bounds[-n]) >= 0), 0)
    return body[start : bounds[-marked - 1]], marked


def _joined(pieces: tuple[bytes, ...], fresh: bytes) -> tuple[bytes, ...]:
    """All bytes, in pieces that grow smaller towards the end: so there are few, and long ones are seldom copied."""
    before = list(pieces)
    while before and len(before[-1]) < 2 * len(fresh):
        fresh = before.pop() + fresh
    return (*before, fresh) if fresh else pieces


def _elements(body: bytes, begin: int) -> tuple[list[Any], list[int], bytes]:
    """The elements of an array from behind one of them on, where each ends, and what follows from the bracket on."""
    # Not read as JSON: what follows. It has all tools in it, and they take longer than the few messages before them.
    text = body[begin:].decode()
    values, ends = [], []
    at, offset = 0, begin
    while (comma := _COMMA.match(text, at)) is not None:
        value, end = _JSON.raw_decode(text, comma.end())
        values.append(value)
        offset += len(text[at:end].encode())
        ends.append(offset)
        at = end
    rest = text[at:].lstrip(" \t\r\n")
    if not rest.startswith("]"):
        raise ValueError("the array does not end")
    return values, ends, rest.encode()


def _chained(known: tuple[bytes, ...], messages: Sequence[Any]) -> tuple[bytes, ...]:
    links = list(known)
    for message in messages:
        links.append(_link(links[-1] if links else b"", message))
    return tuple(links)


def _link(before: bytes, message: Any) -> bytes:
    if is_thought(message):
        return before
    plain = msgspec.json.encode(wire_form(message), order="sorted")
    return hashlib.blake2b(before + plain, digest_size=16).digest()


def _is_system(message: Any) -> bool:
    match message:
        case {"role": str(role)}:
            return role in SYSTEM_ROLES
    return False


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case list():
            return "\n".join(filter(None, map(_text, value)))
        case {"text": str(text)}:
            return text
        case {"content": inner} | {"parts": inner} if "tool_use_id" not in value:
            return _text(inner)
        case _:
            return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _tool_names(tools: Sequence[Any]) -> Iterator[str]:
    for tool in tools:
        match tool:
            case {"function": {"name": str(name)}} | {"name": str(name)}:
                yield name
            case {"functionDeclarations": list(declared)} | {"function_declarations": list(declared)}:
                yield from _tool_names(declared)
            case {"type": str(kind)}:
                yield kind
