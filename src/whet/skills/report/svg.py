"""Draws the few SVG shapes that the plots of a report need, for light and dark backgrounds."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

ShapeKind = Literal["ink", "faint", "grid", "good", "bad", "quiet"]
"""The colour of a shape. Color-blind people can tell good and bad apart too."""
Anchor = Literal["start", "middle", "end"]
Legend = Sequence[tuple[str, ShapeKind, Literal["line", "dashed", "dot", "hollow"]]]
"""The meaning of each kind of shape."""

LIGHT = {
    "ink": "#1f2328",
    "faint": "#59636e",
    "grid": "#d8dee4",
    "good": "#0072b2",
    "bad": "#d55e00",
    "quiet": "#8c959f",
    "paper": "#ffffff",
}
DARK = {
    "ink": "#e6edf3",
    "faint": "#9198a1",
    "grid": "#30363d",
    "good": "#56b4e9",
    "bad": "#f0a04b",
    "quiet": "#7d8590",
    "paper": "#0d1117",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
_LETTER = 6.3
"""About the width of a letter in an unknown font, so that labels do not overlap."""
_TALL = 15.0


def variables(colours: dict[str, str]) -> str:
    """Colours as CSS variables."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


_STYLE = "".join(
    (
        f".plot{{{variables(LIGHT)}}}",
        f"@media(prefers-color-scheme:dark){{.plot{{{variables(DARK)}}}}}",
        f".plot text{{font:12px {FONT};font-variant-numeric:tabular-nums;fill:var(--ink)}}",
        ".plot .title{font-size:14px;font-weight:600}",
        *(f".plot .{kind}{{fill:var(--{kind});stroke:var(--{kind})}}" for kind in LIGHT),
        *(f".plot text.{kind}{{fill:var(--{kind});stroke:none}}" for kind in LIGHT),
        ".plot .curve{fill:none;stroke-width:2}.plot .dashed{stroke-dasharray:5 4}",
        ".plot .hollow{fill:var(--paper);stroke-width:1.5}.plot .paper{stroke:none}",
    )
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value; a value out of range is drawn at the edge."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


class Drawing:
    """An SVG picture."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []
        self._title = title
        self._parts.append(f'<text class="title" x="16" y="26">{_xml(title)}</text>')

    def text(self, x: float, y: float, text: str, kind: ShapeKind = "ink", anchor: Anchor = "start") -> None:
        self._parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_xml(text)}</text>')

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: ShapeKind, *, dashed: bool = False) -> None:
        look = f"{kind} dashed" if dashed else kind
        self._parts.append(f'<line class="{look}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>')

    def curve(self, points: Iterable[tuple[float, float]], kind: ShapeKind, *, dashed: bool = False) -> None:
        look = f"{kind} curve dashed" if dashed else f"{kind} curve"
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline class="{look}" points="{places}"/>')

    def dot(self, x: float, y: float, kind: ShapeKind, *, hollow: bool = False, tip: str = "") -> None:
        """A point; `tip` is shown when the pointer rests on it."""
        look = f"{kind} hollow" if hollow else kind
        self._parts.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="4">{_format_tip(tip)}</circle>')

    def bar(self, x: float, y: float, width: float, height: float, kind: ShapeKind, tip: str = "") -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self._parts.append(f'<rect class="{kind}" {place} rx="1">{_format_tip(tip)}</rect>')

    def legend(self, y: float, items: Legend) -> None:
        """The meaning of the shapes, in a row."""
        x = 16.0
        for words, kind, shape in items:
            if shape in ("dot", "hollow"):
                self.dot(x + 5, y - 4, kind, hollow=shape == "hollow")
            else:
                self.line(x, y - 4, x + 18, y - 4, kind, dashed=shape == "dashed")
            shift = 14 if shape in ("dot", "hollow") else 24
            self.text(x + shift, y, words, "faint")
            x += shift + width_of(words) + 16

    def svg(self) -> str:
        """The picture, for a file or for a page."""
        begin = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-label="{_xml(self._title)}">'
        )
        paper = f'<rect class="paper" width="{self.width}" height="{self.height}" rx="6"/>'
        return "\n".join([begin, f"<style>{_STYLE}</style>", paper, *self._parts, "</svg>", ""])


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """About `about` round numbers in a range.

    >>> ticks(0, 100), ticks(0, 7, about=4)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.0, 2.0, 4.0, 6.0])
    """
    rough = (high - low) / about or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def width_of(text: str) -> float:
    """The approximate width of a text."""
    return len(text) * _LETTER


def cut(text: str, width: float, *, keep_end: bool = False) -> str:
    """Cut a text to a width, and keep its beginning or its end.

    >>> cut("Answer in one word.", 70), cut("tasks/sums/17", 70, keep_end=True)
    ('Answer in…', '…ks/sums/17')
    """
    room = int(width / _LETTER)
    if len(text) <= room:
        return text
    return f"…{text[len(text) - room + 1 :]}" if keep_end else f"{text[: room - 1].rstrip()}…"


def spread(places: Sequence[float]) -> list[float]:
    """Move labels down where they would overlap.

    >>> spread([10, 12, 60])
    [10, 25.0, 60]
    """
    moved: dict[int, float] = {}
    last = -math.inf
    for index in sorted(range(len(places)), key=places.__getitem__):
        last = moved[index] = max(places[index], last + _TALL)
    return [moved[index] for index in range(len(places))]


def _format_tip(words: str) -> str:
    return f"<title>{_xml(words)}</title>" if words else ""


def _xml(text: str) -> str:
    """Escape a text; characters that XML does not allow are replaced."""
    return escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text))
