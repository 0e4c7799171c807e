"""The strict token-prefix merge: which call continues which, decided by the ids alone, whatever order they came in."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from whet.trace.training.calls import CallKind, TokenCall

_RANK = MappingProxyType({CallKind.ROOT: 0, CallKind.SUBAGENT: 1})
"""Rows of the main thread come first, then those of sub-agents, then all others."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Calls with their parents: a parent's prompt and reply together begin the prompt of its child."""

    calls: Mapping[int, TokenCall]
    """Those that count, by id."""
    parents: Mapping[int, int | None]
    discarded: Mapping[int, str]
    """Calls that count for nothing, and why."""
    ambiguous: frozenset[int]
    """Equal calls of which none was continued: it is unknown which one the agent used."""

    def paths(self) -> list[list[TokenCall]]:
        """Each way from a root to a leaf, in the order of export."""
        inner = set(self.parents.values())
        found = [self._path(leaf) for leaf in self.calls if leaf not in inner]
        return sorted(found, key=_export_order)

    def _path(self, leaf: int) -> list[TokenCall]:
        found = []
        at: int | None = leaf
        while at is not None:
            found.append(self.calls[at])
            at = self.parents[at]
        return found[::-1]


def _export_order(path: Sequence[TokenCall]) -> tuple[Any, ...]:
    # Between ways that share a beginning, the one that goes on with the work comes before that of a helper call.
    worked = [call for call in path if call.refused is None] or path
    return _RANK.get(worked[-1].kind, 2), path[0].order, _RANK.get(path[-1].kind, 2), path[-1].order


def merge(calls: Iterable[TokenCall]) -> Forest:
    """Find the parent of each call; set aside repeated calls."""
    ordered = sorted(calls, key=lambda call: call.order)
    discarded = _duplicates(ordered)
    distinct = [call for call in ordered if call.id not in discarded]
    parents = _parents(distinct)
    abandoned, ambiguous = _siblings(distinct, parents)
    discarded |= abandoned
    kept = {call.id: call for call in distinct if call.id not in discarded}
    return Forest(kept, {id_: parents[id_] for id_ in kept}, discarded, ambiguous)


def _duplicates(ordered: Sequence[TokenCall]) -> dict[int, str]:
    """Of calls with the same prompt and the same reply, all but the last that reached the agent."""
    alike: dict[tuple[CallKind, bytes, bytes], list[TokenCall]] = defaultdict(list)
    for call in ordered:
        alike[call.kind, call.prompt.tobytes(), call.sampled.tobytes()].append(call)
    found: dict[int, str] = {}
    for group in alike.values():
        kept = max(group, key=lambda call: (call.refused is None, call.order))
        found |= {call.id: f"the same as call {kept.id}" for call in group if call is not kept}
    return found


def _parents(calls: Sequence[TokenCall]) -> dict[int, int | None]:
    """The parent of each call: the longest prompt and reply that its prompt begins with.

    In sorted order whatever begins a sequence comes before it, with nothing else between that does not begin with the
    same. So the sequences that begin the present one are a stack, and each byte is compared a few times only.
    """
    events = [(call.prompt.tobytes() + call.sampled.tobytes(), 0, call) for call in calls]
    events += [(call.prompt.tobytes(), 1, call) for call in calls]
    events.sort(key=lambda event: (event[0], event[1]))
    parents: dict[int, int | None] = {}
    open_: list[tuple[bytes, list[TokenCall]]] = []
    for ids, is_prompt, call in events:
        while open_ and not ids.startswith(open_[-1][0]):
            open_.pop()
        if is_prompt:
            parents[call.id] = _parent(call, open_)
        elif open_ and open_[-1][0] == ids:
            open_[-1][1].append(call)
        else:
            open_.append((ids, [call]))
    return parents


def _parent(call: TokenCall, open_: Sequence[tuple[bytes, list[TokenCall]]]) -> int | None:
    for _, alike in reversed(open_):
        able = [one for one in alike if len(one.prompt) < len(call.prompt)]
        if able:
            return min(able, key=lambda one: (one.thread != call.thread, one.order)).id
    return None


def _siblings(calls: Sequence[TokenCall], parents: Mapping[int, int | None]) -> tuple[dict[int, str], frozenset[int]]:
    """Repeated calls of a thread: those to discard, and those that are ambiguous."""
    continued = {parent for parent in parents.values() if parent is not None}
    last = {call.thread: call.id for call in calls}
    groups: dict[tuple[object, ...], list[TokenCall]] = defaultdict(list)
    for call in calls:
        parent = parents[call.id]
        groups[call.prompt.tobytes() if parent is None else parent, call.thread, call.kind].append(call)
    discarded: dict[int, str] = {}
    ambiguous: set[int] = set()
    for group in groups.values():
        went_on = [call for call in group if call.id in continued or call.sent_back]
        ended = [call for call in group if call.id not in continued and not call.sent_back]
        if went_on:
            prompts = {call.prompt.tobytes() for call in went_on}
            # A thread may go back, ask something else, and end with that.
            kept = {call.id for call in ended if call.id == last[call.thread] and call.prompt.tobytes() not in prompts}
            why = f"the agent went on from call {went_on[0].id} instead"
            discarded |= {call.id: why for call in ended if call.id not in kept}
        else:
            times = Counter(call.prompt.tobytes() for call in ended)
            ambiguous |= {call.id for call in ended if times[call.prompt.tobytes()] > 1}
    return discarded, frozenset(ambiguous)
