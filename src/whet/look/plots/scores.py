"""Mean scores one after another, each with its interval and the score that it had to exceed."""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.look.numbers import percent, percent_range
from whet.look.plots.axes import BELOW, draw_counts, draw_percents
from whet.look.plots.drawing import NARROW, WIDE, Curve, Data, Dot, Drawing, Figure, Line, Tone
from whet.look.plots.scales import Scale
from whet.look.plots.text_width import width_of

HEIGHT = 260.0
_TOP, _LEFT, _LEGEND = 36.0, 44.0, 12.0
_LABEL = "to beat"


@dataclass(frozen=True, slots=True)
class ScorePoint:
    """One measured mean."""

    name: str
    mean: float
    bounds: tuple[float, float] | None
    taken: bool | None
    """None for the start, which nobody chose."""
    bar: float | None = None
    """The score to exceed."""


def draw_scores(title: str, given: Sequence[ScorePoint], counted: str) -> Figure:
    """The points in their order, in both widths. The first is number 0."""
    return Figure(_draw(title, given, counted, WIDE), _draw(title, given, counted, NARROW))


def _draw(title: str, given: Sequence[ScorePoint], counted: str, width: float) -> Drawing:
    drawing = Drawing(width, HEIGHT, title)
    drawing.legend(_LEGEND, [("accepted", "better", "dot"), ("not taken", "quiet", "hollow")])
    right = width - width_of(_LABEL) - 8
    x = Scale(-0.5, max(1, len(given) - 1) + 0.5, _LEFT, right)
    y = Scale(0, 1, HEIGHT - BELOW, _TOP)
    draw_percents(drawing, y, _LEFT, right)
    draw_counts(drawing, x, y.start, counted)
    _draw_bars(drawing, given, x, y)
    for place, point in enumerate(given):
        _draw_point(drawing, point, x(place), y)
    return drawing


def _draw_bars(drawing: Drawing, given: Sequence[ScorePoint], x: Scale, y: Scale) -> None:
    """The scores to exceed, as steps, with their name at the end."""
    steps = [
        (x(place + side), y(point.bar))
        for place, point in enumerate(given)
        if point.bar is not None
        for side in (-0.5, 0.5)
    ]
    if steps:
        drawing.add(Curve(tuple(steps), "ink", "threshold"))
        drawing.text(steps[-1][0] + 8, steps[-1][1] + 4, _LABEL, "faint")


def _draw_point(drawing: Drawing, point: ScorePoint, x: float, y: Scale) -> None:
    tone: Tone = "ink" if point.taken is None else "better" if point.taken else "quiet"
    told = f"{point.name}: {percent(point.mean)}"
    if point.bounds is not None:
        low, high = point.bounds
        told = f"{told} {percent_range(low, high)}"
        drawing.add(Line(x, y(low), x, y(high), tone, "range"))
    if point.bar is not None:
        told = f"{told}, to beat {percent(point.bar)}"
    data: Data = {"name": point.name, "value": point.mean}
    drawing.add(Dot(x, y(point.mean), tone, "hollow" if point.taken is False else "", told, data))
