"""Who makes each call of a session: the main thread, a sub-agent, or a helper call such as a title.

Headers come first; where they say nothing, a call belongs to the conversation that it continues. Where neither helps,
it is inferred from what was under way when the call came. The evidence says which of these it was, and what is unsure.
"""

import json
import re
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

from whet.exchange import Headers, Kind, Speaker
from whet.gateway.attribution.conversations import (
    CallSetting,
    Conversation,
    message_text,
    read_conversation,
    read_setting,
)
from whet.gateway.attribution.headers import HeaderClaims, read_headers
from whet.gateway.buffers.memory import MemoryBudget
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import ToolCall, assemble
from whet.gateway.sse import EventFramer

WATCHED = 8
"""How many threads are recognised by their bytes. A thread that was silent for longer is recognised by its messages."""
KEPT_THREADS, KEPT_CALLS = 32, 4096
"""How much is kept of a session that never ends. An older thread counts as a new one when it makes a call again."""
MAIN = "main"
COMPACTION, TITLE, SUMMARY = "compaction", "title", "summary"

_COMPACTION = (
    "summary of the conversation so far",
    "summary of our conversation so far",
    "context checkpoint",
    "<state_snapshot>",
    "prompt for continuing our conversation",
    "summarizing conversations",
    "context summarization assistant",
    "summarizes internal chat history",
    "distilling chat history",
)
"""How programs ask for a summary that replaces a conversation, in lower case."""
_TITLE = re.compile(r"title generator|generate a [^.\n]{0,40}\btitle\b|(?:thread|session|conversation|chat|word) title")
_TOOL_CALL = (b"tool_call", b"tool_use", b"functionCall", b"function_call")
"""One of these is in every reply that calls a tool, whatever the dialect."""
_WHICH = ("subagent_type", "agent_type", "agent_name", "name")
"""Arguments of a tool call that name the sub-agent."""
_PROMPT = 12
"""A shorter argument of a tool call is not taken for a prompt."""


@dataclass(slots=True, eq=False)
class AgentThread:
    """One conversation of the session."""

    key: str
    id: str
    """Its name in the record. A helper call may have the name of the thread that it helps."""
    kind: Kind
    parent: str | None = None
    name: str = ""
    last: int = -1
    """Index of its last call."""
    conversation: Conversation | None = None
    """As its last call sent it; dropped when it has been silent for long."""
    setting: CallSetting | None = None
    tools: frozenset[str] = frozenset()
    system: int = 0
    """Hash of the system text."""
    under_way: set[int] = field(default_factory=set)
    answer: "ThreadAnswer | None" = None
    """To its last call, if it may call tools; None while that is under way, or when there was none."""
    compacted: int | None = None
    """The call that asked for a summary of it, if its next one may begin anew."""


def may_call_tools(response: bytes) -> bool:
    """Whether there may be a tool call in this reply."""
    # Two searches, which most replies need only: four of the whole words take twice as long.
    return (b"tool_" in response or b"unction" in response) and any(mark in response for mark in _TOOL_CALL)


@dataclass(frozen=True)
class ThreadAnswer:
    """A reply of a model. It is read only when it is needed to find out who makes a later call."""

    dialect: str
    response: bytes
    streamed: bool

    @cached_property
    def tool_calls(self) -> list[ToolCall]:
        """The tools that it calls; none when it cannot be read."""
        dialect = DIALECTS[self.dialect]
        try:
            if not self.streamed:
                reply = dialect.read_reply(self.response)
            else:
                framer, reader = EventFramer(), dialect.EventReader()
                events = [event for one in framer.feed(self.response) for event in reader.read(one)]
                reply = assemble([*events, *reader.end()])
        except (ValueError, RecursionError):
            return []
        return [part for part in reply.parts if isinstance(part, ToolCall)]


ASKS = 64 << 10
"""Characters at each end of a message that are searched."""


@dataclass(slots=True, eq=False)
class _Call:
    """The part of a request that was read."""

    index: int
    conversation: Conversation
    messages: list[Any]
    """Those that were read: all, or the last ones."""
    setting: CallSetting

    @property
    def asks(self) -> str:
        """The words at its end."""
        words = message_text(self.messages[-1]) if self.messages else ""
        return words if len(words) <= 2 * ASKS else f"{words[:ASKS]}\n{words[-ASKS:]}"


LONGEST = 8 << 20
"""A larger request is not read: only its headers say who makes it, and without them it is the main thread."""
REMEMBERED = 8 << 20
"""Bytes of conversations that a session keeps. Older ones are recognised by their hashes."""


class Threads:
    """The conversations of one session."""

    def __init__(self, remembered: MemoryBudget | None = None) -> None:
        self._remembered = remembered or MemoryBudget(REMEMBERED)
        self._held = 0
        self._threads: OrderedDict[str, AgentThread] = OrderedDict()
        """The one with the latest call is last."""
        self._ends: OrderedDict[bytes, list[tuple[AgentThread, int]]] = OrderedDict()
        """The threads by the hash of their conversation at the end of each call."""
        self._thread_of_call: dict[int, AgentThread] = {}
        self._open: dict[str, AgentThread] = {}
        """Threads with a call under way or an answer that may call tools, the latest last."""
        self._last_setting: CallSetting | None = None
        self._any_tools = self._any_compaction = False

    def place(self, index: int, dialect: str, path: str, headers: Headers, body: bytes) -> Speaker:
        """Who makes the call with this index. It is under way until `end` is called."""
        known = read_headers(headers)
        if path.partition("?")[0].endswith("/compact"):
            known = replace(known, evidence=f"POST {path}", kind=Kind.UTILITY, name=COMPACTION)
        found = self._find(index, dialect, body, known)
        if found is None:
            evidence = known.evidence or "the request has no conversation that can be read"
            return Speaker(known.kind or Kind.MAIN, known.thread or self._main_id(), known.parent, evidence, known.name)
        call, before, how = found
        self._any_tools = self._any_tools or bool(call.setting.tools)
        if known.thread is not None:
            thread, evidence = self._place_named(call, before, known)
        elif known.kind is Kind.UTILITY:
            helped = before or self._last_working()
            thread, evidence = self._helper(call, None, helped, known.name), _join(known.evidence, how)
        elif before is not None:
            thread, evidence = self._continue(call, before, how, known)
        else:
            thread, evidence = self._begin(call, known)
        self._add_call(thread, call)
        return Speaker(thread.kind, thread.id, thread.parent, evidence, thread.name)

    def forget(self) -> None:
        """Drop the conversations, and keep only their hashes."""
        for thread in self._threads.values():
            thread.conversation = thread.setting = None
        self._last_setting = None
        self._remembered.fits(-self._held)
        self._held = 0

    def end(self, index: int, answer: ThreadAnswer | None) -> None:
        """A call has ended. `answer` is its reply, if it went well and may call tools."""
        thread = self._thread_of_call.pop(index, None)
        if thread is None:
            return
        thread.under_way.discard(index)
        if thread.last == index and thread.kind is not Kind.UTILITY:
            thread.answer = answer
        if not thread.under_way and thread.answer is None:
            self._open.pop(thread.key, None)

    def _find(
        self, index: int, dialect: str, body: bytes, known: HeaderClaims
    ) -> "tuple[_Call, AgentThread | None, str] | None":
        """The call, the thread that it continues, and the evidence for that."""
        grown = self._by_bytes(index, body, known) if len(body) <= LONGEST else []
        if grown:
            longest = max(_length(thread) for thread, _ in grown)
            alike = {thread: call for thread, call in grown if _length(thread) == longest}
            thread, how = self._choose([(thread, thread.last) for thread in alike], body)
            return alike[thread], thread, how
        if len(body) > LONGEST:
            return None
        try:
            conversation, messages = read_conversation(body, dialect)
        except ValueError:
            return None
        call = _Call(index, conversation, messages, self._read_setting(conversation))
        for link in reversed(conversation.links):
            ends = [(thread, at) for thread, at in self._ends.get(link, ()) if _may_continue(thread, call)]
            if ends:
                return call, *self._choose(ends, body)
        return call, None, ""

    def _by_bytes(self, index: int, body: bytes, known: HeaderClaims) -> list[tuple[AgentThread, _Call]]:
        """The threads that a request continues, as its bytes show."""
        named = self._threads.get(known.thread or "")
        found = []
        for thread in islice(reversed(self._threads.values()), WATCHED) if not known.thread else filter(None, [named]):
            grown = thread.conversation.grow(body) if thread.conversation else None
            if grown is not None:
                conversation, messages = grown
                call = _Call(index, conversation, messages, self._read_setting(conversation, thread))
                if _may_continue(thread, call):
                    found.append((thread, call))
        return found

    def _read_setting(self, conversation: Conversation, thread: AgentThread | None = None) -> CallSetting:
        """The setting of a call. One that was read before is used again if it is the same."""
        frame = conversation.frame
        for known in (thread.setting if thread else None, self._last_setting):
            if known is not None and known.frame == frame:
                return known
        return read_setting(frame)

    def _choose(self, ends: list[tuple[AgentThread, int]], body: bytes) -> tuple[AgentThread, str]:
        """Which of several equal threads a call continues: the one whose answer the call contains."""
        last = dict(ends)  # a thread that repeated itself is known by its last call
        if len(last) > 1:
            answered = [thread for thread in last if _holds(body, thread.answer)]
            if len(answered) == 1:
                return answered[0], f"continues call {last[answered[0]]}, whose answer it holds"
            longest_silent = min(last, key=lambda thread: (bool(thread.under_way), last[thread]))
            calls = " or ".join(map(str, sorted(last.values())))
            return longest_silent, f"continues call {calls}; which of them cannot be told"
        ((thread, at),) = last.items()
        return thread, f"continues call {at}"

    def _place_named(self, call: _Call, before: AgentThread | None, known: HeaderClaims) -> tuple[AgentThread, str]:
        """The thread that the headers name."""
        assert known.thread is not None
        thread, evidence = self._threads.get(known.thread), known.evidence
        if known.kind is Kind.UTILITY:
            return self._helper(call, known.thread, thread, known.name), evidence
        if known.kind is None and (purpose := self._purpose(call, thread, known)) is not None:
            return self._helper(call, known.thread, thread, purpose[0]), f"{evidence}, and {purpose[1]}"
        if thread is not None:
            broken = before is None and thread.compacted is not None
            return thread, evidence + (f", after the compaction in call {thread.compacted}" if broken else "")
        parent, name, why = self._find_parent(call)
        if known.kind is Kind.SUB:
            return AgentThread(known.thread, known.thread, Kind.SUB, known.parent, known.name or name), evidence
        if known.marks_subs or parent is None:
            return AgentThread(known.thread, known.thread, Kind.MAIN), evidence
        return AgentThread(known.thread, known.thread, Kind.SUB, parent.id, name), f"{evidence}, and {why}"

    def _continue(self, call: _Call, before: AgentThread, how: str, known: HeaderClaims) -> tuple[AgentThread, str]:
        """A call that continues a thread, or branches off from it."""
        evidence = _join(known.evidence, how)
        purpose = None if known.kind or before.kind is Kind.UTILITY else self._purpose(call, before, known)
        if purpose is not None:
            return self._helper(call, None, before, purpose[0]), _join(evidence, purpose[1])
        if before.under_way:
            running = min(before.under_way)
            return self._branch(call, before, known), f"{evidence}, beside call {running}, which is under way"
        if known.kind not in {None, before.kind}:
            return self._branch(call, before, known), evidence
        if before.tools - call.setting.tools and before.system != hash(call.setting.system):
            return self._branch(call, before, known), f"{evidence}, with another system text and other tools"
        if before.conversation is not None and before.conversation.links[-1] not in call.conversation.links:
            evidence += f", and leaves out what came after it, up to call {before.last}"
        return before, evidence

    def _branch(self, call: _Call, before: AgentThread, known: HeaderClaims) -> AgentThread:
        """A new thread with the history of another one."""
        kind = known.kind or (Kind.SUB if before.kind is Kind.MAIN else before.kind)
        key = f"{kind}-{call.index}"
        return AgentThread(key, key, kind, before.id if before.kind is Kind.MAIN else before.parent, known.name)

    def _begin(self, call: _Call, known: HeaderClaims) -> tuple[AgentThread, str]:
        """A call that continues no known conversation."""
        from_headers = known.evidence
        if known.kind is None and (purpose := self._purpose(call, None, known)) is not None:
            return self._helper(call, None, self._last_working(), purpose[0]), _join(from_headers, purpose[1])
        parent, name, why = self._find_parent(call)
        key = f"{Kind.SUB}-{call.index}"
        if known.kind is Kind.SUB:
            parent_id = parent.id if parent else self._main_id()
            return AgentThread(key, key, Kind.SUB, parent_id, name or known.name), _join(from_headers, why)
        if not any(thread.kind is Kind.MAIN for thread in self._threads.values()):
            return AgentThread(MAIN, MAIN, Kind.MAIN), _join(from_headers, "first conversation of the session")
        for thread in reversed(self._threads.values()) if self._any_compaction else ():
            if thread.compacted is not None and not thread.under_way and thread.tools == call.setting.tools:
                why = f"same tools as call {thread.last}, after the compaction in call {thread.compacted}"
                return thread, _join(from_headers, why)
        if parent is not None and not known.marks_subs:
            return AgentThread(key, key, Kind.SUB, parent.id, name), _join(from_headers, why)
        key = f"{Kind.MAIN}-{call.index}"
        unlike = f"a new conversation, though it {why}" if why else "a new conversation while no other was open"
        return AgentThread(key, key, Kind.MAIN), _join(from_headers, unlike)

    def _find_parent(self, call: _Call) -> tuple[AgentThread | None, str, str]:
        """The thread that started this conversation, the name of the sub-agent, and the evidence."""
        threads = [one for one in reversed(self._open.values()) if self._threads.get(one.key) is one]
        work = [one for one in threads if (one.answer or one.under_way) and one.kind is not Kind.UTILITY]
        words = "\n".join(message_text(message) for message in call.messages) if work else ""
        waiting: list[tuple[AgentThread, ToolCall]] = []
        for thread in work:
            for tool in thread.answer.tool_calls if thread.answer else []:
                arguments = _arguments(tool)
                if any(isinstance(text, str) and len(text) >= _PROMPT and text in words for text in arguments.values()):
                    why = f"has its prompt from the call of {tool.name} that answered call {thread.last}"
                    return thread, _subagent_name(arguments), why
                waiting.append((thread, tool))
        if waiting:
            thread, tool = min(waiting, key=lambda one: one[0].kind is not Kind.MAIN)
            among = {one.last for one, _ in waiting}
            doubt = f"; calls {', '.join(map(str, sorted(among)))} had such" if len(among) > 1 else ""
            return thread, "", f"began while the call of {tool.name} that answered call {thread.last} was open{doubt}"
        for thread in work:
            if thread.under_way:
                why = f"began beside call {min(thread.under_way)}, which was under way"
                return self._starter_beside(thread), "", why
        return None, "", ""

    def _starter_beside(self, thread: AgentThread) -> AgentThread | None:
        """The thread that starts sub-agents while this one has a call under way. A sub-agent that waits for a reply
        starts nothing, so what begins beside it is its sibling."""
        if thread.kind is not Kind.SUB:
            return thread
        return next((one for one in self._threads.values() if one.id == thread.parent), None)

    def _purpose(self, call: _Call, thread: AgentThread | None, known: HeaderClaims) -> tuple[str, str] | None:
        """The purpose of a helper call, and the evidence; None for a step of the work."""
        asks = call.asks.lower()
        if len(call.conversation.links) > 1 and any(words in asks for words in _COMPACTION):
            return COMPACTION, "its last message asks for a summary of the conversation"
        if call.setting.tools:
            return None
        text = f"{call.setting.system.lower()}\n{asks}"
        if any(words in text for words in _COMPACTION):
            return COMPACTION, "it asks for a summary of the conversation, without tools"
        if "title" in text and _TITLE.search(text):
            return TITLE, "it asks for a title, without tools"
        purpose = SUMMARY if "summar" in text else ""
        if known.gives_tools:
            return purpose, "it has no tools"
        if self._any_tools and (thread is None or thread.tools):
            return purpose, "it has no tools while other calls have"
        if self._threads and thread is None and call.setting.wants_schema:
            return purpose, "it asks for an answer of a given form, without tools"
        return None

    def _helper(self, call: _Call, thread_id: str | None, of: AgentThread | None, purpose: str) -> AgentThread:
        """The thread of a helper call."""
        key = f"{purpose or Kind.UTILITY}-{call.index}"
        if purpose == COMPACTION and of is not None:
            of.compacted, self._any_compaction = call.index, True
        return AgentThread(key, thread_id or key, Kind.UTILITY, of.id if of and not thread_id else None, purpose)

    def _add_call(self, thread: AgentThread, call: _Call) -> None:
        """Note that the thread makes this call."""
        thread.last, thread.answer, thread.compacted = call.index, None, None
        thread.conversation, thread.setting = call.conversation, call.setting
        self._last_setting = call.setting
        thread.tools, thread.system = call.setting.tools, hash(call.setting.system)
        thread.under_way.add(call.index)
        self._thread_of_call[call.index] = thread
        self._ends.setdefault(call.conversation.links[-1], []).append((thread, call.index))
        self._threads[thread.key] = thread
        self._threads.move_to_end(thread.key)
        self._open.pop(thread.key, None)
        self._open[thread.key] = thread
        self._trim()

    def _trim(self) -> None:
        held = 0
        for thread in islice(reversed(self._threads.values()), WATCHED):
            size = thread.conversation.size if thread.conversation else 0
            if held + size > REMEMBERED:
                thread.conversation = thread.setting = None
            else:
                held += size
        if self._remembered.fits(held - self._held):
            self._held = held
        else:
            self.forget()
        for silent in islice(reversed(self._threads.values()), WATCHED, WATCHED + 1):
            silent.conversation = silent.setting = None
        if len(self._ends) > KEPT_CALLS:
            self._ends.popitem(last=False)
        if len(self._threads) > KEPT_THREADS:
            # The main thread can be silent for long while many sub-agents work for it.
            oldest, next_oldest = islice(self._threads, 2)
            del self._threads[next_oldest if self._threads[oldest].kind is Kind.MAIN else oldest]

    def _last_working(self) -> AgentThread | None:
        return next((thread for thread in reversed(self._threads.values()) if thread.kind is not Kind.UTILITY), None)

    def _main_id(self) -> str:
        return next((thread.id for thread in self._threads.values() if thread.kind is Kind.MAIN), MAIN)


def _length(thread: AgentThread) -> int:
    return len(thread.conversation.links) if thread.conversation else 0


def _may_continue(thread: AgentThread, call: _Call) -> bool:
    """Whether a call may belong to a thread. A step of the work may begin like a helper call."""
    return thread.kind is not Kind.UTILITY or thread.tools == call.setting.tools


def _join(from_headers: str, why: str) -> str:
    return ", and ".join(filter(None, (from_headers, why)))


def _holds(body: bytes, answer: ThreadAnswer | None) -> bool:
    return answer is not None and any(tool.id and tool.id.encode() in body for tool in answer.tool_calls)


def _arguments(tool: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(tool.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _subagent_name(arguments: dict[str, Any]) -> str:
    named = (arguments.get(key) for key in _WHICH)
    return next((name[:64] for name in named if isinstance(name, str) and name), "")
