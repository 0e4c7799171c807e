"""Carry an edit over to a text that is not quite the one it was made for, line by line. Lines that the edit does not
change keep their bytes."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class ConflictError(Exception):
    """Both sides changed the same lines. The message names the first of them."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Lines of the base to replace, and the new lines."""

    start: int
    end: int
    new: tuple[str, ...]

    def touches(self, other: "_Change") -> bool:
        return self.start <= other.end and other.start <= self.end


def merge_edit(base: str, edited: str, now: str) -> str:
    """Make the edit that turned `base` into `edited` in the text as it is now. ConflictError when the same or adjacent
    lines were changed on both sides, in different ways.

    >>> merge_edit("a\\nb\\nc\\n", "a\\nb\\nc\\nd\\n", "A\\nb\\nc\\n")
    'A\\nb\\nc\\nd\\n'
    """
    lines = split_lines(base)
    mine, theirs = (_changes(lines, split_lines(text)) for text in (edited, now))
    for change in mine:
        for other in theirs:
            if change != other and change.touches(other):
                raise ConflictError(_explain(change, other, lines))
    merged, at = [], 0
    for change in sorted({*mine, *theirs}, key=lambda one: (one.start, one.end)):
        merged += [*lines[at : change.start], *change.new]
        at = change.end
    return _join([*merged, *lines[at:]])


def carry_text(raw: str, text: str, end: str | None = None) -> str:
    """Turn a raw document into a text whose lines end with line feeds. Lines that are the same in both keep their line
    ends; new lines get `end`, by default the line end of the document.

    >>> carry_text("a\\r\\nb\\r\\n", "a\\nnew\\nb\\n")
    'a\\r\\nnew\\r\\nb\\r\\n'
    """
    lines, end = split_lines(raw), end or line_end(raw)
    plain = [re.sub(r"\r\n?\Z", "\n", line) for line in lines]
    result, at = [], 0
    for change in _changes(plain, split_lines(text)):
        result += [*lines[at : change.start], *(line.replace("\n", end) for line in change.new)]
        at = change.end
    return _join([*result, *lines[at:]])


def line_end(raw: str) -> str:
    """The line end that most lines of a document have."""
    return "\r\n" if raw.count("\r\n") * 2 > raw.count("\n") else "\n"


def split_lines(text: str) -> list[str]:
    """The lines of a text with their ends. Unlike str.splitlines, a form feed or a line separator ends no line."""
    return _LINE.findall(text)


def _join(lines: Sequence[str]) -> str:
    """Concatenate lines. An empty line after a line that ends with a carriage return would look like the end of it."""
    return "".join(
        f"\r{line}" if line == "\n" and before.endswith("\r") else line
        for before, line in zip(["", *lines], lines, strict=False)
    )


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Change]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [_Change(a, b, tuple(new[c:d])) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]


def _explain(change: _Change, other: _Change, base: Sequence[str]) -> str:
    line = max(change.start, other.start) + 1
    shown = [_show(one.new or base[one.start : one.end]) for one in (change, other)]
    return f"line {line} was changed on both sides: the edit has {shown[0]}, the file has {shown[1]}"


def _show(lines: Sequence[str]) -> str:
    first = next((line.strip() for line in lines if line.strip()), "")
    return f"'{first[:60]}'"
