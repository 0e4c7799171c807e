"""Intervals and bars below each other, each with its name: effects of edits, differences of tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.look.numbers import points
from whet.look.plots.axes import BELOW, draw_points
from whet.look.plots.drawing import Bar, Data, Dot, Drawing, Line, Tone
from whet.look.plots.scales import Scale
from whet.look.plots.text_width import cut, width_of

ROW = 22.0
_TOP = 8.0
_LEAST = 0.1
"""Half of the least range of the axis: ten points."""


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One row of a plot of intervals."""

    name: str
    words: str
    bounds: tuple[float, float] | None
    """None when nothing was measured."""
    mean: float | None
    tone: Tone


@dataclass(frozen=True, slots=True)
class BarRow:
    """One row of a plot of differences."""

    words: str
    number: int
    """Of measurements."""
    mean: float


def common_scale(values: Sequence[float]) -> tuple[float, float]:
    """The range that holds 0 and all values.

    >>> common_scale([0.3, -0.02]), common_scale([])
    ((-0.1, 0.3), (-0.1, 0.1))
    """
    return min(-_LEAST, *values, -_LEAST), max(_LEAST, *values, _LEAST)


def draw_intervals(title: str, rows: Sequence[IntervalRow], width: float) -> Drawing:
    """Intervals below each other, on one scale."""
    bottom = _TOP + ROW * len(rows)
    drawing = Drawing(width, bottom + BELOW, title)
    named = max((width_of(row.name) for row in rows), default=0.0) + 12
    x = Scale(*common_scale([bound for row in rows for bound in row.bounds or ()]), width * 0.55, width - 20)
    draw_points(drawing, x, _TOP, bottom)
    for number, row in enumerate(rows):
        middle = _TOP + ROW * (number + 0.5)
        drawing.text(0, middle + 4, row.name, "faint")
        drawing.text(named, middle + 4, cut(" ".join(row.words.split()), x.start - named - 24))
        _draw_interval(drawing, row, x, middle)
    return drawing


def _draw_interval(drawing: Drawing, row: IntervalRow, x: Scale, middle: float) -> None:
    if row.bounds is None:
        drawing.text(x(0) + 8, middle + 4, "not measured", "faint")
        return
    low, high = row.bounds
    data: Data = {"name": row.name, "low": low, "high": high}
    drawing.add(Line(x(low), middle, x(high), middle, row.tone, "range", data))
    if row.mean is not None:
        tip = f"{points(row.mean)} points"
        drawing.add(Dot(x(row.mean), middle, row.tone, tip=tip, data={"name": row.name, "value": row.mean}))


def draw_differences(title: str, rows: Sequence[BarRow], width: float) -> Drawing:
    """Mean differences as bars."""
    bottom = _TOP + ROW * len(rows)
    drawing = Drawing(width, bottom + BELOW, title)
    counted = max((width_of(f"×{row.number}") for row in rows), default=0.0)
    x = Scale(*common_scale([row.mean for row in rows]), width * 0.4, width - 56)
    draw_points(drawing, x, _TOP, bottom)
    for place, row in enumerate(rows):
        middle = _TOP + ROW * (place + 0.5)
        drawing.text(0, middle + 4, cut(row.words, x.start - counted - 40, keep_end=True))
        drawing.text(x.start - 20, middle + 4, f"×{row.number}", "faint", "end")
        _draw_difference(drawing, row, x, middle)
        drawing.text(width, middle + 4, points(row.mean, 0), "faint", "end")
    return drawing


def _draw_difference(drawing: Drawing, row: BarRow, x: Scale, middle: float) -> None:
    tip = f"{row.words}: {points(row.mean, 0)} points in {row.number} pairs"
    data: Data = {"name": row.words, "value": row.mean}
    if row.mean == 0:
        drawing.add(Dot(x(0), middle, "quiet", "hollow", tip, data))
        return
    left, right = sorted((x(0), x(row.mean)))
    drawing.add(Bar(left, middle - 7, right - left, 14, "better" if row.mean > 0 else "worse", tip, data))
