"""The plots of a report: how the search went, what each exam saw, what edits did, and what all of it cost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from whet.skills.gate.gate import ExamResult
from whet.skills.report.data import Cost, Effect, MeasuredProposal, ReportData, by_task, evidence
from whet.skills.report.svg import Drawing, Kind, Legend, Scale, apart, cut, ticks
from whet.skills.search.shorten import Removal

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 92, 48
"""Margins of a plot with axes; above is room for its title and legend."""
HEIGHT = 330
GOOD: Kind = "good"
BAD: Kind = "bad"
QUIET: Kind = "quiet"
ROW = 22
"""Height of a row, in plots that have one for each thing."""
MOST_TASKS = 40
"""Tasks that get a row; of more, those are left out that differ least."""
_DECADE = math.log(10)
_FLOOR = -3.0
"""Evidence below a thousandth is drawn as that: it says no more."""
_ROOF = 4.0
"""So many powers of ten above the threshold curves are cut off."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of a report."""

    name: str
    """Of its file, without the ending."""
    words: str
    """What it shows."""
    svg: str


def learning_curve(figures: ReportData) -> Plot:
    """The mean on training tasks of every proposal, and the bar that it had to pass."""
    drawing = Drawing(WIDTH, HEIGHT, "Search: mean score on the training tasks")
    drawing.legend(
        52, [("accepted", "good", "dot"), ("not accepted", "quiet", "hollow"), ("bar to beat", "bad", "dashed")]
    )
    number = len(figures.tried)
    x = Scale(0, max(1, number), LEFT + 12, WIDTH - RIGHT - 12)
    y = _axes(drawing, x, Scale(0, 1, HEIGHT - BOTTOM, TOP), "proposal (0 is the start)", "score, %")
    _bar_line(drawing, figures.tried, x, y)
    if figures.start is not None:
        low, high, mean = figures.start.low, figures.start.high, figures.start.mean
        drawing.line(x(0), y(low), x(0), y(high), "ink")
        drawing.dot(x(0), y(mean), "ink", told=f"start: {figures.start}")
    for place, tried in enumerate(figures.tried, 1):
        kind: Kind = "good" if tried.step.accepted else "quiet"
        if tried.interval is not None:
            drawing.line(x(place), y(tried.interval.low), x(place), y(tried.interval.high), kind)
        told = f"{tried.step.candidate[:8]}: {tried.interval or f'{tried.step.mean:.1%}'}, to beat {tried.step.bar:.1%}"
        drawing.dot(x(place), y(tried.step.mean), kind, hollow=not tried.step.accepted, told=told)
    return Plot("learning", "mean scores of all proposals on the training tasks, with 95 % intervals", drawing.svg())


def _bar_line(drawing: Drawing, tried: Sequence[MeasuredProposal], x: Scale, y: Scale) -> None:
    """What each proposal had to be above, as steps."""
    sides = ((place + side, one.step.bar) for place, one in enumerate(tried, 1) for side in (-0.5, 0.5))
    drawing.curve([(x(place), y(bar)) for place, bar in sides], BAD, dashed=True)


def _axes(drawing: Drawing, x: Scale, y: Scale, x_name: str, y_name: str) -> Scale:
    """A grid with percent on the left and whole numbers below."""
    for share in ticks(y.low, y.high):
        drawing.line(LEFT, y(share), WIDTH - RIGHT, y(share), "grid")
        drawing.text(LEFT - 8, y(share) + 4, f"{share * 100:.0f}", "faint", "end")
    drawing.text(LEFT - 8, TOP - 12, y_name, "faint", "end")
    _numbers_below(drawing, x, y.start, x_name)
    return y


def _numbers_below(drawing: Drawing, x: Scale, bottom: float, name: str) -> None:
    for place in ticks(x.low, x.high, about=8):
        if place == round(place):
            drawing.text(x(place), bottom + 18, f"{place:.0f}", "faint", "middle")
    drawing.text(WIDTH - RIGHT, bottom + 36, name, "faint", "end")


def wealth(number: int, held: ExamResult) -> Plot:
    """The evidence of one attempt, position by position, against what it takes for a verdict."""
    attempt, terms = held.test, held.test.terms
    versions = f"{held.candidate[:8]} against {held.exam.incumbent[:8]}"
    drawing = Drawing(WIDTH, HEIGHT, f"Exam {held.exam.number}: {versions}: {attempt.verdict}")
    against = f"evidence against a lift of {terms.minimum_effect * 100:.0f} points"
    drawing.legend(52, [("evidence that it is better", "good", "line"), (against, "bad", "dashed")])
    found = [(better / _DECADE, worse / _DECADE) for better, worse in evidence(attempt)]
    enough, hopeless = -math.log10(terms.level), -math.log10(terms.beta)
    right = WIDTH - RIGHT - 110
    x = Scale(0, len(found) - 1, LEFT, right)
    lowest, highest = min(-0.5, *map(min, found)), max(enough + 0.5, *map(max, found))
    y = Scale(max(lowest, _FLOOR), min(highest, enough + _ROOF), HEIGHT - BOTTOM, TOP)
    _powers_left(drawing, y, right)
    _numbers_below(drawing, x, y.start, "positions")
    labels = apart([y(enough), y(hopeless)])
    for place, label, kind, words in (
        (y(enough), labels[0], GOOD, f"certified: {1 / terms.level:.3g}"),
        (y(hopeless), labels[1], BAD, f"given up: {1 / terms.beta:.3g}"),
    ):
        drawing.line(LEFT, place, right, place, kind, dashed=True)
        drawing.text(right + 8, label + 4, words, kind)
    assert attempt.decided_at is not None
    decided = x(attempt.decided_at)
    drawing.line(decided, TOP, decided, y.start, "faint")
    drawing.text(max(decided, LEFT + 48), TOP - 8, f"verdict at {attempt.decided_at}", "faint", "middle")
    drawing.curve(((x(place), y(worse)) for place, (_, worse) in enumerate(found)), BAD, dashed=True)
    drawing.curve(((x(place), y(better)) for place, (better, _) in enumerate(found)), GOOD)
    words = f"evidence of the exam of {held.candidate[:8]}, position by position, and the thresholds of both verdicts"
    return Plot(f"exam-{number}", words, drawing.svg())


def _powers_left(drawing: Drawing, y: Scale, right: float) -> None:
    for power in ticks(y.low, y.high):
        if power == round(power):
            drawing.line(LEFT, y(power), right, y(power), "grid")
            drawing.text(LEFT - 8, y(power) + 4, _power(round(power)), "faint", "end")
    drawing.text(LEFT - 8, TOP - 12, "e-value", "faint", "end")


def _power(exponent: int) -> str:
    """
    >>> _power(-2), _power(0), _power(3), _power(12)
    ('0.01', '1', '1000', '10¹²')
    """
    if -3 <= exponent <= 4:
        return f"{10.0**exponent:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def effects(given: Sequence[Effect]) -> Plot:
    """What the edits of each accepted proposal did, against the version before."""
    rows = [
        Row(
            one.version,
            "; ".join(one.edits) or "-",
            (one.difference.low, one.difference.high) if one.difference else None,
            one.difference.mean if one.difference else None,
            GOOD,
        )
        for one in given
    ]
    legend: Legend = [("accepted edit, with 95 % interval", GOOD, "dot")]
    words = "what each accepted edit changed on the training tasks, with 95 % intervals"
    return Plot("edits", words, _rows("Edits: change on the training tasks", legend, rows))


def removal(one: Removal) -> Plot:
    """What it changes to leave something out of the certified skill."""
    attempt = one.exam_result.test
    color = QUIET if one.accepted else GOOD
    rows = [Row(one.exam_result.candidate, "; ".join(one.units), (attempt.at_least(), attempt.at_most()), None, color)]
    legend: Legend = [("needed, or undecided", GOOD, "line"), ("left out", QUIET, "line")]
    words = "bounds of what changes when parts of the certified skill are left out"
    return Plot("left-out", words, _rows("Without these parts: change on the validation tasks", legend, rows))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a plot of intervals."""

    version: str
    words: str
    bounds: tuple[float, float] | None
    """None when nothing was measured."""
    mean: float | None
    kind: Kind


def _rows(title: str, legend: Legend, rows: Sequence[Row]) -> str:
    """Intervals below each other, with what each is of."""
    height = TOP + ROW * len(rows) + BOTTOM
    drawing = Drawing(WIDTH, height, title)
    drawing.legend(52, legend)
    bounds = [bound for row in rows for bound in row.bounds or ()]
    x = Scale(min(0.0, *bounds, -0.1), max(0.0, *bounds, 0.1), 400, WIDTH - RIGHT - 12)
    _points_below(drawing, x, height - BOTTOM)
    for number, row in enumerate(rows):
        middle = TOP + ROW * (number + 0.5)
        drawing.text(16, middle + 4, row.version[:8], "faint")
        drawing.text(82, middle + 4, cut(" ".join(row.words.split()), 300))
        if row.bounds is None:
            drawing.text(x(0) + 8, middle + 4, "not measured", "faint")
            continue
        drawing.line(x(row.bounds[0]), middle, x(row.bounds[1]), middle, row.kind)
        if row.mean is not None:
            drawing.dot(x(row.mean), middle, row.kind, told=f"{row.mean * 100:+.1f} points")
    return drawing.svg()


def _points_below(drawing: Drawing, x: Scale, bottom: float) -> None:
    for place in ticks(x.low, x.high):
        drawing.line(x(place), TOP, x(place), bottom, "faint" if abs(place) < 1e-9 else "grid")
        drawing.text(x(place), bottom + 18, _signed(place), "faint", "middle")
    drawing.text(WIDTH - RIGHT, bottom + 36, "difference, points", "faint", "end")


def _signed(share: float) -> str:
    """
    >>> _signed(0.25), _signed(0.0), _signed(-0.5)
    ('+25', '0', '-50')
    """
    return f"{share * 100:+.0f}" if round(share * 100) else "0"


def tasks(held: ExamResult) -> Plot:
    """The tasks of an exam, from the most won to the most lost."""
    found = {task: (fsum(values) / len(values), len(values)) for task, values in by_task(held).items()}
    left_out = len(found) - MOST_TASKS
    if left_out > 0:
        least = sorted(found, key=lambda task: abs(found[task][0]))[:left_out]
        found = {task: value for task, value in found.items() if task not in set(least)}
    height = TOP + ROW * len(found) + BOTTOM
    drawing = Drawing(WIDTH, height, f"Exam {held.exam.number}: {held.candidate[:8]}, task by task")
    drawing.legend(52, [("won", "good", "line"), ("lost", "bad", "line"), ("alike", "quiet", "hollow")])
    means = [mean for mean, _ in found.values()]
    x = Scale(min(0.0, *means, -0.1), max(0.0, *means, 0.1), 280, WIDTH - RIGHT - 56)
    _points_below(drawing, x, height - BOTTOM)
    for row, (task, (mean, number)) in enumerate(found.items()):
        top, middle = TOP + ROW * row + 4, TOP + ROW * (row + 0.5)
        drawing.text(16, middle + 4, cut(task, 200, keep_end=True))
        drawing.text(256, middle + 4, f"×{number}", "faint", "end")
        told = f"{task}: {mean * 100:+.0f} points at {number} positions"
        if mean == 0:
            drawing.dot(x(0), middle, "quiet", hollow=True, told=told)
        else:
            drawing.bar(min(x(0), x(mean)), top, abs(x(mean) - x(0)), ROW - 8, "good" if mean > 0 else "bad", told)
        drawing.text(WIDTH - RIGHT, middle + 4, _signed(mean), "faint", "end")
    missing = f"; {left_out} tasks that differ least are left out" if left_out > 0 else ""
    return Plot("tasks", f"mean difference on each task of the last exam{missing}", drawing.svg())


def costs(given: Sequence[Cost]) -> Plot:
    """What each part of the run cost, in rollouts, tokens and dollars."""
    height = TOP + ROW * len(given) + 16
    drawing = Drawing(WIDTH, height, "Spent on each part of the run")
    for row, cost in enumerate(given):
        drawing.text(16, TOP + ROW * (row + 0.5) + 4, cost.part)
    for column, (name, values) in enumerate(_columns(given)):
        start = 110 + column * 216
        drawing.text(start, TOP - 14, name, "faint")
        most = max((value for value in values if value is not None), default=0) or 1
        for row, value in enumerate(values):
            middle = TOP + ROW * (row + 0.5)
            if value is None:
                drawing.text(start, middle + 4, "unknown", "faint")
                continue
            long = 120 * value / most
            if value:
                drawing.bar(start, middle - 7, max(long, 1), 14, GOOD)
            drawing.text(start + long + 8, middle + 4, _amount(name, value), "faint")
    return Plot("costs", "rollouts, tokens and dollars of search, exams, test and proposals", drawing.svg())


def _columns(given: Sequence[Cost]) -> Iterator[tuple[str, list[float | None]]]:
    yield "rollouts", [cost.rollouts for cost in given]
    yield "tokens", [cost.tokens for cost in given]
    yield "dollars", [cost.dollars for cost in given]


def _amount(name: str, value: float) -> str:
    """
    >>> _amount("tokens", 1234567.0), _amount("dollars", 0.0421)
    ('1,234,567', '$0.0421')
    """
    if name == "dollars":
        return f"${value:.4f}" if value < 1 else f"${value:,.2f}"
    return f"{value:,.0f}"
