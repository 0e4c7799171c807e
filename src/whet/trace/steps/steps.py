"""The steps of a rollout, derived from its conversations: texts, tool calls and results, in reading order.

Sub-agents stand behind the reply that began them. Each reply of the main thread has the number of its call.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from whet.exchange import Kind
from whet.gateway.dialects.neutral import Image, Message, Part, Refusal, Text, Thinking, ToolCall, ToolResult
from whet.trace.conversations.graph import BreakCause, Graph, Thread, Turn
from whet.trace.conversations.tree import MessageSource

_BROKEN = {
    BreakCause.COMPACTION: "compaction: a summary takes the place of the conversation",
    BreakCause.EDITED: "the agent changed its history",
    BreakCause.RESTARTED: "the agent started over",
    BreakCause.REPEATED: "the agent sent the same request again; the earlier reply does not count",
}


_FAILURE = re.compile(
    r"\b(?:exit(?:ed with)?(?: exit)?[ _-]?code|exited with code|returncode)\b\W{0,4}[1-9]", re.IGNORECASE
)
"""How programs report, in the text of a result, that a command failed: not every dialect has a mark for it."""


class StepKind(StrEnum):
    """What a step is."""

    SYSTEM = "system"
    USER = "user"
    REPLY = "reply"
    """Of the model, to a call on record."""
    ASSISTANT = "assistant"
    """What the agent says that the model said."""
    RESULT = "result"
    """Of a tool."""
    HELPER = "helper"
    """A call beside the work, such as a title, with all that came of it."""
    SUB_AGENT = "sub-agent"
    """One begins; its steps follow, deeper."""
    BREAK = "break"
    """The next call does not continue the one before."""
    FAILED = "failed"
    """A call without an answer that can be read."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    kind: StepKind
    text: str
    tools: tuple[tuple[str, str], ...] = ()
    """Tools called, with their arguments as sent."""
    name: str = ""
    """Of the tool that gives the result, the helper or the sub-agent."""
    call: int | None = None
    """Of a reply of the main thread, the number of its call, from 1."""
    error: bool = False
    """Whether a tool reports a failure."""
    depth: int = 0
    """0 for the main thread, 1 for a sub-agent, and so on."""
    number: int = 0
    """From 1, in reading order."""
    thread: str = ""
    """Id of the thread in `Graph.threads`."""
    exchange: int | None = None
    """The model call that the step was first seen in, or that failed."""
    parts: tuple[Part, ...] = ()
    """What `text` and `tools` are made of: thinking, text, tool calls, images and refusals, each apart."""
    source: MessageSource | None = None
    """Where its message is in the bytes of that call."""


def steps(graph: Graph) -> list[Step]:
    """All steps of a rollout in reading order."""
    return [replace(step, number=number) for number, step in enumerate(_Reading(graph).steps(), 1)]


class _Reading:
    """One way through all conversations of a rollout."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._shown: set[int] = set()
        """Messages that are steps already."""
        self._calls = 0
        known = {thread.id for thread in graph.threads}
        self._tops = [thread for thread in graph.threads if thread.parent not in known]
        self._begun: dict[tuple[str | None, int | None], list[Thread]] = defaultdict(list)
        """Threads that hang at a message of another one, by both."""
        for thread in graph.threads:
            if thread.parent in known:
                self._begun[thread.parent, thread.spawned_at].append(thread)
        self._failed = sorted([*graph.unanswered, *graph.unread], reverse=True)

    def steps(self) -> Iterator[Step]:
        for thread in self._tops:
            yield from self._thread(thread, 0)
        yield from self._failures(None)

    def _thread(self, thread: Thread, depth: int) -> Iterator[Step]:
        turns = [self._graph.turns[place] for place in thread.turns]
        if thread.kind is Kind.UTILITY:
            replies = [self._graph.nodes[turn.reply].message.parts for turn in turns if turn.reply is not None]
            yield Step(
                StepKind.HELPER,
                "\n".join(map(_text, replies)),
                name=thread.name,
                depth=depth,
                thread=thread.id,
                exchange=turns[0].exchange,
                parts=tuple(part for parts in replies for part in parts),
            )
        else:
            if thread.kind is Kind.SUB:
                calls = f"{len(turns)} call{'s' if len(turns) != 1 else ''}"
                first = turns[0].exchange
                yield Step(StepKind.SUB_AGENT, calls, name=thread.name, depth=depth, thread=thread.id, exchange=first)
                depth += 1
            for turn in turns:
                for step in self._turn(thread, turn, depth):
                    yield step if step.thread else replace(step, thread=thread.id)
        for key in [key for key in self._begun if key[0] == thread.id]:
            yield from self._threads_at(key, depth)

    def _turn(self, thread: Thread, turn: Turn, depth: int) -> Iterator[Step]:
        graph = self._graph
        if thread.kind is Kind.MAIN:
            yield from self._failures(turn.exchange)
            self._calls += not turn.failed
        if turn.broken is not None:
            yield Step(StepKind.BREAK, _BROKEN[turn.broken.cause], depth=depth, exchange=turn.exchange)
        system = [graph.nodes[node] for node in turn.system if node not in self._shown]
        for node in (*system, *graph.path(turn.prompt, self._shown)):
            self._shown.add(node.id)
            for step in self._message(node.message, node.parent):
                yield replace(step, depth=depth, exchange=node.source.exchange, source=node.source)
            yield from self._threads_at((thread.id, node.id), depth)
        # No fork can begin at a call that was not answered whole.
        call = self._calls if thread.kind is Kind.MAIN and not turn.failed else None
        if turn.reply is None:
            yield Step(StepKind.FAILED, "the reply cannot be read", call=call, depth=depth, exchange=turn.exchange)
            return
        self._shown.add(turn.reply)
        reply = graph.nodes[turn.reply]
        parts = reply.message.parts
        yield Step(
            StepKind.REPLY,
            _text(parts),
            _tools(parts),
            call=call,
            depth=depth,
            exchange=turn.exchange,
            parts=parts,
            source=reply.source,
        )
        yield from self._threads_at((thread.id, turn.reply), depth)

    def _threads_at(self, place: tuple[str | None, int | None], depth: int) -> Iterator[Step]:
        for thread in self._begun.pop(place, ()):
            yield from self._thread(thread, depth)

    def _failures(self, before: int | None) -> Iterator[Step]:
        """The calls that failed before another one, or after all."""
        while self._failed and (before is None or self._failed[-1][0] < before):
            exchange, why = self._failed.pop()
            yield Step(StepKind.FAILED, f"a call was not answered: {why}", exchange=exchange)

    def _message(self, message: Message, parent: int | None) -> Iterator[Step]:
        """A message that was sent: results of tools are steps of their own."""
        before = self._graph.nodes[parent].message.parts if parent is not None else ()
        names = {part.id: part.name for part in before if isinstance(part, ToolCall)}
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        for part in message.parts:
            if isinstance(part, ToolResult):
                text, name = _text(part.parts), part.name or names.get(part.call_id, "")
                error = part.is_error or bool(_FAILURE.search(text))
                yield Step(StepKind.RESULT, text, name=name, error=error, parts=part.parts)
        if others:
            yield Step(StepKind(message.role), _text(others), _tools(others), parts=tuple(others))


def _tools(parts: Iterable[Part]) -> tuple[tuple[str, str], ...]:
    return tuple((part.name, part.arguments) for part in parts if isinstance(part, ToolCall))


def _text(parts: Iterable[Part]) -> str:
    texts = []
    for part in parts:
        match part:
            case Text(text) | Refusal(text):
                texts.append(text)
            case Thinking(text) if text:
                texts.append(f"(thinks) {text}")
            case Image(media_type):
                texts.append(f"[{media_type}]")
    return "\n".join(texts)
