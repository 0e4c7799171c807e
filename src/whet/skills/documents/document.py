"""A document that agents carry: its front matter, its sections, and which of its text may be changed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from whet.skill import front_matter
from whet.skills.documents.policy import Policy

PROTECT, END_PROTECT = "<!-- whet:protect -->", "<!-- whet:end protect -->"
"""What stands between these is never changed."""
LEARNED, END_LEARNED = "<!-- whet:learned -->", "<!-- whet:end learned -->"
"""What stands between these was learned; where the policy says so, nothing else is changed."""
MARKERS = (PROTECT, END_PROTECT, LEARNED, END_LEARNED)

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of a text, by characters."""

    start: int
    end: int

    def overlaps(self, other: "Span") -> bool:
        """Whether they share text; a place without length is touched by what it lies strictly within."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it, up to the next heading."""

    title: str
    level: int
    """1 to 6; 0 is what stands before the first heading."""
    span: Span


@dataclass(frozen=True)
class Document:
    """A text cut up. Every character of the body belongs to exactly one section."""

    text: str

    @cached_property
    def body(self) -> int:
        """Where the front matter ends."""
        return len(front_matter(self.text))

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        fences = list(self._fences())
        heads = [
            (found.start(), found[2], len(found[1]))
            for found in _HEADING.finditer(self.text, self.body)
            if not any(fence.start <= found.start() < fence.end for fence in fences)
        ]
        if not heads or heads[0][0] > self.body:
            heads.insert(0, (self.body, "", 0))
        ends = [start for start, _, _ in heads[1:]] + [len(self.text)]
        return tuple(
            Section(title, level, Span(start, end))
            for (start, title, level), end in zip(heads, ends, strict=True)
            if end > start
        )

    @cached_property
    def learned(self) -> Span | None:
        """What stands between the marks of the learned block."""
        return next(self._between(LEARNED, END_LEARNED), None)

    def closed(self, policy: Policy) -> list[Span]:
        """The text that may not be changed: front matter, what is marked as protected, and what the policy closes."""
        marks = [
            Span(found.start(), found.end()) for mark in MARKERS for found in re.finditer(re.escape(mark), self.text)
        ]
        # With the marks around it, so that nothing is put between them either.
        protected = [Span(one.start - len(PROTECT), one.end + 1) for one in self._between(PROTECT, END_PROTECT)]
        fixed = [Span(0, self.body), *marks, *protected]
        if policy.opens == "learned":
            opened = [self.learned] if self.learned else []
        elif policy.opens == "sections":
            wanted = {title.casefold() for title in policy.sections}
            opened = [section.span for section in self.sections if section.title.casefold() in wanted]
        else:
            opened = [Span(self.body, len(self.text))]
        return [span for span in (*fixed, *_without(opened, len(self.text))) if span.end > span.start]

    def _between(self, first: str, last: str) -> Iterator[Span]:
        """The text between each pair of marks; an open end reaches to the end of the document."""
        start = self.text.find(first)
        while start >= 0:
            end = self.text.find(last, start)
            end = len(self.text) if end < 0 else end
            yield Span(start + len(first), end)
            start = self.text.find(first, end)

    def _fences(self) -> Iterator[Span]:
        """Blocks of code, whose lines are no headings."""
        opened: re.Match[str] | None = None
        for found in _FENCE.finditer(self.text, self.body):
            if opened is None:
                opened = found
            elif found[1].startswith(opened[1]):
                yield Span(opened.start(), found.end())
                opened = None
        if opened is not None:
            yield Span(opened.start(), len(self.text))


def _without(opened: list[Span], length: int) -> Iterator[Span]:
    """All that lies outside of these spans."""
    at = 0
    for span in sorted(opened):
        yield Span(at, span.start)
        at = max(at, span.end)
    yield Span(at, length)


def closed_up(text: str, before: str) -> str:
    """A text without the gap that lines leave which were taken from it. Whose author leaves such gaps keeps them."""
    return text if "\n\n\n" in before else re.sub(r"\n{3,}", "\n\n", text)
