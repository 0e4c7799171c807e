"""The conversation in a request. An agent's next request begins with the bytes of the one before, so only what is new
in it is read."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from whet.gateway.dialects.same_message import is_thought, wire_form

FIELDS = {"chat": "messages", "messages": "messages", "responses": "input", "gemini": "contents"}
"""Where a request has its conversation, by dialect."""
_ARRAYS = ("messages", "input", "contents")
SYSTEM_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction")
SYSTEM_ROLES = frozenset({"system", "developer"})

NEEDLE = 256
"""How many of a conversation's first bytes are searched for in a request; the rest is compared."""
SLACK = 1 << 16
"""By how many bytes the part before a conversation, such as the system text, may have grown."""
MARKED = 6
"""How many of the last messages may carry marks for the provider's cache, which agents move from call to call."""

_SIMPLE = frozenset({"role", "content"})
"""The keys of most messages."""
_SCHEMA = re.compile(rb'"(?:json_schema|response_?json_?schema|response_?schema)"', re.IGNORECASE)

_CACHE_MARK = b'"cache_control"'
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_SEPARATOR = re.compile(rb"[ \t\r\n,]*")

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_DECODER = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder(order="sorted")
_JSON = json.JSONDecoder()


class CallSetting(NamedTuple):
    """The rest of a request: everything but its conversation."""

    frame: bytes
    """The request as JSON, with its leading system messages and without all other messages."""
    tools: frozenset[str]
    """The names of the tools that the model is offered."""
    system: str
    """The system text."""

    @property
    def wants_schema(self) -> bool:
        """Whether the answer must have a given form."""
        return _SCHEMA.search(self.frame) is not None


def read_setting(frame: bytes) -> CallSetting:
    """Read what a request holds besides its conversation."""
    try:
        fields = msgspec.json.decode(frame)
    except (ValueError, RecursionError):
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    system = [_text(fields[name]) for name in SYSTEM_FIELDS if name in fields]
    system += [message_text(message) for name in _ARRAYS for message in _list(fields.get(name))]
    return CallSetting(frame, frozenset(_tool_names(_list(fields.get("tools")))), "\n".join(system))


@dataclass(slots=True, eq=False)
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
    frame: bytes
    """The request without these messages."""
    size: int = field(init=False)
    """Bytes that it holds."""

    def __post_init__(self) -> None:
        self.size = len(self.front) + sum(map(len, self.settled)) + len(self.rest)

    def grow(self, body: bytes) -> "tuple[Conversation, list[Any]] | None":
        """This conversation as another request continues or repeats it, and the messages that were read for that.

        None when the bytes do not show that it does.
        """
        at = self._find_start(body)
        if at < 0 or body[:at].rstrip()[-1:] not in b"[,":
            return None
        end = at
        for piece in self.settled:
            if not body.startswith(piece, end):
                return None
            end += len(piece)
        try:
            messages, ends, rest = _read_added(body, end, self.rest) or _read_elements(body, end)
            links = _chain_links(self.links[: self.settled_links], messages)
        except (ValueError, OverflowError, RecursionError):
            return None
        if self.links[-1] not in links[self.settled_links - 1 :]:
            return None
        fresh, unsettled = _split_settled(body, end, ends)
        front = self.front if at == len(self.front) and body.startswith(self.front) else body[:at]
        frame = self.frame if front is self.front and rest is self.rest else _frame(front, rest)
        grown = Conversation(front, _join(self.settled, fresh), len(links) - unsettled, links, rest, frame)
        return grown, messages

    def _find_start(self, body: bytes) -> int:
        """Where the first message begins in another request; -1 when it does not hold it."""
        if not self.settled:
            return -1
        needle, usual = self.settled[0][:NEEDLE], len(self.front)
        if body.startswith(self.front):
            return usual if body.startswith(needle, usual) else -1
        return body.find(needle, 0, usual + SLACK)


def read_conversation(body: bytes, dialect: str) -> tuple[Conversation, list[Any]]:
    """The conversation of a request, and its messages. ValueError when there is none that can be read."""
    try:
        array = bytes(_OBJECT.decode(body)[FIELDS[dialect]]).strip()
        if not array.startswith(b"["):
            # The Responses API takes a bare text for a conversation of one message.
            link = _link(b"", {"role": "user", "content": json.loads(array)})
            return Conversation(body, (), 0, (link,), b"", body), [json.loads(array)]
        begin = body.find(array) + 1
        messages, ends, rest = _read_all(body, array, begin)
        systems = 0
        while systems < len(messages) and _is_system(messages[systems]):
            systems += 1
        messages, bounds = messages[systems:], [begin, *ends][systems:]
        if not messages:
            raise ValueError("no messages")
        separator = _SEPARATOR.match(body, bounds[0])
        assert separator is not None
        start = separator.end()
        fresh, unsettled = _split_settled(body, start, bounds[1:])
        links = _chain_links((), messages)
        front = body[:start]
        return Conversation(front, _join((), fresh), len(links) - unsettled, links, rest, _frame(front, rest)), messages
    except (KeyError, OverflowError, RecursionError) as error:
        raise ValueError("there is no conversation that can be read") from error


def message_text(message: Any) -> str:
    """The text of a message, without results of tools.

    >>> message_text({"role": "user", "content": [{"type": "text", "text": "2+2?"}]})
    '2+2?'
    """
    if not isinstance(message, dict):
        return message if isinstance(message, str) else ""
    return "" if message.get("role") == "tool" else _text(message)


def _split_settled(body: bytes, start: int, ends: Sequence[int]) -> tuple[bytes, int]:
    """The bytes of those messages that will be sent again unchanged, and how many messages will not."""
    bounds = [start, *ends]
    most = min(MARKED, len(ends))
    marked = next((n for n in range(most, 0, -1) if body.find(_CACHE_MARK, bounds[-n - 1], bounds[-n]) >= 0), 0)
    return body[start : bounds[-marked - 1]], marked


def _join(pieces: tuple[bytes, ...], fresh: bytes) -> tuple[bytes, ...]:
    """The same bytes in few pieces, smaller towards the end, so that long ones are seldom copied."""
    before = list(pieces)
    while before and len(before[-1]) < 2 * len(fresh):
        fresh = before.pop() + fresh
    return (*before, fresh) if fresh else pieces


def _read_elements(body: bytes, begin: int) -> tuple[list[Any], list[int], bytes]:
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


def _read_all(body: bytes, array: bytes, begin: int) -> tuple[list[Any], list[int], bytes]:
    """All elements of an array, where each ends, and what follows from the bracket on."""
    try:
        raws, values = _ARRAY.decode(array), _DECODER.decode(array)
        ends, at = [], begin
        for raw in raws:
            gap = _SEPARATOR.match(body, at)
            assert gap is not None
            at = gap.end() + len(raw)
            ends.append(at)
    except (ValueError, RecursionError):
        # What only the reader of the standard library can read. As if the first message followed another one.
        values, ends, rest = _read_elements(body[:begin] + b"," + body[begin:], begin)
        return values, [end - 1 for end in ends], rest
    return values, ends, body[begin - 1 + len(array) - 1 :]


def _read_added(body: bytes, begin: int, rest: bytes) -> tuple[list[Any], list[int], bytes] | None:
    """The further elements of an array that is followed by `rest`; None when that is not plain to see."""
    end = len(body) - len(rest)
    if end <= begin or not body.endswith(rest) or not rest.startswith(b"]"):
        return None
    gap = _SEPARATOR.match(body, begin)
    assert gap is not None
    array = b"[%b]" % body[gap.end() : end]
    try:
        raws, values = _ARRAY.decode(array), _DECODER.decode(array)
    except (ValueError, RecursionError):
        return None
    ends, at = [], begin
    for raw in raws:
        gap = _SEPARATOR.match(body, at)
        assert gap is not None
        at = gap.end() + len(raw)
        ends.append(at)
    return values, ends, rest


def _frame(front: bytes, rest: bytes) -> bytes:
    return front.rstrip().removesuffix(b",") + rest


def _chain_links(known: tuple[bytes, ...], messages: Sequence[Any]) -> tuple[bytes, ...]:
    links = list(known)
    for message in messages:
        links.append(_link(links[-1] if links else b"", message))
    return tuple(links)


def _link(before: bytes, message: Any) -> bytes:
    if isinstance(message, dict) and message.keys() == _SIMPLE and all(_is_text(value) for value in message.values()):
        # What `wire_form` would return, for most messages.
        return hashlib.blake2b(before + _ENCODER.encode(message), digest_size=16).digest()
    if is_thought(message):
        return before
    return hashlib.blake2b(before + _ENCODER.encode(wire_form(message)), digest_size=16).digest()


def _is_text(value: Any) -> bool:
    return type(value) is str and value != ""


def _is_system(message: Any) -> bool:
    role = message.get("role") if isinstance(message, dict) else None
    return isinstance(role, str) and role in SYSTEM_ROLES


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
