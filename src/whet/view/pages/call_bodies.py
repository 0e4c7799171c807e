"""The bytes of a model call as people read them: formatted, as they are, or in hex; a page at a time."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from whet.exchange import Exchange, Headers, is_event_stream
from whet.gateway.sse import EventFramer
from whet.view.masking import mask_bytes
from whet.workspace import Entry, Snapshot, changes

BODIES = ("request", "response", "sent", "delivered")
FORMS = ("pretty", "raw", "hex")
PAGE_BYTES = 256 << 10
"""What a page shows of a body at once."""
PAGE_EVENTS = 200
EVENT_LIMIT = 4000
"""Characters of one event that are shown in the list."""
HEX_BYTES = 32 << 10
"""What a page shows in hex, where a byte takes four characters."""
PRETTY_LIMIT = 32 << 20
"""A longer body is not formatted."""


@dataclass(frozen=True, slots=True)
class Text:
    """A page of a body, as text."""

    text: str
    start: int
    end: int
    total: int
    unit: str
    """What the numbers count: bytes, or characters of the formatted text."""


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    number: int
    arrived: float | None
    """Seconds after the request was sent; None where that is not recorded."""
    text: str
    size: int


@dataclass(frozen=True, slots=True)
class Events:
    """A page of a body that is a stream of events."""

    events: tuple[Event, ...]
    start: int
    total: int


def body_of(exchange: Exchange, name: str) -> bytes:
    """One of the four bodies, without keys. What was not changed on its way is the body that it was made of."""
    if name == "sent" and exchange.sent is None:
        return mask_bytes(exchange.request)
    if name == "delivered" and exchange.delivered is None:
        return mask_bytes(exchange.response)
    return mask_bytes(getattr(exchange, name))


def is_stream(body: bytes, headers: Headers) -> bool:
    """Whether a body is a stream of events: by its header, or because it begins like one."""
    return is_event_stream(headers) or body.startswith((b"data:", b"event:"))


def read_text(body: bytes, form: str, start: int) -> Text:
    """A page of a body from byte or character `start` on."""
    if form == "hex":
        page = body[start : start + HEX_BYTES]
        return Text("\n".join(_hex_lines(page, start)), start, start + len(page), len(body), "bytes")
    if form == "pretty" and (formatted := format_json(body)) is not None:
        shown = formatted[start : start + PAGE_BYTES]
        return Text(shown, start, start + len(shown), len(formatted), "characters, formatted")
    page = body[start : start + PAGE_BYTES]
    return Text(page.decode(errors="backslashreplace"), start, start + len(page), len(body), "bytes")


def format_json(body: bytes) -> str | None:
    """JSON with a line for each member, its numbers, texts and repeated names as they are; None if it is no JSON."""
    if len(body) > PRETTY_LIMIT or body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.format(body, indent=2).decode(errors="backslashreplace")
    except (ValueError, RecursionError):
        return None


def _hex_lines(page: bytes, start: int) -> Iterator[str]:
    for at in range(0, len(page), 16):
        row = page[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start + at:08x}  {row.hex(' '):<47}  {shown}"


def read_events(body: bytes, arrivals: Sequence[tuple[float, int]], start: int) -> Events:
    """A page of the events of a body, from event `start` on, each with the time at which its last byte arrived."""
    framer = EventFramer()
    whole = framer.feed(body)
    rest = framer.rest()
    events = [*whole, *([rest] if rest.strip() else [])]
    ends = [size for _, size in arrivals]
    end, shown = sum(map(len, islice(events, start))), []
    for number, event in enumerate(events[start : start + PAGE_EVENTS], start + 1):
        end += len(event)
        shown.append(Event(number, _time_at(arrivals, ends, end), _event_text(event), len(event)))
    return Events(tuple(shown), start, len(events))


def _time_at(arrivals: Sequence[tuple[float, int]], ends: Sequence[int], end: int) -> float | None:
    place = bisect_left(ends, end)
    return arrivals[place][0] if place < len(arrivals) else None


def _event_text(event: bytes) -> str:
    return event.decode(errors="backslashreplace").strip("\r\n")


def compare_bodies(name: str, was: bytes, now: bytes) -> str | None:
    """The difference between two bodies, formatted alike; None when they have little in common or are too long."""
    texts = [
        (content, text) for content, body in (("was", was), ("now", now)) if (text := format_json(body)) is not None
    ]
    if len(texts) < 2:
        return None
    before, after = (Snapshot({name: Entry(len(text), 0, content, text + "\n")}) for content, text in texts)
    return next((change.diff for change in changes(before, after)), None)
