"""The plots of a report: the search, each exam, the effect of edits, and the costs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from whet.skills.gate.gate import ExamResult
from whet.skills.report.data import Cost, Effect, MeasuredProposal, ReportData, by_task, evidence, guard_evidence
from whet.skills.report.svg import Drawing, Legend, Scale, ShapeKind, cut, spread, ticks
from whet.skills.search.shorten import Removal

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 92, 48
"""Margins of a plot with axes. The top margin has room for the title and the legend."""
HEIGHT = 330
GOOD: ShapeKind = "good"
BAD: ShapeKind = "bad"
QUIET: ShapeKind = "quiet"
ROW = 22
"""Height of a row."""
MOST_TASKS = 40
"""The most tasks that get a row; the tasks that differ least are left out."""
_DECADE = math.log(10)
_FLOOR = -3.0
"""Smaller e-values are drawn as one thousandth."""
_ROOF = 4.0
"""Curves are cut off this many powers of ten above the threshold."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot of a report."""

    name: str
    """The name of its file, without the suffix."""
    words: str
    """What it shows."""
    svg: str


def draw_search(figures: ReportData) -> Plot:
    """The mean score of every proposal on the train tasks, and the mean that it had to exceed."""
    drawing = Drawing(WIDTH, HEIGHT, "Search: mean score on the training tasks")
    drawing.legend(52, [("accepted", "good", "dot"), ("rejected", "quiet", "hollow"), ("to beat", "bad", "dashed")])
    number = len(figures.proposals)
    x = Scale(0, max(1, number), LEFT + 12, WIDTH - RIGHT - 12)
    y = _draw_axes(drawing, x, Scale(0, 1, HEIGHT - BOTTOM, TOP), "proposal (0 is the start)", "score, %")
    _draw_bar(drawing, figures.proposals, x, y)
    if figures.start is not None:
        low, high, mean = figures.start.low, figures.start.high, figures.start.mean
        drawing.line(x(0), y(low), x(0), y(high), "ink")
        drawing.dot(x(0), y(mean), "ink", tip=f"start: {figures.start}")
    for place, proposal in enumerate(figures.proposals, 1):
        kind: ShapeKind = "good" if proposal.step.accepted else "quiet"
        if proposal.interval is not None:
            drawing.line(x(place), y(proposal.interval.low), x(place), y(proposal.interval.high), kind)
        step = proposal.step
        tip = f"{step.candidate[:8]}: {proposal.interval or f'{step.mean:.1%}'}, to beat {step.bar:.1%}"
        drawing.dot(x(place), y(step.mean), kind, hollow=not step.accepted, tip=tip)
    return Plot("learning", "mean scores of all proposals on the training tasks, with 95 % intervals", drawing.svg())


def _draw_bar(drawing: Drawing, proposals: Sequence[MeasuredProposal], x: Scale, y: Scale) -> None:
    """The mean that each proposal had to exceed, as steps."""
    sides = ((place + side, one.step.bar) for place, one in enumerate(proposals, 1) for side in (-0.5, 0.5))
    drawing.curve([(x(place), y(bar)) for place, bar in sides], BAD, dashed=True)


def _draw_axes(drawing: Drawing, x: Scale, y: Scale, x_name: str, y_name: str) -> Scale:
    """A grid with percent on the left and whole numbers below."""
    for share in ticks(y.low, y.high):
        drawing.line(LEFT, y(share), WIDTH - RIGHT, y(share), "grid")
        drawing.text(LEFT - 8, y(share) + 4, f"{share * 100:.0f}", "faint", "end")
    drawing.text(LEFT - 8, TOP - 12, y_name, "faint", "end")
    _draw_numbers(drawing, x, y.start, x_name)
    return y


def _draw_numbers(drawing: Drawing, x: Scale, bottom: float, name: str) -> None:
    for place in ticks(x.low, x.high, about=8):
        if place == round(place):
            drawing.text(x(place), bottom + 18, f"{place:.0f}", "faint", "middle")
    drawing.text(WIDTH - RIGHT, bottom + 36, name, "faint", "end")


def evidence_curve(number: int, held: ExamResult) -> Plot:
    """The e-values of one exam after each position, and the thresholds of its verdicts."""
    attempt, terms = held.test, held.test.terms
    versions = f"{held.candidate[:8]} against {held.exam.incumbent[:8]}"
    drawing = Drawing(WIDTH, HEIGHT, f"Exam {held.exam.number}: {versions}: {attempt.verdict}")
    against = f"evidence against a lift of {terms.minimum_effect * 100:.0f} points"
    guarded = [one / _DECADE for one in guard_evidence(attempt)]
    legend: Legend = [("evidence that it is better", "good", "line"), (against, "bad", "dashed")]
    about_guard: Legend = [("that its guard is kept", "quiet", "line")] if guarded else []
    drawing.legend(52, [*legend, *about_guard])
    found = [(better / _DECADE, worse / _DECADE) for better, worse in evidence(attempt)]
    enough, hopeless = -math.log10(terms.level), -math.log10(terms.beta)
    right = WIDTH - RIGHT - 110
    x = Scale(0, len(found) - 1, LEFT, right)
    lowest, highest = min(-0.5, *map(min, found)), max(enough + 0.5, *map(max, found))
    y = Scale(max(lowest, _FLOOR), min(highest, enough + _ROOF), HEIGHT - BOTTOM, TOP)
    _draw_powers(drawing, y, right)
    _draw_numbers(drawing, x, y.start, "pairs")
    labels = spread([y(enough), y(hopeless)])
    for place, label, kind, words in (
        (y(enough), labels[0], GOOD, f"certified: {1 / terms.level:.3g}"),
        (y(hopeless), labels[1], BAD, f"futile: {1 / terms.beta:.3g}"),
    ):
        drawing.line(LEFT, place, right, place, kind, dashed=True)
        drawing.text(right + 8, label + 4, words, kind)
    assert attempt.decided_at is not None
    decided = x(attempt.decided_at)
    drawing.line(decided, TOP, decided, y.start, "faint")
    drawing.text(max(decided, LEFT + 48), TOP - 8, f"verdict at {attempt.decided_at}", "faint", "middle")
    drawing.curve(((x(place), y(worse)) for place, (_, worse) in enumerate(found)), BAD, dashed=True)
    if guarded:
        drawing.curve(((x(place), y(one)) for place, one in enumerate(guarded)), QUIET)
    drawing.curve(((x(place), y(better)) for place, (better, _) in enumerate(found)), GOOD)
    words = f"evidence of the exam of {held.candidate[:8]}, pair by pair, and the thresholds of both verdicts"
    return Plot(f"exam-{number}", words, drawing.svg())


def _draw_powers(drawing: Drawing, y: Scale, right: float) -> None:
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


def draw_effects(given: Sequence[Effect]) -> Plot:
    """The effect of each accepted proposal, compared with the version before."""
    rows = [
        IntervalRow(
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
    return Plot("edits", words, _draw_intervals("Edits: change on the training tasks", legend, rows))


def draw_removal(one: Removal) -> Plot:
    """How the score changes without some rules of the certified skill."""
    attempt = one.exam_result.test
    color = QUIET if one.accepted else GOOD
    rows = [
        IntervalRow(
            one.exam_result.candidate, "; ".join(one.units), (attempt.at_least(), attempt.at_most()), None, color
        )
    ]
    legend: Legend = [("needed, or undecided", GOOD, "line"), ("removed", QUIET, "line")]
    words = "bounds of the change when rules of the certified skill are removed"
    return Plot("left-out", words, _draw_intervals("Without these rules: change on the validation tasks", legend, rows))


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One row of a plot of intervals."""

    version: str
    words: str
    bounds: tuple[float, float] | None
    """None when nothing was measured."""
    mean: float | None
    kind: ShapeKind


def _draw_intervals(title: str, legend: Legend, rows: Sequence[IntervalRow]) -> str:
    """Intervals below each other, with their labels."""
    height = TOP + ROW * len(rows) + BOTTOM
    drawing = Drawing(WIDTH, height, title)
    drawing.legend(52, legend)
    bounds = [bound for row in rows for bound in row.bounds or ()]
    x = Scale(min(0.0, *bounds, -0.1), max(0.0, *bounds, 0.1), 400, WIDTH - RIGHT - 12)
    _draw_points(drawing, x, height - BOTTOM)
    for number, row in enumerate(rows):
        middle = TOP + ROW * (number + 0.5)
        drawing.text(16, middle + 4, row.version[:8], "faint")
        drawing.text(82, middle + 4, cut(" ".join(row.words.split()), 300))
        if row.bounds is None:
            drawing.text(x(0) + 8, middle + 4, "not measured", "faint")
            continue
        drawing.line(x(row.bounds[0]), middle, x(row.bounds[1]), middle, row.kind)
        if row.mean is not None:
            drawing.dot(x(row.mean), middle, row.kind, tip=f"{row.mean * 100:+.1f} points")
    return drawing.svg()


def _draw_points(drawing: Drawing, x: Scale, bottom: float) -> None:
    for place in ticks(x.low, x.high):
        drawing.line(x(place), TOP, x(place), bottom, "faint" if abs(place) < 1e-9 else "grid")
        drawing.text(x(place), bottom + 18, _format_points(place), "faint", "middle")
    drawing.text(WIDTH - RIGHT, bottom + 36, "difference, points", "faint", "end")


def _format_points(share: float) -> str:
    """
    >>> _format_points(0.25), _format_points(0.0), _format_points(-0.5)
    ('+25', '0', '-50')
    """
    return f"{share * 100:+.0f}" if round(share * 100) else "0"


def draw_tasks(held: ExamResult) -> Plot:
    """The mean difference of each task of an exam, from the best to the worst."""
    found = {task: (fsum(values) / len(values), len(values)) for task, values in by_task(held).items()}
    left_out = len(found) - MOST_TASKS
    if left_out > 0:
        least = sorted(found, key=lambda task: abs(found[task][0]))[:left_out]
        found = {task: value for task, value in found.items() if task not in set(least)}
    height = TOP + ROW * len(found) + BOTTOM
    drawing = Drawing(WIDTH, height, f"Exam {held.exam.number}: {held.candidate[:8]}, task by task")
    drawing.legend(52, [("better", "good", "line"), ("worse", "bad", "line"), ("equal", "quiet", "hollow")])
    means = [mean for mean, _ in found.values()]
    x = Scale(min(0.0, *means, -0.1), max(0.0, *means, 0.1), 280, WIDTH - RIGHT - 56)
    _draw_points(drawing, x, height - BOTTOM)
    for row, (task, (mean, number)) in enumerate(found.items()):
        top, middle = TOP + ROW * row + 4, TOP + ROW * (row + 0.5)
        drawing.text(16, middle + 4, cut(task, 200, keep_end=True))
        drawing.text(256, middle + 4, f"×{number}", "faint", "end")
        tip = f"{task}: {mean * 100:+.0f} points in {number} pairs"
        if mean == 0:
            drawing.dot(x(0), middle, "quiet", hollow=True, tip=tip)
        else:
            drawing.bar(min(x(0), x(mean)), top, abs(x(mean) - x(0)), ROW - 8, "good" if mean > 0 else "bad", tip)
        drawing.text(WIDTH - RIGHT, middle + 4, _format_points(mean), "faint", "end")
    missing = f"; {left_out} tasks that differ least are left out" if left_out > 0 else ""
    return Plot("tasks", f"mean difference on each task of the last exam{missing}", drawing.svg())


def draw_costs(given: Sequence[Cost]) -> Plot:
    """The cost of each part of the run, in rollouts, tokens and dollars."""
    height = TOP + ROW * len(given) + 16
    drawing = Drawing(WIDTH, height, "Cost of each part of the run")
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
