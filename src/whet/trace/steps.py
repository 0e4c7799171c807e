"""The steps of a rollout as people read them, derived from its exchanges, in whatever dialect they were."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from whet.exchange import Exchange, Kind
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import (
    End,
    Event,
    Image,
    Message,
    Part,
    Refusal,
    Reply,
    Stop,
    Text,
    ToolCall,
    ToolResult,
    assemble,
)
from whet.gateway.sse import EventFramer


@dataclass(frozen=True, slots=True)
class Step:
    """One message of the conversation."""

    role: str
    """system, user, assistant or tool."""
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    """Tools called, with their arguments as sent."""
    call: int | None = None
    """Of a reply, which call of the main thread it answered, from 1."""


def main_calls(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """The answered calls of the main thread, in order of arrival. People count them from 1."""
    answered = (one for one in exchanges if one.error is None and one.status == 200)
    main = (one for one in answered if one.speaker is None or one.speaker.kind is Kind.MAIN)
    return sorted(main, key=lambda one: one.index)


def steps(exchanges: Sequence[Exchange]) -> list[Step]:
    """The longest conversation of a rollout's main thread: what was last sent, and the reply to it."""
    answered = [exchange for exchange in exchanges if exchange.status == 200]
    main = [exchange for exchange in answered if exchange.speaker is None or exchange.speaker.kind is Kind.MAIN]
    if not answered:
        return []
    last = max(main or answered, key=lambda exchange: len(exchange.request))
    reply = reply_of(last)
    spoken = [Message("assistant", reply.parts)] if reply else []
    found = [step for message in [*_sent(last), *spoken] for step in _steps_of(message)]
    calls = sum(one.index <= last.index for one in main_calls(exchanges))
    return _numbered(found, calls, calls + (last.error is not None and reply is not None))


def _numbered(found: Sequence[Step], calls: int, number: int) -> list[Step]:
    """Steps with the numbers of the calls that they answered. The last one's is known; earlier ones may be left out."""
    numbered: list[Step] = []
    for after, step in zip([None, *reversed(found)], reversed(found), strict=False):
        number -= after is not None and after.role == "assistant" != step.role
        is_call = step.role == "assistant" and 0 < number <= calls
        numbered.append(replace(step, call=number) if is_call else step)
    return numbered[::-1]


def tools_called(exchanges: Iterable[Exchange]) -> Counter[str]:
    """How often each tool was asked for, by the replies that the agent was given."""
    replies = (reply_of(exchange) for exchange in exchanges if exchange.status == 200)
    return Counter(part.name for reply in replies if reply for part in reply.parts if isinstance(part, ToolCall))


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
    return assemble(_told(dialect, body))


def _told(dialect: str, stream: bytes) -> Iterator[Event]:
    """The events of a stream. One that was cut ends where it was."""
    framer, reader = EventFramer(), DIALECTS[dialect].EventReader()
    try:
        for event in framer.feed(stream):
            yield from reader.read(event)
        yield from reader.end()
    except ValueError:
        yield End(Stop.LENGTH)


def _sent(exchange: Exchange) -> tuple[Message, ...]:
    try:
        return DIALECTS[exchange.dialect].read_request(exchange.request, exchange.path).messages
    except ValueError:  # so can an agent
        return ()


def _steps_of(message: Message) -> list[Step]:
    """A message as steps: results of tools are steps of their own."""
    told = [part for part in message.parts if not isinstance(part, ToolResult)]
    results = [Step("tool", _text(part.parts)) for part in message.parts if isinstance(part, ToolResult)]
    calls = tuple((part.name, part.arguments) for part in told if isinstance(part, ToolCall))
    return [*results, *([Step(message.role, _text(told), calls)] if told else [])]


def _text(parts: Iterable[Part]) -> str:
    texts = []
    for part in parts:
        match part:
            case Text(text) | Refusal(text):
                texts.append(text)
            case Image(media_type):
                texts.append(f"[{media_type}]")
    return "\n".join(texts)
