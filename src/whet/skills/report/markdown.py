"""Text of others in Markdown: in cells of tables, and in blocks."""

import re


def escape_cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table.

    >>> escape_cell("a | *b*")
    'a \\\\| \\\\*b\\\\*'
    """
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))


def fence(lines: list[str]) -> list[str]:
    """The lines as a block of Markdown, whatever they contain."""
    ticks = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    edge = "`" * max(3, ticks + 1)
    return [f"{edge}diff", *lines, edge]
