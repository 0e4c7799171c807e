"""A request, cut into the places of its messages: what surrounds them, and the groups that are one message each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from whet.exchange import Exchange
from whet.gateway.attribution.conversations import FIELDS, SYSTEM_FIELDS, SYSTEM_ROLES
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import Message, Request
from whet.prefix_cache import Lookup, split_elements, split_fields


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring elements of a conversation that are one turn of one side. Places count from the array's bracket."""

    start: int
    end: int
    speaker: str
    """assistant, system or user."""


@dataclass(frozen=True, slots=True)
class Body:
    """A request body with its conversation found, not yet read."""

    dialect: str
    path: str
    fields: Mapping[str, bytes]
    """All top-level fields but the conversation, as they stand."""
    request: bytes
    begin: int
    end: int
    """Where the conversation lies in the request, from bracket to bracket."""
    system: tuple[int, int]
    """Where the system's own field lies; an empty place when there is none."""

    @property
    def frame(self) -> bytes:
        """The request without a conversation."""
        return _object({**self.fields, FIELDS[self.dialect]: b"[]"})

    def read(self, start: int, end: int) -> tuple[Message, ...]:
        """The messages between two places of the array."""
        inner = self.request[self.begin + start : self.begin + end].strip(b" \t\r\n,")
        model = {"model": self.fields["model"]} if "model" in self.fields else {}
        return _read(self.dialect, self.path, _object({**model, FIELDS[self.dialect]: b"[" + inner + b"]"})).messages

    def groups(self, start: int) -> list[Group]:
        """The groups from a place on that lies between two elements."""
        tail = self.request[self.begin + start : self.end].lstrip(b" \t\r\n")
        opened = tail if start == 0 else b"[" + tail.removeprefix(b",")
        shift = self.end - self.begin - len(opened)
        located = split_elements(opened, 0, opened)
        found = []
        for _, run in groupby(_number_elements(located), key=lambda one: (one[2], one[2] != "assistant" and one[0])):
            pieces = list(run)
            found.append(Group(pieces[0][1][0] + shift, pieces[-1][1][1] + shift, pieces[0][2]))
        return found


def cut(exchange: Exchange, look: Lookup[Any]) -> Body:
    """Find the conversation of a request of which a part may be known. ValueError when it is not an array in an
    object, or when the known part is of another array."""
    name, fresh, shift = FIELDS[exchange.dialect], look.fresh, len(look.body) - len(look.fresh)
    spans = {key: span for key, _, span in split_fields(fresh)}
    if name not in spans or not fresh.startswith(b"[", spans[name][0]):
        raise ValueError(f"there is no array '{name}'")
    start, end = spans.pop(name)
    if look.behind and not start < look.behind <= end:
        raise ValueError(f"what is known is not of '{name}'")
    fields = {key: fresh[first:last] for key, (first, last) in spans.items()}
    first, last = next((spans[key] for key in SYSTEM_FIELDS if key in spans), (0, 0))
    system = (first + shift, last + shift) if first > start else (first, last)
    return Body(exchange.dialect, exchange.path, fields, look.body, start, end + shift, system)


def read_frame(body: Body, frame: bytes) -> Request:
    """What is asked beside the conversation; its messages are those of the system field."""
    return _read(body.dialect, body.path, frame)


def read_whole(exchange: Exchange) -> Request:
    """The request in the neutral form. ValueError when it cannot be read."""
    return _read(exchange.dialect, exchange.path, exchange.request)


def _read(dialect: str, path: str, body: bytes) -> Request:
    try:
        return DIALECTS[dialect].read_request(body, path)
    except RecursionError as error:
        raise ValueError("nests too deeply") from error


def _object(fields: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(key) + b":" + value for key, value in fields.items()) + b"}"


def _number_elements(
    located: Sequence[tuple[msgspec.Raw, tuple[int, int]]],
) -> Iterator[tuple[int, tuple[int, int], str]]:
    for number, (raw, span) in enumerate(located):
        yield number, span, _speaker(msgspec.json.decode(raw))


def _speaker(element: Any) -> str:
    match element:
        case {"role": "assistant" | "model"}:
            return "assistant"
        case {"role": str(role)}:
            return "system" if role in SYSTEM_ROLES else "user"
        case {"type": str(kind)} if kind == "reasoning" or kind.endswith("_call"):
            return "assistant"
    return "user"
