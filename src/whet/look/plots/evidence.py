"""How the evidence of a sequential test grew, on a logarithmic axis, with the thresholds of its verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.look.numbers import power_of_ten
from whet.look.plots.axes import BELOW, draw_counts
from whet.look.plots.drawing import NARROW, WIDE, Curve, Data, Dot, Drawing, Figure, Line, Tone
from whet.look.plots.scales import Scale, spread, whole_ticks
from whet.look.plots.text_width import width_of

HEIGHT = 260.0
_TOP, _LEFT = 24.0, 44.0
_FLOOR = -3.0
"""Smaller e-values are drawn as one thousandth."""
_ROOF = 4.0
"""Curves end where they are this many powers of ten above the highest threshold."""
_MOST_MARKS = 120
"""Points of a curve that a pointer can find."""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: the decimal logarithms of its e-values, from the start on."""

    label: str
    """Stands at the end of the curve."""
    values: Sequence[float]
    tone: Tone
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Threshold:
    """A line that a curve has to reach, by its decimal logarithm."""

    label: str
    value: float
    tone: Tone


@dataclass(frozen=True, slots=True)
class Evidence:
    """The curves of one test. All have the same length."""

    title: str
    series: tuple[Series, ...]
    thresholds: tuple[Threshold, ...]
    counted: str
    """What the horizontal axis counts."""
    decided_at: int | None = None
    marks: Sequence[str] = ()
    """What a pointer at each place of the horizontal axis is told; empty for a plot that only shows."""


def draw_evidence(evidence: Evidence) -> Figure:
    """The curves, in both widths."""
    return Figure(_draw(evidence, WIDE), _draw(evidence, NARROW))


def _draw(evidence: Evidence, width: float) -> Drawing:
    drawing = Drawing(width, HEIGHT, evidence.title)
    labels = [*(one.label for one in evidence.series), *(one.label for one in evidence.thresholds)]
    right = width - max(map(width_of, labels)) - 8
    x = Scale(0, len(evidence.series[0].values) - 1, _LEFT, right)
    y = Scale(*_range(evidence), HEIGHT - BELOW, _TOP)
    _draw_powers(drawing, y, right)
    draw_counts(drawing, x, y.start, evidence.counted)
    for threshold in evidence.thresholds:
        drawing.add(Line(_LEFT, y(threshold.value), right, y(threshold.value), threshold.tone, "threshold"))
    if evidence.decided_at is not None:
        _draw_verdict(drawing, x(evidence.decided_at), y, evidence.decided_at)
    ends = [_draw_curve(drawing, series, x, y) for series in evidence.series]
    if evidence.marks:
        _draw_marks(drawing, evidence, x, y)
    _draw_labels(drawing, evidence, y, ends, right)
    return drawing


def _range(evidence: Evidence) -> tuple[float, float]:
    values = [value for one in evidence.series for value in one.values]
    thresholds = [one.value for one in evidence.thresholds]
    lowest, highest = min(-0.5, *values), max(*thresholds, *values) + 0.2
    return max(lowest, _FLOOR), min(highest, max(thresholds) + _ROOF)


def _draw_powers(drawing: Drawing, y: Scale, right: float) -> None:
    for power in whole_ticks(y.low, y.high):
        drawing.add(Line(_LEFT, y(power), right, y(power), "grid"))
        drawing.text(_LEFT - 8, y(power) + 4, format_power(power), "faint", "end")
    drawing.text(0, _TOP - 12, "e-value", "faint")


def _draw_verdict(drawing: Drawing, at: float, y: Scale, pairs: int) -> None:
    words = f"verdict at {pairs}"
    half = width_of(words) / 2
    drawing.add(Line(at, y.end, at, y.start, "zero"))
    drawing.text(max(at, _LEFT + half + width_of("e-value") / 2), _TOP - 12, words, "faint", "middle")


def _draw_curve(drawing: Drawing, series: Series, x: Scale, y: Scale) -> tuple[float, float]:
    """Draw a curve up to its end, or up to where it leaves the plot for good; where that is."""
    last = len(series.values)
    while last > 2 and not y.low <= series.values[last - 2] <= y.high:
        last -= 1
    points = tuple((x(place), y(value)) for place, value in enumerate(series.values[:last]))
    drawing.add(Curve(points, series.tone, "dashed" if series.dashed else ""))
    return points[-1]


def _draw_marks(drawing: Drawing, evidence: Evidence, x: Scale, y: Scale) -> None:
    """Invisible points, which a pointer finds by their `data-x`."""
    step = -(-len(evidence.marks) // _MOST_MARKS)
    for place in range(0, len(evidence.marks), step):
        for number, series in enumerate(evidence.series):
            words: Data = {} if number else {"y": evidence.marks[place]}
            data: Data = {"x": place, **words}
            drawing.add(Dot(x(place), y(series.values[place]), series.tone, "datum", data=data))


def _draw_labels(
    drawing: Drawing, evidence: Evidence, y: Scale, ends: Sequence[tuple[float, float]], right: float
) -> None:
    """The names of thresholds at the right, and those of curves at their ends."""
    curves = [(at, one.label, one.tone) for at, one in zip(ends, evidence.series, strict=True)]
    lines = [((right, y(one.value)), one.label, one.tone) for one in evidence.thresholds]
    labels = [*curves, *lines]
    places = spread([place for (_, place), _, _ in labels], lowest=y.start)
    for place, ((at, _), words, tone) in zip(places, labels, strict=True):
        drawing.text(at + 8, place + 4, words, tone)


def format_power(exponent: int) -> str:
    """
    >>> format_power(-2), format_power(0), format_power(3), format_power(12)
    ('0.01', '1', '1000', '10¹²')
    """
    return f"{10.0**exponent:g}" if -3 <= exponent <= 4 else power_of_ten(exponent)
