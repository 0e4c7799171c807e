"""Snapshots of a working directory, and the changes between two of them as diffs that people can read."""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from pydantic import BaseModel, ConfigDict

DIFF_LIMIT = 20_000
"""Maximum characters of one diff."""
DIFFS_LIMIT = 200_000
"""Maximum characters of all diffs together."""
WHOLE_DIFF = 1_000_000
"""Maximum characters of one diff when diffs must be whole."""
WHOLE_DIFFS = 40_000_000
CHANGES_LIMIT = 20_000
"""Maximum number of changes that are stored."""
STEPS_LIMIT = 500_000
"""Maximum steps to compute one diff, which take less than a second."""
ALL_STEPS_LIMIT = 4 * STEPS_LIMIT
CONTEXT = 3
CUT = "[the rest of this diff is left out]\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a link, or another entry that is not a folder."""

    size: int
    modified: int
    """Nanoseconds since 1970."""
    content: str | None
    """Digest of the content; None if the read limit was reached before this file."""
    text: str | None = None
    """The content, if it is short text."""
    raw: str | None = None
    """The content, if it is short and not text, decoded as far as possible."""

    def same_as(self, other: "Entry") -> bool:
        if self.content is None or other.content is None:
            return (self.size, self.modified) == (other.size, other.modified)
        return self.content == other.content


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The contents of a folder. Paths are decoded by `os.fsdecode` and joined by `/`."""

    entries: Mapping[str, Entry]
    seen_to: str | None = None
    """If there were too many paths, the last one that was read, in `walk_order`."""
    unseen: str | None = None
    """Why the snapshot is incomplete, if it is."""

    def knows(self, path: str) -> bool:
        """Whether the snapshot knows if this path existed."""
        return self.seen_to is None or walk_order(path) <= walk_order(self.seen_to)


class Change(BaseModel):
    """One file that changed. A renamed file is one removed and one added file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Relative to the working directory; bytes that are not text are shown as `\\xff`."""
    kind: Literal["added", "changed", "removed"]
    diff: str | None = None
    """A unified diff, cut if it is long; None if the content is not text or is too large."""


def walk_order(path: str) -> tuple[int, list[str]]:
    """Sort key of a folder walk. Paths near the root come first because they matter more."""
    parts = path.split("/")
    return len(parts), parts


def show_path(path: str) -> str:
    """A path of a snapshot as it is stored: bytes that are not text become `\\xff`."""
    return os.fsencode(path).decode(errors="backslashreplace")


def changes(before: Snapshot, after: Snapshot, *, whole: bool = False) -> tuple[Change, ...]:
    """List the files that were added, changed or removed, as far as both snapshots know them.

    Diffs are for people. With `whole`, there are diffs of binary files too, and the length limit is much higher.

    >>> then = Snapshot({"a": Entry(2, 0, "1", "x\\n")})
    >>> now = Snapshot({"a": Entry(2, 1, "2", "y\\n"), "b": Entry(9, 1, "3")})
    >>> [(change.path, change.kind) for change in changes(then, now)]
    [('a', 'changed'), ('b', 'added')]
    """
    return tuple(_changes(before, after, _Differ(whole=whole)))


def _changes(before: Snapshot, after: Snapshot, differ: "_Differ") -> Iterator[Change]:
    for path in sorted(before.entries.keys() | after.entries.keys(), key=walk_order):
        old, new = before.entries.get(path), after.entries.get(path)
        shown = show_path(path)
        if old is None and before.knows(path):
            yield Change(path=shown, kind="added", diff=differ.diff(shown, None, new))
        elif new is None and after.knows(path):
            yield Change(path=shown, kind="removed", diff=differ.diff(shown, old, None))
        elif old is not None and new is not None and not old.same_as(new):
            yield Change(path=shown, kind="changed", diff=differ.diff(shown, old, new))


class _Differ:
    """Computes diffs until a limit on their length or on the work is reached."""

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
        diff = _cut(_format_unified(was, now, names, skipped), min(self._limit, self._room))
        self._room -= len(diff)
        return diff

    def _text(self, entry: Entry) -> str | None:
        return entry.raw if entry.text is None and self._whole else entry.text

    def _affords(self, was: list[str], now: list[str]) -> bool:
        # Compared here to count the steps, and again for the diff: difflib accepts no custom matcher.
        matcher = _Matcher(was, now, min(STEPS_LIMIT, self._steps))
        try:
            matcher.get_matching_blocks()
        except _TooMuch:
            return False
        finally:
            self._steps -= matcher.steps
        return True


class _TooMuch(Exception):  # noqa: N818 - no error
    """A comparison has exceeded its number of steps."""


class _Matcher(difflib.SequenceMatcher[str]):
    """Limits the steps of a comparison, because the worst case takes cubic time in the length of the texts."""

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
    # Not splitlines, which splits at a dozen characters that diffs do not treat as line ends.
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _where_they_differ(was: list[str], now: list[str]) -> tuple[int, list[str], list[str]]:
    """Cut common lines at both ends, except for the context. Also returns the number of lines skipped."""
    shorter = min(len(was), len(now))
    head = next((n for n in range(shorter) if was[n] != now[n]), shorter)
    tail = next((n for n in range(shorter - head) if was[-1 - n] != now[-1 - n]), shorter - head)
    head, tail = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    return head, was[head : len(was) - tail], now[head : len(now) - tail]


def _format_unified(was: list[str], now: list[str], names: tuple[str, str], skipped: int) -> Iterator[str]:
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
