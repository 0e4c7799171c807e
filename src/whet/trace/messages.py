"""The messages of a rollout, each stored once: requests are read, only as far as they are new, into paths of nodes."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, takewhile
from typing import Any

import msgspec

from whet.exchange import Exchange
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Message,
    Part,
    Refusal,
    Request,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from whet.trace.steps import reply_of
from whet.trace.wire import Body, Group, cut, read_whole

REMEMBERED = 8
"""So many conversations are compared with a new request, to read only what it adds."""
RECENT = 8
"""A request that differs from an earlier one in so many of its last messages is the same conversation."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a message was first seen."""

    exchange: int
    place: str
    """request, or reply: the body that the agent was given."""
    start: int
    end: int
    """Bytes of that body."""


@dataclass(frozen=True, slots=True)
class Node:
    """One message."""

    id: int
    parent: int | None
    depth: int
    """Messages before it on its path. Those of the system do not count."""
    message: Message
    source: Source


class Rewrite(StrEnum):
    """How a message that was sent back differs from the reply that it was."""

    THINKING = "thinking stripped"
    ARGUMENTS = "argument text re-serialised"
    TEXT = "text rewritten"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a call asks for beside its messages."""

    model: str
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    sampling: Sampling = Sampling()  # noqa: RUF009 - it is frozen
    format: Format | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as the nodes that it is."""

    system: tuple[int, ...]
    setting: int
    prompt: int | None
    rewritten: tuple[tuple[int, Rewrite], ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """A conversation that was read: its groups, and the message that each ends with."""

    array: bytes
    groups: tuple[Group, ...]
    leaves: tuple[int | None, ...]
    systems: int
    """How many of the groups are the system's, before all else."""

    def shared(self, array: bytes) -> int:
        """How many groups another conversation begins with, byte for byte."""
        low, high = 0, len(self.groups)
        if high and not array.startswith(self.array[: self.groups[0].end]):
            return 0
        if high and array.startswith(self.array[: self.groups[-1].end]):
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            if array.startswith(self.array[: self.groups[middle - 1].end]):
                low = middle
            else:
                high = middle - 1
        # What the assistant says may go on in the other request.
        return low - 1 if low and self.groups[low - 1].speaker == "assistant" else low


class Messages:
    """All messages of a rollout."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.settings: list[Setting] = []
        self._links: list[bytes] = []
        """Of each node, what stands for the path to it."""
        self._by_link: dict[bytes, int] = {}
        self._frames: dict[bytes, tuple[int, Request]] = {}
        self._known: list[_Known] = []

    def request(self, exchange: Exchange) -> Asked:
        """The messages of a request. ValueError when it cannot be read."""
        try:
            return self._grown(exchange, cut(exchange))
        except ValueError:
            return self._whole(exchange)

    def reply(self, exchange: Exchange, prompt: int | None) -> int | None:
        """The message that a call was answered with; None when the answer cannot be read."""
        reply = reply_of(exchange)
        if reply is None:
            return None
        body = exchange.response if exchange.delivered is None else exchange.delivered
        return self._node(prompt, Message("assistant", reply.parts), Source(exchange.index, "reply", 0, len(body)))

    def path(self, node: int | None) -> list[Node]:
        """The messages from the first one to this one."""
        return path(self.nodes, node)

    def leads_to(self, earlier: int, later: int | None) -> bool:
        """Whether a message is on the path to another one."""
        depth = self.nodes[earlier].depth
        while later is not None and self.nodes[later].depth > depth:
            later = self.nodes[later].parent
        return later == earlier

    def shared(self, one: int | None, other: int | None) -> int | None:
        """The last message that two paths have in common."""
        while one is not None and other is not None and one != other:
            if self.nodes[one].depth >= self.nodes[other].depth:
                one = self.nodes[one].parent
            else:
                other = self.nodes[other].parent
        return one if one == other else None

    def length(self, node: int | None) -> int:
        """How many messages there are up to this one."""
        return 0 if node is None else self.nodes[node].depth + 1

    def behind(self, node: int | None, length: int) -> list[Message]:
        """The messages up to this one, without so many of the first."""
        found = []
        while node is not None and self.nodes[node].depth >= length:
            found.append(self.nodes[node].message)
            node = self.nodes[node].parent
        return found[::-1]

    def _grown(self, exchange: Exchange, body: Body) -> Asked:
        """The messages of a request, of which only those are read that no earlier one began with."""
        setting, frame = self._frame(body)
        shares = ((one.shared(body.array), one) for one in self._known)
        count, before = max(shares, key=lambda one: one[0], default=(0, None))
        groups = list(before.groups[:count]) if before else []
        leaves = list(before.leaves[:count]) if before else []
        systems = min(before.systems, count) if before else 0
        rewritten: list[tuple[int, Rewrite]] = []
        for group in body.groups(groups[-1].end if groups else 0):
            if group.speaker == "system" and systems == len(groups):
                systems += 1
                leaves.append(None)
            else:
                leaf = leaves[-1] if leaves else None
                leaves.append(self._group(exchange, body, groups[-1] if groups else None, group, leaf, rewritten))
            groups.append(group)
        self._remember(_Known(body.array, tuple(groups), tuple(leaves), systems), before, count)
        system = [self._node(None, message, _source(exchange, body.system)) for message in frame.messages]
        for group in groups[:systems]:
            place = (body.begin + group.start, body.begin + group.end)
            said = body.read(group.start, group.end)
            system += [self._node(None, message, _source(exchange, place)) for message in said]
        return Asked(tuple(system), setting, leaves[-1] if leaves else None, tuple(rewritten))

    def _group(
        self,
        exchange: Exchange,
        body: Body,
        before: Group | None,
        group: Group,
        leaf: int | None,
        rewritten: list[tuple[int, Rewrite]],
    ) -> int | None:
        """Read one group behind a message; the message that it ends with."""
        source = _source(exchange, (body.begin + group.start, body.begin + group.end))
        if before is not None and before.speaker == "assistant":
            # What a result answers is only known together with the calls before it.
            asked = body.read(before.start, before.end)
            said = body.read(before.start, group.end)[len(asked) :]
            said = _answering(said, asked, self.nodes[leaf].message if leaf is not None else None)
        else:
            said = body.read(group.start, group.end)
        for message in said:
            leaf = self._node(leaf, message, source)
            first = self.nodes[leaf]
            if first.source.place == "reply":
                rewritten += [(leaf, rewrite) for rewrite in _rewrites(first.message, message)]
        return leaf

    def _remember(self, known: _Known, before: _Known | None, shared: int) -> None:
        goes_on = before is not None and shared >= len(before.groups) - RECENT
        kept = [one for one in self._known if not (goes_on and one is before)]
        self._known = [*kept[-REMEMBERED + 1 :], known]

    def _frame(self, body: Body) -> tuple[int, Request]:
        known = self._frames.get(body.frame)
        if known is None:
            request = body.read_frame()
            known = self._frames[body.frame] = (self._setting(request), request)
        return known

    def _setting(self, request: Request) -> int:
        setting = Setting(request.model, request.tools, request.tool_choice, request.sampling, request.format)
        if setting in self.settings:
            return self.settings.index(setting)
        self.settings.append(setting)
        return len(self.settings) - 1

    def _whole(self, exchange: Exchange) -> Asked:
        """The messages of a request whose parts cannot be told apart."""
        request = read_whole(exchange)
        source = _source(exchange, (0, len(exchange.request)))
        leading = list(takewhile(lambda message: message.role == "system", request.messages))
        system = [self._node(None, message, source) for message in leading]
        leaf: int | None = None
        for message in request.messages[len(leading) :]:
            leaf = self._node(leaf, message, source)
        return Asked(tuple(system), self._setting(request), leaf)

    def _node(self, parent: int | None, message: Message, source: Source) -> int:
        """The node of a message behind another one; a new one when there is none."""
        before = self._links[parent] if parent is not None else b""
        link = hashlib.blake2b(before + msgspec.json.encode(_plain(message)), digest_size=16).digest()
        if link not in self._by_link:
            depth = self.nodes[parent].depth + 1 if parent is not None else 0
            self._by_link[link] = len(self.nodes)
            self.nodes.append(Node(len(self.nodes), parent, depth, message, source))
            self._links.append(link)
        return self._by_link[link]


def path(nodes: Sequence[Node], node: int | None, known: Collection[int] = ()) -> list[Node]:
    """The messages from the first one to this one; only those behind the last that is known."""
    found = []
    while node is not None and node not in known:
        found.append(nodes[node])
        node = nodes[node].parent
    return found[::-1]


def _source(exchange: Exchange, place: tuple[int, int]) -> Source:
    return Source(exchange.index, "request", *place)


def _plain(message: Message) -> list[Any]:
    """A message without all that may change while it stays the same: thinking, ids, the form of arguments."""
    return [message.role, *_plain_parts(message.parts)]


def _plain_parts(parts: Sequence[Part]) -> Iterator[Any]:
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
                    yield ["call", name, _parsed(arguments)]
                case ToolResult(_, inner):
                    yield ["result", *_plain_parts(inner)]


def _parsed(arguments: str) -> Any:
    try:
        return msgspec.json.encode(json.loads(arguments or "{}"), order="sorted").decode()
    except (ValueError, RecursionError, OverflowError):
        return arguments


def _calls(messages: Iterable[Message]) -> list[ToolCall]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolCall)]


def _answering(said: tuple[Message, ...], asked: Sequence[Message], stored: Message | None) -> tuple[Message, ...]:
    """Results with the ids of the calls as they are stored; a dialect without ids counts them anew in each request."""
    sent, kept = _calls(asked), _calls([stored] if stored else [])
    if len(sent) != len(kept):
        return said
    ids = {one.id: other.id for one, other in zip(sent, kept, strict=True)}

    def renamed(part: Part) -> Part:
        if isinstance(part, ToolResult) and part.call_id in ids:
            return msgspec.structs.replace(part, call_id=ids[part.call_id])
        return part

    return tuple(Message(message.role, tuple(map(renamed, message.parts))) for message in said)


def _rewrites(given: Message, sent: Message) -> Iterator[Rewrite]:
    """How a reply was changed before it was sent back."""
    if _thoughts(given) and not _thoughts(sent):
        yield Rewrite.THINKING
    if [call.arguments for call in _calls([given])] != [call.arguments for call in _calls([sent])]:
        yield Rewrite.ARGUMENTS
    if _said(given) != _said(sent):
        yield Rewrite.TEXT


def _thoughts(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Thinking))


def _said(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text | Refusal))
