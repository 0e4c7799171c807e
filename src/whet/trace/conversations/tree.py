"""The messages of a rollout, each stored once: requests are read, only as far as they are new, into paths of nodes."""

import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile

import msgspec

from whet.exchange import Exchange
from whet.gateway.dialects.neutral import (
    Format,
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
from whet.gateway.dialects.same_message import neutral_form
from whet.gateway.guards.strict_json import replace_lone_surrogates
from whet.prefix_cache import Lookup, PrefixCache
from whet.trace.conversations.replies import reply_of
from whet.trace.conversations.slices import Body, Group, cut, read_frame, read_whole

REMEMBERED = 64 << 20
"""Bytes of requests that are compared with a new one, to read only what it adds."""


@dataclass(frozen=True, slots=True)
class MessageSource:
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
    source: MessageSource


class Rewrite(StrEnum):
    """How a message that was sent back differs from the reply that it was."""

    THINKING = "thinking stripped"
    ARGUMENTS = "argument text re-serialised"
    TEXT = "text rewritten"


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings of a call: all of a request except its messages."""

    model: str
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    sampling: Sampling = Sampling()  # noqa: RUF009 - it is frozen
    format: Format | None = None


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """A request, as the nodes that it is."""

    system: tuple[int, ...]
    setting: int
    prompt: int | None
    rewritten: tuple[tuple[int, Rewrite], ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the reading of a conversation stands, behind one of its groups."""

    group: Group
    leaf: int | None
    """The last message so far."""
    system: tuple[int, ...]
    """Messages of the system that stand before all others."""
    leading: bool
    """Whether there are none but those so far."""
    before: "_Place | None"


class Messages:
    """All messages of a rollout."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.settings: list[CallSettings] = []
        self._links: list[bytes] = []
        """Of each node, what stands for the path to it."""
        self._by_link: dict[bytes, int] = {}
        self._frames: dict[bytes, tuple[int, Request]] = {}
        self._rewritten: set[tuple[int, Rewrite]] = set()
        self._growing = PrefixCache[_Place | None](REMEMBERED)

    def request(self, exchange: Exchange) -> RequestNodes:
        """The messages of a request. ValueError when it cannot be read."""
        look = self._look(exchange)
        if replace_lone_surrogates(look.fresh) != look.fresh:  # what is known was readable before
            # As the model was sent them. Places stay the same.
            exchange = replace(exchange, request=replace_lone_surrogates(exchange.request))
            look = self._look(exchange)
        try:
            return self._read_new(exchange, look)
        except ValueError:
            return self._read_all(exchange)

    def reply(self, exchange: Exchange, prompt: int | None) -> int | None:
        """The message that a call was answered with; None when the answer cannot be read."""
        reply = reply_of(exchange)
        if reply is None:
            return None
        body = exchange.response if exchange.delivered is None else exchange.delivered
        return self._node(
            prompt, Message("assistant", reply.parts), MessageSource(exchange.index, "reply", 0, len(body))
        )

    def path(self, node: int | None) -> list[Node]:
        """The messages from the first one to this one."""
        return path(self.nodes, node)

    def leads_to(self, earlier: int, later: int | None) -> bool:
        """Whether a message is on the path to another one."""
        depth = self.nodes[earlier].depth
        while later is not None and self.nodes[later].depth > depth:
            later = self.nodes[later].parent
        return later == earlier

    def find_shared(self, one: int | None, other: int | None) -> int | None:
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

    def _look(self, exchange: Exchange) -> Lookup[_Place | None]:
        return self._growing.look(exchange.speaker and exchange.speaker.thread, exchange.request)

    def _read_new(self, exchange: Exchange, look: Lookup[_Place | None]) -> RequestNodes:
        """The messages of a request, of which only those are read that no earlier one began with."""
        body, edges = cut(exchange, look), look.layout().lasting
        setting, frame = self._frame(body)
        rewritten: list[tuple[int, Rewrite]] = []
        place = known = look.facts
        places: list[_Place] = []
        for group in body.groups(known.group.end if known else 0):
            place = self._group(exchange, body, place, group, rewritten)
            places.append(place)
        self._growing.keep(look, list(_resumable(edges, body.begin, known, places)))
        system = [self._node(None, message, _source(exchange, body.system)) for message in frame.messages]
        found = (*system, *(place.system if place else ()))
        return RequestNodes(found, setting, place.leaf if place else None, self._note_rewrites(rewritten))

    def _group(
        self,
        exchange: Exchange,
        body: Body,
        place: _Place | None,
        group: Group,
        rewritten: list[tuple[int, Rewrite]],
    ) -> _Place:
        """Read one group behind a place of the conversation."""
        source = _source(exchange, (body.begin + group.start, body.begin + group.end))
        leaf, system = (place.leaf, place.system) if place else (None, ())
        if group.speaker == "system" and (place is None or place.leading):
            messages = body.read(group.start, group.end)
            nodes = tuple(self._node(None, message, source) for message in messages)
            return _Place(group, None, system + nodes, leading=True, before=place)
        if place is not None and place.group.speaker == "assistant":
            # What a result answers is only known together with the calls before it.
            calling = body.read(place.group.start, place.group.end)
            messages = body.read(place.group.start, group.end)[len(calling) :]
            messages = _restore_call_ids(messages, calling, self.nodes[leaf].message if leaf is not None else None)
        else:
            messages = body.read(group.start, group.end)
        for message in messages:
            leaf = self._node(leaf, message, source)
            first = self.nodes[leaf]
            if first.source.place == "reply":
                rewritten += [(leaf, rewrite) for rewrite in _rewrites(first.message, message)]
        return _Place(group, leaf, system, leading=False, before=place)

    def _note_rewrites(self, rewritten: Iterable[tuple[int, Rewrite]]) -> tuple[tuple[int, Rewrite], ...]:
        """Those that no request had before."""
        new = tuple(one for one in rewritten if one not in self._rewritten)
        self._rewritten.update(new)
        return new

    def _frame(self, body: Body) -> tuple[int, Request]:
        frame = body.frame
        known = self._frames.get(frame)
        if known is None:
            request = read_frame(body, frame)
            known = self._frames[frame] = (self._find_setting(request), request)
        return known

    def _find_setting(self, request: Request) -> int:
        setting = CallSettings(request.model, request.tools, request.tool_choice, request.sampling, request.format)
        if setting in self.settings:
            return self.settings.index(setting)
        self.settings.append(setting)
        return len(self.settings) - 1

    def _read_all(self, exchange: Exchange) -> RequestNodes:
        """The messages of a request whose parts cannot be located."""
        request = read_whole(exchange)
        source = _source(exchange, (0, len(exchange.request)))
        leading = list(takewhile(lambda message: message.role == "system", request.messages))
        system = [self._node(None, message, source) for message in leading]
        leaf: int | None = None
        for message in request.messages[len(leading) :]:
            leaf = self._node(leaf, message, source)
        return RequestNodes(tuple(system), self._find_setting(request), leaf)

    def _node(self, parent: int | None, message: Message, source: MessageSource) -> int:
        """The node of a message behind another one; a new one when there is none."""
        before = self._links[parent] if parent is not None else b""
        link = hashlib.blake2b(before + msgspec.json.encode(neutral_form(message)), digest_size=16).digest()
        if link not in self._by_link:
            depth = self.nodes[parent].depth + 1 if parent is not None else 0
            self._by_link[link] = len(self.nodes)
            self.nodes.append(Node(len(self.nodes), parent, depth, message, source))
            self._links.append(link)
        return self._by_link[link]


def _resumable(
    edges: Iterable[int], begin: int, known: _Place | None, places: Iterable[_Place]
) -> Iterator[tuple[int, _Place | None]]:
    """From where on another request must be read that has the same bytes up to each of these edges."""
    ahead, place = deque(places), known
    for edge in edges:
        while ahead and begin + ahead[0].group.end <= edge:
            place = ahead.popleft()
        # What the assistant says may go on in the other request.
        yield edge, place.before if place and place.group.speaker == "assistant" else place


def path(nodes: Sequence[Node], node: int | None, known: Collection[int] = ()) -> list[Node]:
    """The messages from the first one to this one; only those behind the last that is known."""
    found = []
    while node is not None and node not in known:
        found.append(nodes[node])
        node = nodes[node].parent
    return found[::-1]


def _source(exchange: Exchange, place: tuple[int, int]) -> MessageSource:
    return MessageSource(exchange.index, "request", *place)


def _calls(messages: Iterable[Message]) -> list[ToolCall]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolCall)]


def _restore_call_ids(
    messages: tuple[Message, ...], calling: Sequence[Message], stored: Message | None
) -> tuple[Message, ...]:
    """Results with the ids of the calls as they are stored; a dialect without ids counts them anew in each request."""
    sent, kept = _calls(calling), _calls([stored] if stored else [])
    if len(sent) != len(kept):
        return messages
    ids = {one.id: other.id for one, other in zip(sent, kept, strict=True)}

    def restore_id(part: Part) -> Part:
        if isinstance(part, ToolResult) and part.call_id in ids:
            return msgspec.structs.replace(part, call_id=ids[part.call_id])
        return part

    return tuple(Message(message.role, tuple(map(restore_id, message.parts))) for message in messages)


def _rewrites(given: Message, sent: Message) -> Iterator[Rewrite]:
    """How a reply was changed before it was sent back."""
    if _thoughts(given) and not _thoughts(sent):
        yield Rewrite.THINKING
    if [call.arguments for call in _calls([given])] != [call.arguments for call in _calls([sent])]:
        yield Rewrite.ARGUMENTS
    if _words(given) != _words(sent):
        yield Rewrite.TEXT


def _thoughts(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Thinking))


def _words(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text | Refusal))
