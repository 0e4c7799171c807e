"""A plot as a list of shapes, and how it becomes SVG: inside a page without any style, or as a file with its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from jinja2 import Environment

from whet.look.plots.text_width import width_of
from whet.look.unseen import legible

Tone = Literal["ink", "faint", "grid", "zero", "better", "worse", "quiet"]
"""The colour of a shape. Colour-blind people can tell better and worse apart too."""
Anchor = Literal["start", "middle", "end"]
Mark = Literal["dot", "hollow", "line"]
Data = Mapping[str, float | str]
"""What a shape shows, in `data-` attributes."""
WIDE, NARROW = 720, 340
"""Widths of plots: for a page, and for a phone."""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line; `look` adds a class to that of its tone."""

    x1: float
    y1: float
    x2: float
    y2: float
    tone: Tone
    look: Literal["", "range", "threshold"] = ""
    data: Data = field(default_factory=dict)
    shape: Literal["line"] = "line"


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through several points."""

    points: tuple[tuple[float, float], ...]
    tone: Tone
    look: Literal["", "dashed", "threshold"] = ""
    shape: Literal["curve"] = "curve"


@dataclass(frozen=True, slots=True)
class Dot:
    """A point. `tip` is shown when the pointer rests on it; `look` hides points that only hold data."""

    x: float
    y: float
    tone: Tone
    look: Literal["", "hollow", "datum"] = ""
    tip: str = ""
    data: Data = field(default_factory=dict)
    shape: Literal["dot"] = "dot"


@dataclass(frozen=True, slots=True)
class Bar:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    tone: Tone
    tip: str = ""
    data: Data = field(default_factory=dict)
    shape: Literal["bar"] = "bar"


@dataclass(frozen=True, slots=True)
class Label:
    """A text. It may come from anyone: what cannot be seen is made visible."""

    x: float
    y: float
    text: str
    tone: Tone
    anchor: Anchor
    shape: Literal["label"] = "label"


Shape = Line | Curve | Dot | Bar | Label


class Drawing:
    """A picture of shapes."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, legible(title)
        self.shapes: list[Shape] = []

    def add(self, *shapes: Shape) -> None:
        self.shapes.extend(shapes)

    def text(self, x: float, y: float, text: str, tone: Tone = "ink", anchor: Anchor = "start") -> None:
        self.add(Label(x, y, legible(text), tone, anchor))

    def legend(self, y: float, items: Iterable[tuple[str, Tone, Mark]]) -> None:
        """The meaning of the shapes, in a row."""
        x = 0.0
        for words, tone, mark in items:
            if mark == "line":
                self.add(Line(x, y - 4, x + 18, y - 4, tone, "range"))
            else:
                self.add(Dot(x + 5, y - 4, tone, "hollow" if mark == "hollow" else ""))
            shift = 24 if mark == "line" else 16
            self.text(x + shift, y, words, "faint")
            x += shift + width_of(words) + 16


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot in both widths."""

    wide: Drawing
    narrow: Drawing


def draw_svg_file(drawing: Drawing, environment: Environment) -> str:
    """A file of its own, with its title and style."""
    return environment.get_template("plot_file.svg").render(drawing=drawing)
