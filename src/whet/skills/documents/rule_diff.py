"""How two versions of a document differ, rule by rule: added, changed, moved and removed units."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from whet.skills.documents.document import Document
from whet.skills.documents.units import units

_ALIKE = 0.5
"""Above this similarity, a unit in the place of another one is a changed unit."""


class RuleChange(StrEnum):
    """What became of a unit."""

    ADDED = "added"
    CHANGED = "changed"
    MOVED = "moved"
    REMOVED = "removed"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class RuleDiff:
    """One unit of both versions."""

    change: RuleChange
    old: str
    """Empty when it was added."""
    new: str
    """Empty when it was removed."""


def compare_rules(old: str, new: str) -> list[RuleDiff]:
    """Every unit of both documents, in the order of the new one. The description counts as a unit.

    >>> [(one.change.value, one.new or one.old) for one in compare_rules("- a b\\n- c\\n", "- a B\\n- d\\n")]
    [('changed', '- a B'), ('added', '- d'), ('removed', '- c')]
    """
    before, after = _units(old), _units(new)
    found = list(_compare(before, after))
    moved = Counter(one.old for one in found if one.change is RuleChange.REMOVED)
    moved &= Counter(one.new for one in found if one.change is RuleChange.ADDED)
    return list(_mark_moved(found, moved)) if moved else found


def _units(text: str) -> list[str]:
    span = Document(text).description
    return [*([f"description: {text[span.start : span.end]}"] if span else []), *units(text)]


def _compare(old: Sequence[str], new: Sequence[str]) -> Iterator[RuleDiff]:
    for tag, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (RuleDiff(RuleChange.KEPT, one, one) for one in old[start:end])
        else:
            yield from _compare_place(list(old[start:end]), new[first:last])


def _compare_place(old: list[str], new: Sequence[str]) -> Iterator[RuleDiff]:
    """The units of one place that differs: those that resemble each other were changed."""
    rest = list(old)
    for one in new:
        likeness, likest = max(((_likeness(other, one), other) for other in rest), default=(0.0, ""))
        if likeness <= _ALIKE:
            yield RuleDiff(RuleChange.ADDED, "", one)
            continue
        rest.remove(likest)
        yield RuleDiff(RuleChange.CHANGED, likest, one)
    yield from (RuleDiff(RuleChange.REMOVED, one, "") for one in rest)


def _likeness(old: str, new: str) -> float:
    return SequenceMatcher(None, old.split(), new.split(), autojunk=False).ratio()


def _mark_moved(found: Sequence[RuleDiff], moved: Counter[str]) -> Iterator[RuleDiff]:
    """The same with units that were removed in one place and added in another named once, where they are now."""
    gone, come = Counter(moved), Counter(moved)
    for one in found:
        if one.change is RuleChange.REMOVED and gone[one.old]:
            gone[one.old] -= 1
        elif one.change is RuleChange.ADDED and come[one.new]:
            come[one.new] -= 1
            yield RuleDiff(RuleChange.MOVED, one.new, one.new)
        else:
            yield one
