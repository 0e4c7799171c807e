"""The conversations of a rollout, derived from its exchanges: a graph in which each message is stored once.

Branches are paths to different leaves. Sub-agents and helper calls hang where they were begun, and a place where a
thread does not continue its history is marked with the cause.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from whet.exchange import Exchange, Kind, Speaker
from whet.gateway.attribution.threads import COMPACTION, MAIN
from whet.gateway.call_failures import describe_failure
from whet.gateway.dialects.neutral import Message, Text, ToolCall
from whet.trace.conversations.tree import CallSettings, Messages, Node, RequestNodes, Rewrite, path

_PROMPT = 12
"""A shorter argument of a tool call is not taken for a sub-agent's prompt."""


class BreakCause(StrEnum):
    """Why a thread does not continue its history."""

    COMPACTION = "compaction"
    """A summary took the place of the conversation."""
    EDITED = "edited"
    """It shares only a beginning with the earlier history."""
    RESTARTED = "restarted"
    """It shares nothing."""
    REPEATED = "repeated"
    """The same request was sent again; the earlier reply does not count."""


@dataclass(frozen=True, slots=True)
class Break:
    cause: BreakCause
    shared: int | None
    """The last message that both have."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answered call."""

    exchange: int
    thread: str
    system: tuple[int, ...]
    setting: int
    prompt: int | None
    """The last message that was sent; None when there was none."""
    reply: int | None
    """None when the reply cannot be read."""
    rewritten: tuple[tuple[int, Rewrite], ...] = ()
    """Replies that this call sends back for the first time, otherwise than they were given."""
    broken: Break | None = None
    failed: bool = False
    """The reply did not come to the agent whole."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation: the main one, a sub-agent's, or a helper call."""

    id: str
    kind: Kind
    name: str
    parent: str | None
    spawned_at: int | None
    """The message of the parent that it hangs at."""
    spawned_by: str | None
    """Id of the tool call in that message that began it, where one did."""
    turns: tuple[int, ...]
    """Places in `Graph.turns`."""


@dataclass(frozen=True, slots=True)
class Graph:
    """All conversations of one rollout."""

    nodes: tuple[Node, ...]
    settings: tuple[CallSettings, ...]
    turns: tuple[Turn, ...]
    """In order of arrival."""
    threads: tuple[Thread, ...]
    """In order of their first call."""
    unread: tuple[tuple[int, str], ...]
    """Exchanges whose request cannot be read, and why."""
    unanswered: tuple[tuple[int, str], ...]
    """Exchanges without an answer, and why."""

    def path(self, node: int | None, known: Collection[int] = ()) -> list[Node]:
        """The messages from the first one to this one; only those behind the last that is known."""
        return path(self.nodes, node, known)

    def conversation(self, turn: Turn) -> list[Node]:
        """All that the model saw in this call, and what it replied."""
        reply = [self.nodes[turn.reply]] if turn.reply is not None else []
        return [*(self.nodes[node] for node in turn.system), *self.path(turn.prompt), *reply]

    def replies_sent_back(self) -> frozenset[int]:
        """The exchanges whose reply is in the next request of their thread, whatever else was changed in it."""
        return frozenset(
            before.exchange
            for thread in self.threads
            for before, after in pairwise(self.turns[place] for place in thread.turns)
            if before.reply is not None and self._holds(after, before.reply)
        )

    def _holds(self, turn: Turn, reply: int) -> bool:
        if turn.broken is None:
            return True
        if turn.broken.shared is None:
            return False
        message = self.nodes[reply].message
        return any(node.message == message for node in self.path(turn.prompt, {turn.broken.shared}))

    def segments(self, thread: Thread) -> list[list[Turn]]:
        """The turns of a thread, cut where its history was broken. What was repeated counts once."""
        cut_up: list[list[Turn]] = []
        for turn in (self.turns[place] for place in thread.turns):
            if turn.broken is not None and turn.broken.cause is BreakCause.REPEATED:
                cut_up[-1].pop()
            elif turn.broken is not None or not cut_up:
                cut_up.append([])
            cut_up[-1].append(turn)
        return cut_up


def build(exchanges: Iterable[Exchange]) -> Graph:
    """The conversations that these exchanges are, given in the order of their numbers. Each is looked at once."""
    reader = GraphReader()
    for exchange in exchanges:
        reader.add(exchange)
    return reader.graph()


def find_working_threads(speakers: Iterable[Speaker | None]) -> frozenset[str]:
    """The threads that do the work. Helper calls may be called like the one that they help."""
    return frozenset(one.thread for one in speakers if one is not None and one.kind is not Kind.UTILITY)


def thread_of(index: int, speaker: Speaker | None, working: frozenset[str]) -> str:
    """The thread that a call belongs to; a helper call has its own."""
    if speaker is None:
        return MAIN
    if speaker.kind is Kind.UTILITY and speaker.thread in working:
        return f"{speaker.thread}/{speaker.label}-{index}"
    return speaker.thread


@dataclass(frozen=True, slots=True)
class _Heard:
    """An answered call, read."""

    index: int
    speaker: Speaker | None
    request: RequestNodes
    answer: int | None
    failed: bool


class GraphReader:
    """Takes exchanges in order of arrival, and keeps nothing of them but their messages."""

    def __init__(self) -> None:
        self._messages = Messages()
        self._heard: list[_Heard] = []
        self._speakers: list[Speaker | None] = []
        self._unread: list[tuple[int, str]] = []
        self._unanswered: list[tuple[int, str]] = []
        self._last = -1

    def add(self, exchange: Exchange) -> None:
        """Read one exchange. ValueError when one with a higher number was read before."""
        if exchange.index <= self._last:
            raise ValueError(f"exchange {exchange.index} comes after exchange {self._last}")
        self._last = exchange.index
        self._speakers.append(exchange.speaker)
        if exchange.status != 200:
            self._unanswered.append((exchange.index, describe_failure(exchange)))
            return
        try:
            request = self._messages.request(exchange)
        except ValueError as error:
            self._unread.append((exchange.index, str(error)))
            return
        answer = self._messages.reply(exchange, request.prompt)
        self._heard.append(_Heard(exchange.index, exchange.speaker, request, answer, exchange.error is not None))

    def graph(self) -> Graph:
        """The conversations of all that was read."""
        # Which threads do the work is known at the end only.
        builder = _Builder(self._messages, find_working_threads(self._speakers))
        for heard in self._heard:
            builder.add(heard)
        nodes, settings = tuple(self._messages.nodes), tuple(self._messages.settings)
        turns, threads = builder.build()
        return Graph(nodes, settings, turns, threads, tuple(self._unread), tuple(self._unanswered))


class _Builder:
    """Takes answered calls in order of arrival."""

    def __init__(self, messages: Messages, working: frozenset[str]) -> None:
        self._messages = messages
        self._working = working
        self._turns: list[Turn] = []
        self._threads: dict[str, list[int]] = {}
        self._begun: dict[str, Thread] = {}
        """Every thread as it was when it began."""
        self._compacted: set[str] = set()
        """Threads for which a summary was requested since their last call."""

    def add(self, heard: _Heard) -> None:
        request, key = heard.request, thread_of(heard.index, heard.speaker, self._working)
        turns = self._threads.setdefault(key, [])
        if not turns:
            self._begun[key] = self._begin(key, heard)
        broken = self._find_break(key, heard, self._turns[turns[-1]]) if turns else None
        self._note_compaction(key, heard.speaker)
        turns.append(len(self._turns))
        self._turns.append(
            Turn(
                heard.index,
                key,
                request.system,
                request.setting,
                request.prompt,
                heard.answer,
                request.rewritten,
                broken,
                heard.failed,
            )
        )

    def build(self) -> tuple[tuple[Turn, ...], tuple[Thread, ...]]:
        threads = (replace(self._begun[key], turns=tuple(turns)) for key, turns in self._threads.items())
        return tuple(self._turns), tuple(threads)

    def _begin(self, key: str, heard: _Heard) -> Thread:
        speaker = heard.speaker
        if speaker is None or speaker.kind is Kind.MAIN:
            return Thread(key, Kind.MAIN, "", None, None, None, ())
        parent = self._parent(key, speaker)
        spoken = self._threads.get(parent or "", [])
        at, by = self._find_spawn(spoken, heard.request.prompt) if speaker.kind is Kind.SUB else (None, None)
        if at is None and spoken:
            last = self._turns[spoken[-1]]
            at = last.prompt if last.reply is None else last.reply
        return Thread(key, speaker.kind, speaker.name, parent, at, by, ())

    def _parent(self, key: str, speaker: Speaker) -> str | None:
        """The thread that this one works for: the one that is named, or else the main one."""
        named = (speaker.parent, speaker.thread)
        main = (one.id for one in self._begun.values() if one.kind is Kind.MAIN)
        return next((name for name in (*named, *main) if name in self._begun and name != key), None)

    def _find_spawn(self, spoken: Sequence[int], prompt: int | None) -> tuple[int | None, str | None]:
        """The message and the tool call of the parent that began a sub-agent: that with its prompt, or the last one."""
        words = "\n".join(_words(node.message) for node in self._messages.path(prompt))
        calls = [
            (turn.reply, part)
            for turn in (self._turns[place] for place in reversed(spoken))
            if turn.reply is not None
            for part in self._messages.nodes[turn.reply].message.parts
            if isinstance(part, ToolCall)
        ]
        for node, call in calls:
            if any(len(text) >= _PROMPT and text in words for text in _texts_of(call.arguments)):
                return node, call.id
        return (calls[0][0], calls[0][1].id) if calls else (None, None)

    def _find_break(self, key: str, heard: _Heard, before: Turn) -> Break | None:
        """How a turn breaks with the one before it; None when it continues it."""
        prompt = heard.request.prompt
        tip = before.prompt if before.reply is None else before.reply
        if tip is not None and self._messages.leads_to(tip, prompt):
            return None
        shared = self._messages.find_shared(before.prompt, prompt)
        evidence = heard.speaker.evidence if heard.speaker else ""
        if key in self._compacted or "after the compaction" in evidence:
            return Break(BreakCause.COMPACTION, shared)
        if prompt == before.prompt:
            return Break(BreakCause.REPEATED, shared)
        return Break(BreakCause.RESTARTED if shared is None else BreakCause.EDITED, shared)

    def _note_compaction(self, key: str, speaker: Speaker | None) -> None:
        self._compacted.discard(key)
        if speaker is not None and speaker.kind is Kind.UTILITY and speaker.name == COMPACTION:
            self._compacted.add(self._begun[key].parent or speaker.thread)


def _words(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def _texts_of(arguments: str) -> list[str]:
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return []
    return [text for text in given.values() if isinstance(text, str)] if isinstance(given, dict) else []
