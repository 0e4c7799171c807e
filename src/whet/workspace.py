"""What a working directory held at two moments, and what changed between them, as people read it: with diffs."""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from pydantic import BaseModel, ConfigDict

DIFF_LIMIT = 20_000
"""Characters of one diff."""
DIFFS_LIMIT = 200_000
"""Characters of all diffs together."""
WHOLE_DIFF = 1_000_000
"""Characters of one diff that is whole."""
WHOLE_DIFFS = 40_000_000
CHANGES_LIMIT = 20_000
"""Changes that are kept on record."""
STEPS_LIMIT = 500_000
"""Steps that the making of one diff may take, which is less than a second."""
ALL_STEPS_LIMIT = 4 * STEPS_LIMIT
CONTEXT = 3
CUT = "[the rest of this diff is left out]\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a link, or whatever else has a name and is no folder."""

    size: int
    modified: int
    """Nanoseconds since 1970."""
    content: str | None
    """Digest of what it holds; None when too much had been read before it."""
    text: str | None = None
    """What it holds, when that is text and short."""
    raw: str | None = None
    """What it holds, when that is short and no text, as far as it can be read as such."""

    def same_as(self, other: "Entry") -> bool:
        if self.content is None or other.content is None:
            return (self.size, self.modified) == (other.size, other.modified)
        return self.content == other.content


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a folder held. Names are as `os.fsdecode` gives them, with `/` between."""

    entries: Mapping[str, Entry]
    seen_to: str | None = None
    """The last name that was looked at, in the order of `walk_order`, when there were too many; None when none was."""
    unseen: str | None = None
    """Why it does not hold everything, if so."""

    def knows(self, path: str) -> bool:
        """Whether it can tell if there was something of this name."""
        return self.seen_to is None or walk_order(path) <= walk_order(self.seen_to)


class Change(BaseModel):
    """One file that is not as it was. A file that was renamed is one removed and one added."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Relative to the working directory; bytes of it that are no text are shown as `\\xff`."""
    kind: Literal["added", "changed", "removed"]
    diff: str | None = None
    """A unified diff, cut when it is long; None for what is no text or too much of it."""


def walk_order(path: str) -> tuple[int, list[str]]:
    """The order in which a folder is looked at: what lies higher first, for it matters more."""
    parts = path.split("/")
    return len(parts), parts


def changes(before: Snapshot, after: Snapshot, *, whole: bool = False) -> tuple[Change, ...]:
    """What was added, changed and removed, of all that both snapshots can tell.

    It is for people, unless it is `whole`: then it has diffs of binary files too, and cuts long ones much later.

    >>> then = Snapshot({"a": Entry(2, 0, "1", "x\\n")})
    >>> now = Snapshot({"a": Entry(2, 1, "2", "y\\n"), "b": Entry(9, 1, "3")})
    >>> [(change.path, change.kind) for change in changes(then, now)]
    [('a', 'changed'), ('b', 'added')]
    """
    return tuple(_changes(before, after, _Differ(whole=whole)))


def _changes(before: Snapshot, after: Snapshot, differ: "_Differ") -> Iterator[Change]:
    for path in sorted(before.entries.keys() | after.entries.keys(), key=walk_order):
        old, new = before.entries.get(path), after.entries.get(path)
        shown = os.fsencode(path).decode(errors="backslashreplace")
        if old is None and before.knows(path):
            yield Change(path=shown, kind="added", diff=differ.diff(shown, None, new))
        elif new is None and after.knows(path):
            yield Change(path=shown, kind="removed", diff=differ.diff(shown, old, None))
        elif old is not None and new is not None and not old.same_as(new):
            yield Change(path=shown, kind="changed", diff=differ.diff(shown, old, new))


class _Differ:
    """Makes diffs until it has written, or would have to work, too much."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._limit, self._room = (WHOLE_DIFF, WHOLE_DIFFS) if whole else (DIFF_LIMIT, DIFFS_LIMIT)
        self._steps = ALL_STEPS_LIMIT

    def diff(self, path: str, old: Entry | None, new: Entry | None) -> str | None:
        texts = [self._text(entry) if entry else "" for entry in (old, new)]
        if None in texts or self._room < len(CUT):
            return None
        was, now = (_lines(text or "") for text in texts)
        skipped, was, now = _where_they_differ(was, now)
        if not self._affords(was, now):
            return None
        names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
        diff = _cut(_unified(was, now, names, skipped), min(self._limit, self._room))
        self._room -= len(diff)
        return diff

    def _text(self, entry: Entry) -> str | None:
        return entry.raw if entry.text is None and self._whole else entry.text

    def _affords(self, was: list[str], now: list[str]) -> bool:
        # Compared for the count alone, and once more for the diff: difflib's own takes no matcher of ours.
        matcher = _Matcher(was, now, min(STEPS_LIMIT, self._steps))
        try:
            matcher.get_matching_blocks()
        except _TooMuch:
            return False
        finally:
            self._steps -= matcher.steps
        return True


class _TooMuch(Exception):  # noqa: N818 - no error
    """A comparison has taken more steps than it may."""


class _Matcher(difflib.SequenceMatcher[str]):
    """Counts the steps of a comparison, and ends it: by the worst of texts it would take their length cubed."""

    def __init__(self, was: list[str], now: list[str], limit: int) -> None:
        super().__init__(None, was, now)
        times: Mapping[str, list[int]] = self.b2j  # type: ignore[attr-defined]  # public, though the stubs lack it
        self._steps_to = list(accumulate((1 + len(times.get(line, ())) for line in was), initial=0))
        self._limit = limit
        self.steps = 0

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        self.steps += self._steps_to[-1 if ahi is None else ahi] - self._steps_to[alo]
        if self.steps > self._limit:
            raise _TooMuch
        return super().find_longest_match(alo, ahi, blo, bhi)


def _lines(text: str) -> list[str]:
    # Not splitlines, which knows a dozen ends of a line that no diff does.
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _where_they_differ(was: list[str], now: list[str]) -> tuple[int, list[str], list[str]]:
    """Both without what they share at the beginning and the end, but for the context; how many lines were skipped."""
    shorter = min(len(was), len(now))
    head = next((n for n in range(shorter) if was[n] != now[n]), shorter)
    tail = next((n for n in range(shorter - head) if was[-1 - n] != now[-1 - n]), shorter - head)
    head, tail = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    return head, was[head : len(was) - tail], now[head : len(now) - tail]


def _unified(was: list[str], now: list[str], names: tuple[str, str], skipped: int) -> Iterator[str]:
    for line in difflib.unified_diff(was, now, *names, n=CONTEXT):
        if line.startswith("@@"):
            yield re.sub(r"(?<=[-+])\d+", lambda number: str(int(number[0]) + skipped), line)
        elif line.endswith("\n"):
            yield line
        else:
            yield f"{line}\n\\ No newline at end of file\n"


def _cut(lines: Iterator[str], limit: int) -> str:
    kept: list[str] = []
    length = 0
    for line in lines:
        length += len(line)
        if length > limit - len(CUT):
            kept.append(CUT)
            break
        kept.append(line)
    return "".join(kept)
