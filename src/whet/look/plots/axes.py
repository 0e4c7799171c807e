"""Axes of plots: grids, and their numbers."""

from whet.look.numbers import points
from whet.look.plots.drawing import Drawing, Line
from whet.look.plots.scales import Scale, ticks, whole_ticks
from whet.look.plots.text_width import width_of

BELOW = 44.0
"""Room below a plot, for numbers and the name of the axis."""


def draw_counts(drawing: Drawing, x: Scale, bottom: float, name: str) -> None:
    """Whole numbers below a plot."""
    room = x.end - x.start
    for place in whole_ticks(x.low, x.high, about=max(2, int(room / 50))):
        drawing.text(x(place), bottom + 18, str(place), "faint", "middle")
    drawing.text(x.end, bottom + 36, name, "faint", "end")


def draw_percents(drawing: Drawing, y: Scale, left: float, right: float) -> None:
    """A grid with percent at the left."""
    for share in ticks(y.low, y.high):
        drawing.add(Line(left, y(share), right, y(share), "grid"))
        drawing.text(left - 8, y(share) + 4, f"{share * 100:.0f}%", "faint", "end")


def draw_points(drawing: Drawing, x: Scale, top: float, bottom: float) -> None:
    """A grid with differences in points below; the line of no difference is stronger."""
    # Numbers such as "+100" need room on both sides.
    about = max(2, int((x.end - x.start) / (width_of("+100") + 24)))
    for place in ticks(x.low, x.high, about):
        drawing.add(Line(x(place), top, x(place), bottom, "zero" if abs(place) < 1e-9 else "grid"))
        drawing.text(x(place), bottom + 18, points(place, 0), "faint", "middle")
    drawing.text(x.end, bottom + 36, "difference, points", "faint", "end")
