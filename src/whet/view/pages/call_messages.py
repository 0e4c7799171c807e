"""The messages of one model call: what it adds to the call before it, and what was there already."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from whet.exchange import Exchange
from whet.gateway.dialects.neutral import Image, Message, Part, Refusal, Text, Thinking, ToolCall, ToolResult
from whet.trace.conversations.graph import Graph, build
from whet.trace.conversations.tree import Node
from whet.view.page import NotFoundError

PAGE = 50
"""Earlier messages on a page."""


@dataclass(frozen=True, slots=True)
class MessagePart:
    """One part of a message, as text."""

    kind: str
    """text, thinking, call, result, refusal or image."""
    text: str
    label: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message and its place among all that the model saw, from 1."""

    number: int
    role: str
    parts: tuple[MessagePart, ...]


@dataclass(frozen=True, slots=True)
class CallMessages:
    """What the model saw and replied, newest on top."""

    problem: str
    """Why there are no messages, if there are none."""
    new: tuple[ShownMessage, ...] = ()
    reply: ShownMessage | None = None
    earlier: tuple[ShownMessage, ...] = ()
    """A page of them."""
    earlier_total: int = 0
    earlier_start: int = 0
    previous: int | None = None
    """The call that they were compared with."""


def read_messages(exchange: Exchange, previous: Exchange | None, start: int) -> CallMessages:
    """The messages of a call, compared with the previous call of its thread; earlier ones from `start` on."""
    graph, seen = _build(exchange, previous)
    turn = next((one for one in graph.turns if one.exchange == exchange.index), None)
    if turn is None:
        why = next((why for index, why in graph.unread if index == exchange.index), "the request cannot be read")
        return CallMessages(why)
    sent = graph.conversation(replace(turn, reply=None))
    new = [one for one in enumerate(sent, 1) if one[1].id not in seen]
    earlier = [one for one in enumerate(sent, 1) if one[1].id in seen]
    reply = None if turn.reply is None else show(len(sent) + 1, graph.nodes[turn.reply].message)
    shown = earlier[start : start + PAGE]
    before = None if previous is None else previous.index
    return CallMessages("", _show_all(new), reply, _show_all(shown), len(earlier), start, before)


def find_message(exchange: Exchange, number: int) -> ShownMessage:
    """One message of a call, whole. NotFoundError when it has fewer."""
    graph, _ = _build(exchange, None)
    nodes = graph.conversation(graph.turns[0]) if graph.turns else []
    if not 1 <= number <= len(nodes):
        raise NotFoundError(f"Exchange {exchange.index} has {len(nodes)} messages, not {number}.")
    return show(number, nodes[number - 1].message)


def _build(exchange: Exchange, previous: Exchange | None) -> tuple[Graph, frozenset[int]]:
    """The conversations of two calls, and the messages that the first of them saw or made."""
    # A request can be read whether or not it was answered.
    read = build(replace(one, status=200, speaker=None) for one in (previous, exchange) if one is not None)
    first = next((one for one in read.turns if previous is not None and one.exchange == previous.index), None)
    return read, frozenset(node.id for node in read.conversation(first)) if first else frozenset()


def _show_all(numbered: Iterable[tuple[int, Node]]) -> tuple[ShownMessage, ...]:
    return tuple(show(number, node.message) for number, node in numbered)


def show(number: int, message: Message) -> ShownMessage:
    """A message as text."""
    results = all(isinstance(part, ToolResult) for part in message.parts) and message.parts
    role = "tool" if results else message.role
    return ShownMessage(number, role, tuple(_parts(message.parts)))


def _parts(parts: Sequence[Part]) -> Iterator[MessagePart]:
    for part in parts:
        match part:
            case Text(text):
                yield MessagePart("text", text)
            case Thinking(text, hidden=hidden):
                yield MessagePart("thinking", text or ("(hidden by the provider)" if hidden else "(nothing)"))
            case Refusal(text):
                yield MessagePart("refusal", text, failed=True)
            case Image(media_type, data):
                yield MessagePart("image", f"{media_type}, {len(data):,} characters of base64")
            case ToolCall(name=name, arguments=arguments):
                yield MessagePart("call", arguments, name)
            case ToolResult():
                yield _result(part)


def _result(part: ToolResult) -> MessagePart:
    texts = [one.text if isinstance(one, Text) else f"[{one.media_type}]" for one in part.parts]
    return MessagePart("result", "\n".join(texts), part.name or "", part.is_error)
