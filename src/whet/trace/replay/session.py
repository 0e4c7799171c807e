"""Replays a recorded rollout: which recorded reply answers a call, and where the conversation has changed.

Calls are matched thread by thread, in the order of each thread, and compared by their messages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.gateway.calls.count_tokens import TOKEN_COUNT
from whet.gateway.replay.recording import RecordedReply
from whet.gateway.upstream.pool import RETRIED
from whet.trace.conversations.slices import read_whole
from whet.trace.conversations.tree import Messages, RequestNodes
from whet.trace.replay.equivalence import comparable_texts, compare_messages
from whet.trace.replay.replies import prepare_reply

DIVERGED = RecordedReply(None)


def main_calls(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """The answered calls of the main thread, in order of arrival. People count them from 1, as `steps` does."""
    main = (one for one in exchanges if _kind(one) is Kind.MAIN and one.error is None and one.status == 200)
    return sorted(main, key=lambda one: one.index)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a replay is not what was recorded."""

    call: int
    """Which call of its thread it was, from 1."""
    who: str
    what: str

    def __str__(self) -> str:
        whose = "" if self.who == Kind.MAIN else f" of {self.who}"
        return f"call {self.call}{whose}: {self.what}"


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a recorded rollout, up to a call of its main thread that is to be answered otherwise."""

    exchanges: tuple[Exchange, ...] = field(repr=False)
    """All calls of the rollout, also those that are not replayed."""
    at: int
    """The first call of the main thread that is not replayed, from 1; one more than there are when all are."""
    skill_lines: frozenset[str] = frozenset()
    """The lines of the skills of then and now, where they differ: that is intended."""
    live_if_diverged: bool = False
    """Whether the model is asked from there on where the conversation is not what was recorded."""

    @property
    def calls_to_replay(self) -> list[Exchange]:
        """The calls that are answered as they were: all that were made before."""
        main = main_calls(self.exchanges)
        end = main[self.at - 1].index if self.at <= len(main) else None
        return [one for one in self.exchanges if _stands(one) and (end is None or one.index < end)]


@dataclass(slots=True, eq=False)
class _Thread:
    """One recorded conversation that does work, and how far it has been gone through."""

    kind: Kind
    first: Exchange
    calls: list[Exchange]
    """Those that are replayed."""
    goes_on: bool
    """It made more calls than these."""
    done: int = 0
    then: RequestNodes | None = None
    now: RequestNodes | None = None
    """As its last call was made, then and now."""
    opening: tuple[int, int] = (0, 0)
    """How many messages came before the first reply, then and now."""


class ReplaySession:
    """The replay of a recorded rollout in one session; for the gateway, its `Recording`."""

    def __init__(self, prefix: Prefix) -> None:
        self.model_name = read_whole(main_calls(prefix.exchanges)[0]).model
        self.given = 0
        """How many calls of the main thread were answered as they were."""
        self.live_from: int | None = None
        """The first call of the main thread for which the model was asked; None when it never was."""
        self.diverged: Divergence | None = None
        self.unknown = 0
        """Helper calls before that which are not on record. The model was asked for them."""
        self._prefix = prefix
        self._threads = _threads(prefix)
        self._helpers = [one for one in prefix.calls_to_replay if _kind(one) is Kind.UTILITY]
        self._claimed: dict[tuple[Kind, str], _Thread | None] = {}
        self._then, self._now = Messages(), Messages()
        self._ids: dict[str, str] = {}
        """What programs made up then, and what they made up now in its place."""

    def answer(self, speaker: Speaker, dialect: str, path: str, body: bytes) -> RecordedReply | None:
        """The reply to a call; None when the gateway must call the model."""
        call = _new_call(speaker, dialect, path, body)
        recorded = self._find_recorded(speaker, call) if self.diverged is None else None
        if self.diverged is not None and not self._prefix.live_if_diverged:
            return DIVERGED
        if recorded is None or self.diverged is not None:
            if speaker.kind is Kind.MAIN and self.live_from is None:
                self.live_from = self.given + 1
            return None
        self.given += speaker.kind is Kind.MAIN and recorded.error is None
        return prepare_reply(recorded, call, self._ids)

    def fell_short(self) -> str | None:
        """Why the point was not reached from which on it was to go on otherwise; None when it was."""
        if self.diverged is not None:
            return None if self._prefix.live_if_diverged else str(self.diverged)
        if self.given < self._prefix.at - 1:
            return f"the agent ended after call {self.given}; the recorded agent continued"
        return None

    def _find_recorded(self, speaker: Speaker, call: Exchange) -> Exchange | None:
        """The recorded call that this one is; None when there is none."""
        if speaker.kind is Kind.UTILITY:
            helped = _likest(call, [one for one in self._helpers if one.speaker and one.speaker.name == speaker.name])
            if helped is not None:
                self._helpers.remove(helped)
            self.unknown += helped is None and self.live_from is None
            return helped
        thread = self._thread_of(speaker, call)
        if thread is None or thread.done == len(thread.calls):
            self._notice_more(speaker, thread)
            return None
        recorded = thread.calls[thread.done]
        thread.done += 1
        self._compare(speaker, thread, recorded, call)
        return recorded

    def _thread_of(self, speaker: Speaker, call: Exchange) -> _Thread | None:
        """The recorded thread that a speaker's is; None when there is none."""
        key = (speaker.kind, speaker.thread)
        if key not in self._claimed:
            taken = list(self._claimed.values())
            free = {one.first.index: one for one in self._threads if one.kind is speaker.kind and one not in taken}
            firsts = [one.first for one in free.values()]
            found = _likest(call, firsts) if speaker.kind is Kind.SUB else next(iter(firsts), None)
            self._claimed[key] = free[found.index] if found else None
        return self._claimed[key]

    def _notice_more(self, speaker: Speaker, thread: _Thread | None) -> None:
        """A call is not among those that are replayed. That is right for whoever is past the record."""
        past = speaker.kind is Kind.MAIN if thread is not None else False
        if past or self.live_from is not None or (thread is not None and thread.goes_on):
            return
        self._diverge(speaker, thread, "a call that is not on record" if thread else "a conversation not on record")

    def _compare(self, speaker: Speaker, thread: _Thread, recorded: Exchange, call: Exchange) -> None:
        """Look for a difference in what was said since the last call of the thread."""
        try:
            then, now = self._then.request(recorded), self._now.request(call)
        except ValueError as error:
            self._diverge(speaker, thread, f"a request that cannot be read: {error}")
            return
        if thread.then is None or thread.now is None:
            # The task is the same, and so is the agent. What else is here is its surroundings, and the skill.
            thread.opening = (self._then.length(then.prompt), self._now.length(now.prompt))
        else:
            opened_then, opened_now = thread.opening
            known_then = self._then.length(self._then.find_shared(thread.then.prompt, then.prompt)) - opened_then
            known_now = self._now.length(self._now.find_shared(thread.now.prompt, now.prompt)) - opened_now
            known = max(0, min(known_then, known_now))
            difference = compare_messages(
                self._then.behind(then.prompt, opened_then + known),
                self._now.behind(now.prompt, opened_now + known),
                self._ids,
                self._prefix.skill_lines,
            )
            if difference is not None:
                self._diverge(speaker, thread, str(difference))
        thread.then, thread.now = then, now

    def _diverge(self, speaker: Speaker, thread: _Thread | None, what: str) -> None:
        number = self.given + 1 if speaker.kind is Kind.MAIN else max(1, thread.done if thread else 1)
        self.diverged = Divergence(number, speaker.label, what)


def _threads(prefix: Prefix) -> list[_Thread]:
    """The recorded threads that do the work, in order of their first call."""
    replayed = {one.index for one in prefix.calls_to_replay}
    calls: dict[tuple[Kind, str], list[Exchange]] = {}
    for one in sorted(prefix.exchanges, key=lambda one: one.index):
        if _stands(one) and _kind(one) is not Kind.UTILITY:
            calls.setdefault((_kind(one), one.speaker.thread if one.speaker else ""), []).append(one)
    found = []
    for (kind, _), made in calls.items():
        before = [one for one in made if one.index in replayed]
        found.append(_Thread(kind, made[0], before, goes_on=len(before) < len(made)))
    return found


def _stands(exchange: Exchange) -> bool:
    """Whether a call has an answer that it would be given again: a reply, or a refusal that is no passing failure."""
    if exchange.speaker is not None and exchange.speaker.name == TOKEN_COUNT:
        return False
    refused = exchange.error is CallError.STATUS and exchange.status not in RETRIED
    return exchange.status is not None and (exchange.error is None or refused)


def _likest(call: Exchange, others: Sequence[Exchange]) -> Exchange | None:
    """The one of several calls that says most of what this one says; None when none says any of it."""
    own = _texts_of(call)
    shares = [len(own & _texts_of(one)) for one in others]
    most = max(shares, default=0)
    return others[shares.index(most)] if most else None


def _texts_of(call: Exchange) -> set[str]:
    try:
        return set(comparable_texts(read_whole(call).messages))
    except ValueError:
        return set()


def _kind(exchange: Exchange) -> Kind:
    return exchange.speaker.kind if exchange.speaker else Kind.MAIN


def _new_call(speaker: Speaker, dialect: str, path: str, body: bytes) -> Exchange:
    """A call as far as it is known before it is answered."""
    return Exchange(
        session="",
        index=0,
        dialect=dialect,
        path=path,
        request_headers=(),
        request=body,
        upstream="",
        status=None,
        response_headers=(),
        response=b"",
        attempts=0,
        error=None,
        started=0.0,
        first_byte=None,
        ended=0.0,
        usage=None,
        speaker=speaker,
    )
