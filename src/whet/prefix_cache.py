"""Request bodies that grow turn by turn: only what a body does not share with an earlier one is read.

A body is cut behind its messages. What lies before a cut has been read as JSON once, so an equal beginning of a later
body needs only to be compared, which takes a hundredth of the time.
"""

import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

import msgspec

CONVERSATION_KEYS = frozenset({"messages", "input", "contents"})
"""Top-level keys whose arrays grow with each request, one for each family of dialects."""

LARGE_VALUE = 1024
"""Any other top-level value of at least this many bytes (tools, instructions) is a piece of its own."""

SMALL_PIECE = 128
"""Neighbouring messages are kept together until they reach this size; below it, a piece costs more than it saves."""

RECENT = 8
"""How many of the last pieces are kept apart: programs move their marks for the provider's cache about in the last
messages, and a body that differs there still shares all that comes before."""

BRANCHES = 4
"""Conversations that are kept per owner: the main thread and a few others."""

_PLACEHOLDER = b"{}"
"""Stands for the known messages. Nothing can follow it but what can follow a message."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])

_BEFORE_VALUE = re.compile(rb'[ \t\n\r]*[{,][ \t\n\r]*"[^"\\]*(?:\\.[^"\\]*)*"[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_BEFORE_ELEMENT = re.compile(rb"[ \t\n\r]*[\[,][ \t\n\r]*")
_END_OF_OBJECT = re.compile(rb"[ \t\n\r]*\}[ \t\n\r]*")

Facts = TypeVar("Facts")
Span = tuple[int, int]
Field = tuple[str, bytes, Span]
"""The name of a field, its value undecoded, and where that lies."""


@dataclass(slots=True)
class Layout:
    """Where a body is cut."""

    edges: tuple[int, ...]
    lasting: tuple[int, ...]
    """Those edges behind a message that are edges of every body that begins with the same bytes."""
    opening: int
    """Where the first message begins; 0 when there is none to speak of."""


def layout(body: bytes) -> Layout:
    """Where a body is cut. ValueError when it is not a JSON object, has a key twice, or nests too deeply to be read."""
    return _layout(body, split_fields(body), None)


def _layout(body: bytes, fields: Iterable[Field], known_opening: int | None) -> Layout:
    """With a known opening, the first message there is the placeholder, behind which everything is new."""
    edges: list[int] = []
    lasting: list[int] = []
    opening, longest = 0, 0
    for key, value, (start, end) in fields:
        if key in CONVERSATION_KEYS and body.startswith(b"[", start):
            messages = [span for _, span in split_elements(body, start, value)]
            if not messages:
                continue
            known = messages[0][0] == known_opening
            found = _message_edges(messages[1:], messages[0][1]) if known else _message_edges(messages, messages[0][0])
            edges += found if known else [messages[0][0], *found]
            if known or (known_opening is None and end - start > longest):
                opening, longest = messages[0][0], end - start
                lasting = _lasting(body, messages[0][1] if known else messages[0][0], found)
        elif end - start >= LARGE_VALUE:
            edges += (start, end)
    return Layout(tuple(edges), tuple(lasting), opening)


def split_fields(body: bytes) -> list[Field]:
    """The top-level fields of a JSON object. ValueError as for a layout."""
    try:
        fields = _OBJECT.decode(body)
    except RecursionError as error:
        raise ValueError("nests too deeply") from error
    values = [bytes(value) for value in fields.values()]
    spans = _spans(body, 0, _BEFORE_VALUE, values)
    if spans and not _END_OF_OBJECT.fullmatch(body, spans[-1][1]):
        raise ValueError("duplicate keys")
    return list(zip(fields, values, spans, strict=True))


def split_elements(body: bytes, start: int, array: bytes | msgspec.Raw) -> list[tuple[msgspec.Raw, Span]]:
    """The elements of the array that begins at `start`, undecoded, and where they lie."""
    elements = _ARRAY.decode(array)
    return list(zip(elements, _spans(body, start, _BEFORE_ELEMENT, map(bytes, elements)), strict=True))


def _message_edges(messages: Sequence[Span], edge: int) -> list[int]:
    """Behind messages: so a message has the same bytes wherever the array ends."""
    edges = []
    for _, end in messages[:-1]:
        if end - edge >= SMALL_PIECE:
            edges.append(end)
            edge = end
    return [*edges, messages[-1][1]] if messages else []


def _lasting(body: bytes, edge: int, edges: Iterable[int]) -> list[int]:
    found = []
    for before, end in pairwise([edge, *edges]):
        # An object, because nothing that is looked for in a body can reach beyond its closing brace.
        if end - before >= SMALL_PIECE and body[end - 1 : end] == b"}":
            found.append(end)
    return found


def _spans(body: bytes, position: int, gap: re.Pattern[bytes], values: Iterable[bytes]) -> list[Span]:
    """Where the values lie in the body, given in the order in which they lie there."""
    spans = []
    for value in values:
        between = gap.match(body, position)
        if between is None or not body.startswith(value, between.end()):
            raise ValueError("the values are not where they were expected")
        position = between.end() + len(value)
        spans.append((between.end(), position))
    return spans


@dataclass(slots=True)
class _Piece(Generic[Facts]):
    data: bytes
    facts: Facts
    """Of all bytes from the beginning of the body to the end of this piece."""


@dataclass(eq=False, slots=True)
class _Trunk(Generic[Facts]):
    """The beginning that the bodies of one conversation share."""

    opening: int
    pieces: list[_Piece[Facts]]

    def shared(self, body: bytes) -> tuple[int, int]:
        """How many pieces a body begins with, and how many bytes these are."""
        position = 0
        for count, piece in enumerate(self.pieces):
            if not body.startswith(piece.data, position):
                return count, position
            position += len(piece.data)
        return len(self.pieces), position


@dataclass(slots=True, eq=False)  # not frozen: one is made for each body, and frozen fields cost more to set
class Lookup(Generic[Facts]):
    """A body, and what of it is known."""

    owner: Hashable
    body: bytes
    known: int
    """How many of its first bytes are those of an earlier body, up to the end of a message; 0 when it is a new one."""
    facts: Facts | None
    """Of the known part."""
    fresh: bytes
    """The body with one empty message in place of all known ones. It is JSON exactly if the body is."""
    trunk: _Trunk[Facts] | None = None
    pieces: int = 0
    """How many pieces of the trunk are known."""
    _fields: list[Field] | None = None
    _layout: Layout | None = None

    @property
    def behind(self) -> int:
        """Where the new part begins in `fresh`; 0 when all is new."""
        return self.trunk.opening + len(_PLACEHOLDER) if self.trunk else 0

    def fields(self) -> list[Field]:
        """The top-level fields of `fresh`, which are kept for the layout. ValueError as for a layout."""
        if self._fields is None:
            self._fields = split_fields(self.fresh)
        return self._fields

    def layout(self) -> Layout:
        """Where the body is cut behind the known part. ValueError as for all layouts."""
        if self._layout is None:
            fields, self._fields = self.fields(), None  # they are as long as the body
            self._layout = self._find_layout(fields)
        return self._layout

    def _find_layout(self, fields: Iterable[Field]) -> Layout:
        if self.trunk is None:
            return _layout(self.body, fields, None)
        found = _layout(self.fresh, fields, self.trunk.opening)
        if found.opening != self.trunk.opening:
            raise ValueError("the messages are not where they were")
        shift = self.known - self.behind
        return Layout(
            tuple(edge + shift for edge in found.edges if edge > self.behind),
            tuple(edge + shift for edge in found.lasting),
            found.opening,
        )


class PrefixCache(Generic[Facts]):
    """Keeps the latest bodies, with facts about them. It holds at most `budget` bytes.

    >>> growing = PrefixCache[None](1 << 20)
    >>> first = b'{"messages": [{"content": "%b"}]}' % (b"a" * 200)
    >>> look = growing.look("me", first)
    >>> growing.keep(look, [(end, None) for end in look.layout().lasting])
    >>> growing.look("me", first.replace(b"]", b', {"content": "b"}]')).fresh
    b'{"messages": [{}, {"content": "b"}]}'
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held = 0
        self._trunks: OrderedDict[Hashable, list[_Trunk[Facts]]] = OrderedDict()

    @property
    def held(self) -> int:
        """Bytes that it holds."""
        return self._held

    def look(self, owner: Hashable, body: bytes) -> Lookup[Facts]:
        """What is known of a body, from earlier bodies of the same owner."""
        best, count, known = None, 0, 0
        for trunk in self._trunks.get(owner, ()):
            pieces, size = trunk.shared(body)
            if size > known:
                best, count, known = trunk, pieces, size
        if best is None:
            return Lookup(owner, body, 0, None, body)
        fresh = b"".join((body[: best.opening], _PLACEHOLDER, memoryview(body)[known:]))
        return Lookup(owner, body, known, best.pieces[count - 1].facts, fresh, best, count)

    def keep(self, look: Lookup[Facts], ends: Sequence[tuple[int, Facts]]) -> None:
        """Remember a body up to these lasting edges of it, behind its known part, with what is known up to each."""
        old = look.trunk
        if not ends and old is None:
            return
        new = [_Piece(look.body[a:b], facts) for a, (b, facts) in zip([look.known, *(e for e, _ in ends)], ends)]  # noqa: B905
        before = old.pieces[: look.pieces] if old else []
        opening = old.opening if old else look.layout().opening
        trunks = self._trunks.setdefault(look.owner, [])
        self._trunks.move_to_end(look.owner)
        # A body that leaves the trunk early is another branch; one that leaves it late is the same conversation.
        if old in trunks and look.pieces >= len(old.pieces) - RECENT:
            trunks.remove(old)
            self._held -= _size(old)
        trunk = _Trunk(opening, _join([*before, *new]))
        trunks.append(trunk)
        self._held += _size(trunk)
        while len(trunks) > BRANCHES:
            self._held -= _size(trunks.pop(0))
        while self._held > self._budget and self._trunks:
            _, dropped = self._trunks.popitem(last=False)
            self._held -= sum(map(_size, dropped))

    def forget(self) -> None:
        """Remember nothing."""
        self._trunks.clear()
        self._held = 0


def _size(trunk: _Trunk[Facts]) -> int:
    return sum(len(piece.data) for piece in trunk.pieces)


def _join(pieces: list[_Piece[Facts]]) -> list[_Piece[Facts]]:
    """The same bytes in few pieces that grow smaller towards the end, so that long ones are seldom copied."""
    old, recent = pieces[:-RECENT], pieces[-RECENT:]
    joined: list[_Piece[Facts]] = []
    for piece in old:
        parts = [piece]
        size = len(piece.data)
        while joined and len(joined[-1].data) < 2 * size:
            parts.append(joined.pop())
            size += len(parts[-1].data)
        joined.append(piece if len(parts) == 1 else _Piece(b"".join(p.data for p in reversed(parts)), piece.facts))
    return [*joined, *recent]
