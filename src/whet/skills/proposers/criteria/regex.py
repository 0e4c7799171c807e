"""Reads the shape that a simple regular expression requires, so that it can be put in words."""

import re
from dataclasses import dataclass

_FLAGS = re.compile(r"\A\(\?[aimsux]+\)")
_FIRST_OF_GROUP = re.compile(r"(?<!\\)\((?:\?:)?([^()|\\]*(?:\\.[^()|\\]*)*)(?:\|[^()]*)?\)(?![*+?{])")
_PART = re.compile(
    r"(?P<unit>\\[AZbBwWdDsS]|\\[^a-zA-Z0-9]|\\[nt]|\[\^?(?:\\.|[^\]\\])+\]|[\^$.]|[^\\\[\](){}*+?|])"
    r"(?P<times>\*|\+|\?|\{\d+(?:,\d*)?\})?\??"
)
LONGEST = 40
"""The most repetitions that an example shows."""
_KINDS = {r"\d": "1", r"\s": " ", r"\W": "", r"\n": "\n", r"\t": "\t"}
_EDGES = {"^", "$", r"\A", r"\Z", r"\b", r"\B"}


@dataclass(frozen=True, slots=True)
class Shape:
    """Fixed text before and after any text; or fixed text alone."""

    before: str
    after: str
    filled: bool
    """Whether there is any text between."""
    first: bool
    """Whether it must be at the start."""
    last: bool
    """Whether it must be at the end."""

    def fill(self, answer: str) -> str:
        """The answer in this shape."""
        if self.filled:
            gap = " " if self.before.endswith((":", ",")) else ""
            return f"{self.before}{gap}{answer}{self.after}"
        return f"{self.before} {answer}" if self.first else f"{answer} {self.before}"


def shape_of(pattern: str) -> Shape | None:
    """The shape of a simple pattern; None when the pattern is not simple.

    >>> shape_of(r"\\*\\*[^*]+\\*\\*").fill("Lima"), shape_of(r"DONE\\W*$").fill("Lima"), shape_of(r"(a+)+$")
    ('**Lima**', 'Lima DONE', None)
    """
    parts = _parts(_FIRST_OF_GROUP.sub(r"\1", _FLAGS.sub("", pattern)))
    shape = _join_parts(parts) if parts else None
    try:
        # A search for such a simple pattern ends soon.
        return shape if shape and re.search(pattern, shape.fill("Lima")) else None
    except re.error:
        return None


def _join_parts(parts: list[str | None]) -> Shape | None:
    first, last = parts[0] in {"^", r"\A"}, parts[-1] in {"$", r"\Z"}
    texts = [part for part in parts if part not in _EDGES]
    open_at = [index for index, part in enumerate(texts) if part is None]
    if len(open_at) > 1:
        return None
    if not open_at:
        whole = "".join(part or "" for part in texts)
        return Shape(whole, "", False, first, last) if whole.strip() and not (first and last) else None
    before, after = ("".join(part or "" for part in some) for some in (texts[: open_at[0]], texts[open_at[0] + 1 :]))
    return Shape(before, after, True, first, last) if (before + after).strip() else None


def _parts(pattern: str) -> list[str | None] | None:
    """Edges and fixed texts, with None for any text; None as a whole when the pattern is not simple."""
    parts: list[str | None] = []
    at = 0
    while at < len(pattern):
        found = _PART.match(pattern, at)
        if found is None:
            return None
        at = found.end()
        least, many = _times(found["times"])
        if least > LONGEST:
            return None
        if found["unit"] in _EDGES:
            parts.append(found["unit"])
        elif many and _is_open(found["unit"]):
            # At an edge, a part that may be empty does not belong to the shape.
            if least or (parts and parts[-1] not in _EDGES and at < len(pattern) and pattern[at:] not in _EDGES):
                parts.append(None)
        elif least:
            parts.append(_pick_text(found["unit"]) * least)
    return parts


def _times(times: str | None) -> tuple[int, bool]:
    """The fewest repetitions, and whether their number is unlimited."""
    match times:
        case None:
            return 1, False
        case "?":
            return 0, False
        case "*" | "+":
            return int(times == "+"), True
    least, comma, most = times.strip("{}").partition(",")
    return int(least), bool(comma) and not most


def _is_open(unit: str) -> bool:
    return unit in {".", r"\w", r"\S"} or unit.startswith("[")


def _pick_text(unit: str) -> str:
    """A text that the unit matches."""
    if unit.startswith("["):
        return "" if unit.startswith("[^") else unit[1] if unit[1] != "\\" else _pick_text(unit[1:3])
    if unit in {".", r"\w", r"\S"}:
        return "a"
    return _KINDS.get(unit, unit[-1])
