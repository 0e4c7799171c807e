"""The removable units of a document: list items, paragraphs, code blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

from markdown_it import MarkdownIt

from whet.skills.documents.document import Document, Policy, TextSpan, collapse_blank_lines


@dataclass(frozen=True, slots=True)
class _Block:
    text: str
    span: TextSpan
    """Its whole lines."""
    is_heading: bool


def units(text: str) -> list[str]:
    """The list items and other blocks of a document, in order, without headings and protected text.

    >>> units("# Rules\\n- Be kind.\\n- Say why,\\n  and how.\\n\\nThat is all.\\n")
    ['- Be kind.', '- Say why,\\n  and how.', 'That is all.']
    """
    return [block.text for block in _blocks(text) if not block.is_heading]


def find_added_units(text: str, before: str) -> list[str]:
    """Units that an earlier version did not have. A unit that replaced another one is not listed: removing it would
    not restore the one it replaced."""
    now, then = units(text), units(before)
    steps = SequenceMatcher(None, then, now, autojunk=False).get_opcodes()
    return [unit for tag, _, _, start, end in steps if tag == "insert" for unit in now[start:end]]


def remove_unit(text: str, unit: str, before: str) -> str:
    """Remove one unit from a document. A heading left without content is removed too, unless an earlier version had
    it."""
    blocks = list(_blocks(text))
    place = next(number for number, block in enumerate(blocks) if block.text == unit and not block.is_heading)
    gone = [blocks[place].span]
    above = blocks[place - 1] if place else None
    is_last = place + 1 == len(blocks) or blocks[place + 1].is_heading
    if above and above.is_heading and is_last and above.text not in before.split("\n"):
        gone.insert(0, above.span)
    left = text
    for span in reversed(gone):
        left = left[: span.start] + left[span.end :]
    return collapse_blank_lines(left, text)


def _blocks(text: str) -> Iterator[_Block]:
    document = Document(text)
    closed = document.closed_spans(Policy())
    lines = text[document.body :].split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=document.body))
    for token in MarkdownIt().parse("\n".join(lines)):
        is_rule = token.type == "list_item_open" and token.level == 1
        is_other = token.level == 0 and token.type not in {"bullet_list_open", "ordered_list_open"}
        if token.map is None or not (is_rule or is_other):
            continue
        first, last = token.map
        while last > first + 1 and not lines[last - 1].strip():
            last -= 1
        span = TextSpan(starts[first], min(starts[last], len(text)))
        if not any(one.overlaps(span) for one in closed):
            yield _Block(text[span.start : span.end].strip(), span, token.type == "heading_open")
