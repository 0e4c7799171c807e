"""What a model answered, read from the bytes that the agent was given, in whatever dialect they are."""

from collections.abc import Iterator

from whet.exchange import Exchange
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import End, Event, Reply, Stop, assemble
from whet.gateway.sse import EventFramer


def reply_of(exchange: Exchange) -> Reply | None:
    """The reply as the agent was given it, or what came of it; None when it cannot be read."""
    try:
        return read_reply(exchange.dialect, exchange.response if exchange.delivered is None else exchange.delivered)
    except ValueError:  # a model can send anything
        return None


def read_reply(dialect: str, body: bytes) -> Reply:
    """A reply in one piece, or as a stream. ValueError when it cannot be read."""
    if body.lstrip().startswith(b"{"):
        return DIALECTS[dialect].read_reply(body)
    return assemble(_read_events(dialect, body))


def _read_events(dialect: str, stream: bytes) -> Iterator[Event]:
    """The events of a stream. One that was cut ends where it was."""
    framer, reader = EventFramer(), DIALECTS[dialect].EventReader()
    try:
        for event in framer.feed(stream):
            yield from reader.read(event)
        yield from reader.end()
    except ValueError:
        yield End(Stop.LENGTH)
