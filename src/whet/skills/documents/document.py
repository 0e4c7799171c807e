"""A Markdown document of a skill: its front matter, its sections, and the text that a policy lets edits change."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from whet.skill import front_matter

PROTECT, END_PROTECT = "<!-- whet:protect -->", "<!-- whet:end protect -->"
"""Edits never change text between these marks."""
LEARNED, END_LEARNED = "<!-- whet:learned -->", "<!-- whet:end learned -->"
"""Rules that whet added stand between these marks. A policy may restrict edits to this block."""
MARKERS = (PROTECT, END_PROTECT, LEARNED, END_LEARNED)

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_DESCRIPTION = re.compile(r"^description:[ \t]*(\S.*(?:\n[ \t]+\S.*)*)$", re.MULTILINE)
MOST_DESCRIPTION = 1024
"""Characters of a description that agents accept."""


class Policy(BaseModel):
    """What edits may change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    opens: Literal["anything", "learned", "sections", "description"] = "anything"
    """The description and the whole body, only the learned block, only the named sections, or only the description.
    Protected text and the rest of the front matter are always closed."""
    sections: tuple[str, ...] = ()
    """Titles of the open sections."""
    max_chars: int = Field(default=12_000, gt=0)
    """Maximum length after an edit. A document that is already longer may not grow."""

    def within(self, section: str | None) -> "Policy | None":
        """Restrict the policy to one section; None when that section is closed. The learned block is one section."""
        if section is None or self.opens in {"learned", "description"}:
            return self
        if self.opens == "sections" and section.casefold() not in map(str.casefold, self.sections):
            return None
        return self.model_copy(update={"opens": "sections", "sections": (section,)})


@dataclass(frozen=True, slots=True, order=True)
class TextSpan:
    """A range of characters."""

    start: int
    end: int

    def overlaps(self, other: "TextSpan") -> bool:
        """Whether the ranges share text. An empty range overlaps a range that it lies strictly within."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it, up to the next heading."""

    title: str
    level: int
    """1 to 6; 0 for the text before the first heading."""
    span: TextSpan


@dataclass(frozen=True)
class Document:
    """A parsed text. Every character of the body belongs to exactly one section."""

    text: str

    @cached_property
    def body(self) -> int:
        """Index of the first character after the front matter."""
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
            Section(title, level, TextSpan(start, end))
            for (start, title, level), end in zip(heads, ends, strict=True)
            if end > start
        )

    @cached_property
    def description(self) -> TextSpan | None:
        """The description in the front matter, by which agents decide whether to read a skill."""
        found = _DESCRIPTION.search(self.text, 0, self.body)
        return TextSpan(found.start(1), found.end(1)) if found else None

    @cached_property
    def learned_block(self) -> TextSpan | None:
        """The text between the marks of the learned block."""
        return next(self._between(LEARNED, END_LEARNED), None)

    def closed_spans(self, policy: Policy) -> list[TextSpan]:
        """The text that edits may not change: front matter, protected text, marks, and what the policy closes."""
        marks = [
            TextSpan(found.start(), found.end())
            for mark in MARKERS
            for found in re.finditer(re.escape(mark), self.text)
        ]
        # The marks are included, so that no edit can put text between them.
        protected = [TextSpan(one.start - len(PROTECT), one.end + 1) for one in self._between(PROTECT, END_PROTECT)]
        fixed = [TextSpan(0, self.body), *marks, *protected]
        if self.description is not None and policy.opens in {"anything", "description"}:
            before, after = TextSpan(0, self.description.start), TextSpan(self.description.end, self.body)
            fixed[:1] = [before, after]
        if policy.opens == "description":
            opened = [self.description] if self.description else []
        elif policy.opens == "learned":
            opened = [self.learned_block] if self.learned_block else []
        elif policy.opens == "sections":
            wanted = {title.casefold() for title in policy.sections}
            opened = [section.span for section in self.sections if section.title.casefold() in wanted]
        else:
            opened = [*([self.description] if self.description else []), TextSpan(self.body, len(self.text))]
        return [span for span in (*fixed, *_outside(opened, len(self.text))) if span.end > span.start]

    def _between(self, first: str, last: str) -> Iterator[TextSpan]:
        """The text between each pair of marks. Without an end mark it reaches to the end of the document."""
        start = self.text.find(first)
        while start >= 0:
            end = self.text.find(last, start)
            end = len(self.text) if end < 0 else end
            yield TextSpan(start + len(first), end)
            start = self.text.find(first, end)

    def _fences(self) -> Iterator[TextSpan]:
        """Fenced code blocks: lines in them are not headings."""
        opened: re.Match[str] | None = None
        for found in _FENCE.finditer(self.text, self.body):
            if opened is None:
                opened = found
            elif found[1].startswith(opened[1]):
                yield TextSpan(opened.start(), found.end())
                opened = None
        if opened is not None:
            yield TextSpan(opened.start(), len(self.text))


def _outside(opened: list[TextSpan], length: int) -> Iterator[TextSpan]:
    """The text outside of these spans."""
    at = 0
    for span in sorted(opened):
        yield TextSpan(at, span.start)
        at = max(at, span.end)
    yield TextSpan(at, length)


def collapse_blank_lines(text: str, before: str) -> str:
    """Collapse the blank lines left by removed text, unless the original already had such gaps."""
    return text if "\n\n\n" in before else re.sub(r"\n{3,}", "\n\n", text)
