"""Aligns the steps of two traces: which of them are alike, and where the two part."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from whet.trace.steps.steps import StepKind
from whet.view.derive.trace_data import OutlineLine

MOST_PAIRS = 20_000
"""Pairs of equal steps that are compared with each other. Longer stretches are cut at steps that occur once in each."""
_SPACE = re.compile(r"\s+")
_NAMES = re.compile(r"\b(?:[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{12,}|tmp[\w.]{6,}|call_\w+)\b", re.IGNORECASE)
"""Names that programs make up: they differ between two attempts that do the same."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps of both traces at one place. Those that are alike are as many on both sides."""

    a: tuple[OutlineLine, ...]
    b: tuple[OutlineLine, ...]
    alike: bool


Unit = tuple[OutlineLine, ...]
"""A step together with the results of the tools that it calls."""


def align(a: Sequence[OutlineLine], b: Sequence[OutlineLine]) -> list[Stretch]:
    """Every step of both traces, each once and in order, in stretches that are alike and stretches that are not."""
    units_a, units_b = _group(a), _group(b)
    found: list[Stretch] = []
    at_a = at_b = 0
    blocks = match_blocks([_key(unit) for unit in units_a], [_key(unit) for unit in units_b])
    for start_a, start_b, size in [*blocks, (len(units_a), len(units_b), 0)]:
        if start_a > at_a or start_b > at_b:
            found.append(Stretch(_join(units_a[at_a:start_a]), _join(units_b[at_b:start_b]), alike=False))
        if size:
            alike = (_join(units_a[start_a : start_a + size]), _join(units_b[start_b : start_b + size]))
            found.append(Stretch(*alike, alike=True))
        at_a, at_b = start_a + size, start_b + size
    return found


def match_blocks(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int, int]]:
    """Where two sequences are equal: place in the first, place in the second, and length, in order.

    >>> match_blocks("abcd", "axcd")
    [(0, 0, 1), (2, 2, 2)]
    """
    found: list[tuple[int, int, int]] = []
    waiting = [(0, len(a), 0, len(b))]
    while waiting:
        low_a, high_a, low_b, high_b = waiting.pop()
        head = _count_equal(zip(a[low_a:high_a], b[low_b:high_b], strict=False))
        found.append((low_a, low_b, head))
        low_a, low_b = low_a + head, low_b + head
        tail = _count_equal(zip(reversed(a[low_a:high_a]), reversed(b[low_b:high_b]), strict=False))
        high_a, high_b = high_a - tail, high_b - tail
        found.append((high_a, high_b, tail))
        part_a, part_b = a[low_a:high_a], b[low_b:high_b]
        if _count_pairs(part_a, part_b) <= MOST_PAIRS:
            matcher = SequenceMatcher(None, part_a, part_b, autojunk=False)
            found += [(low_a + one.a, low_b + one.b, one.size) for one in matcher.get_matching_blocks()]
        else:
            edges = [(low_a - 1, low_b - 1), *_find_anchors(part_a, part_b, low_a, low_b), (high_a, high_b)]
            if len(edges) > 2:
                found += [(*edge, 1) for edge in edges[1:-1]]
                waiting += [(one[0] + 1, other[0], one[1] + 1, other[1]) for one, other in pairwise(edges)]
    return _merge(sorted(one for one in found if one[2]))


def normalise(text: str) -> str:
    """What a tool is called with, without what differs between two attempts that do the same.

    >>> normalise("cat   /tmp/tmpab12cd34/x.py")
    'cat /tmp/#/x.py'
    """
    return _NAMES.sub("#", _SPACE.sub(" ", text).strip())


def _group(lines: Sequence[OutlineLine]) -> list[Unit]:
    units: list[list[OutlineLine]] = []
    for line in lines:
        if units and line.kind is StepKind.RESULT:
            units[-1].append(line)
        else:
            units.append([line])
    return list(map(tuple, units))


def _key(unit: Unit) -> Hashable:
    first, *results = unit
    return first.kind, first.name, normalise(first.head), tuple((line.name, line.error) for line in results)


def _join(units: Sequence[Unit]) -> tuple[OutlineLine, ...]:
    return tuple(line for unit in units for line in unit)


def _count_equal(pairs: "zip[tuple[Hashable, Hashable]]") -> int:
    count = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count


def _count_pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    other = Counter(b)
    return sum(count * other[key] for key, count in Counter(a).items())


def _find_anchors(a: Sequence[Hashable], b: Sequence[Hashable], low_a: int, low_b: int) -> list[tuple[int, int]]:
    """Places of what occurs once in both, as many as have the same order in both."""
    times_a, times_b = Counter(a), Counter(b)
    places = {key: place for place, key in enumerate(b) if times_b[key] == 1}
    pairs = [(place, places[key]) for place, key in enumerate(a) if times_a[key] == 1 and key in places]
    return [(low_a + one, low_b + other) for one, other in _longest_rising(pairs)]


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most pairs whose second numbers rise as the first ones do.

    >>> _longest_rising([(0, 5), (1, 1), (2, 2), (3, 4)])
    [(1, 1), (2, 2), (3, 4)]
    """
    ends: list[int] = []
    last: list[int] = []
    before: list[int | None] = []
    for place, (_, value) in enumerate(pairs):
        at = bisect_left(ends, value)
        before.append(last[at - 1] if at else None)
        ends[at : at + 1], last[at : at + 1] = [value], [place]
    found: list[tuple[int, int]] = []
    step = last[-1] if last else None
    while step is not None:
        found.append(pairs[step])
        step = before[step]
    return found[::-1]


def _merge(blocks: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Blocks that follow on each other, as one."""
    merged: list[tuple[int, int, int]] = []
    for start_a, start_b, size in blocks:
        if merged and (merged[-1][0] + merged[-1][2], merged[-1][1] + merged[-1][2]) == (start_a, start_b):
            merged[-1] = (*merged[-1][:2], merged[-1][2] + size)
        else:
            merged.append((start_a, start_b, size))
    return merged


def split_long(stretches: Sequence[Stretch], most: int) -> Iterator[Stretch]:
    """The same stretches, of which those that are not alike have at most this many steps on a side."""
    for stretch in stretches:
        if stretch.alike:
            yield stretch
            continue
        for at in range(0, max(len(stretch.a), len(stretch.b)), most):
            yield Stretch(stretch.a[at : at + most], stretch.b[at : at + most], alike=False)
