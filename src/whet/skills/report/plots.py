"""The plots of a report and of a certificate, drawn with the shapes of the look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, log, log10

from whet.look.numbers import e_value, money, needed, number, plural
from whet.look.plots import evidence as evidence_plot
from whet.look.plots.amounts import Amounts, draw_amounts
from whet.look.plots.drawing import WIDE, Drawing, Figure, Tone, draw_svg_file
from whet.look.plots.evidence import Series, Threshold, draw_evidence
from whet.look.plots.intervals import BarRow, IntervalRow, draw_differences, draw_intervals
from whet.look.plots.scores import ScorePoint, draw_scores
from whet.look.templates import make_environment
from whet.skills.certificates.certificate import ExamRecord, Shortening
from whet.skills.gate.sequential_test import ExamTerms
from whet.skills.measurement import Verdict
from whet.skills.report.data import Cost, Effect, ReportData
from whet.skills.report.evidence import Evidence, by_task

MOST_TASKS = 40
"""The most tasks that get a row; the tasks that differ least are left out."""
_DECADE = log(10)


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot of a report in Markdown."""

    name: str
    """The name of its file, without the suffix."""
    words: str
    """What it shows."""
    drawing: Drawing


def draw_files(plots: Sequence[Plot]) -> Mapping[str, str]:
    """The plots as SVG files, by name."""
    environment = make_environment()
    return {plot.name: draw_svg_file(plot.drawing, environment) for plot in plots}


def draw_search(figures: ReportData) -> Plot:
    """The mean score of every proposal on the train tasks, and the mean that it had to exceed."""
    start = figures.start
    first = [ScorePoint("start", start.mean, (start.low, start.high), taken=None)] if start else []
    points = [
        ScorePoint(
            one.step.candidate[:8],
            one.step.mean,
            (one.interval.low, one.interval.high) if one.interval else None,
            taken=one.step.accepted,
            bar=one.step.bar,
        )
        for one in figures.proposals
    ]
    title = "Search: mean score on the training tasks"
    drawn = draw_scores(title, [*first, *points], "proposal (0 is the start)" if first else "proposal, from 0")
    return Plot("learning", "mean scores of all proposals on the training tasks, with 95 % intervals", drawn.wide)


def draw_exam(record: ExamRecord, evidence: Evidence, title: str, tasks: int, *, marks: Sequence[str] = ()) -> Figure:
    """The e-values of one exam after each pair, and the thresholds of its verdicts. With `marks`, a pointer finds what
    stands for each number of pairs."""
    terms, found = record.terms, record.findings
    series = [
        Series(f"{_shown(terms)}: {e_value(evidence.better[-1])}", _decades(evidence.better), "better"),
        Series(f"{_given_up(terms)}: {e_value(evidence.futile[-1])}", _decades(evidence.futile), "worse", dashed=True),
    ]
    if terms.guard is not None:
        label = f"guard kept: {e_value(evidence.guard[-1])}"
        series.append(Series(label, _decades(evidence.guard), "quiet"))
    thresholds = (
        Threshold(f"certify at {needed(terms.level)}", -log10(terms.level), "better"),
        Threshold(f"give up at {needed(terms.beta)}", -log10(terms.beta), "worse"),
    )
    counted = f"pairs, drawn from {plural(tasks, 'task', 'tasks')}"
    return draw_evidence(evidence_plot.Evidence(title, tuple(series), thresholds, counted, found.decided_at, marks))


def _shown(terms: ExamTerms) -> str:
    return "not worse" if terms.margin else "better"


def _given_up(terms: ExamTerms) -> str:
    return f"lift below {terms.minimum_effect * 100:g}" if terms.minimum_effect else "worse"


def _decades(logs: Sequence[float]) -> list[float]:
    return [one / _DECADE for one in logs]


def draw_effects(given: Sequence[Effect]) -> Plot:
    """The effect of each accepted proposal, compared with the version before."""
    rows = [
        IntervalRow(
            one.version[:8],
            "; ".join(one.edits) or "-",
            (one.difference.low, one.difference.high) if one.difference else None,
            one.difference.mean if one.difference else None,
            "better" if one.difference and one.difference.low > 0 else "quiet",
        )
        for one in given
    ]
    words = "what each accepted edit changed on the training tasks, with 95 % intervals"
    return Plot("edits", words, draw_intervals("Edits: change on the training tasks", rows, WIDE))


def draw_removal(one: Shortening) -> Plot:
    """How the score changes without some rules of the certified skill."""
    found, candidate = one.record.findings, one.record.candidate
    tone: Tone = "quiet" if found.verdict is Verdict.CERTIFIED else "better"
    rows = [IntervalRow(candidate[:8], "; ".join(one.units), (found.at_least, found.at_most), None, tone)]
    title = "Without these rules: change on the validation tasks"
    words = "bounds of the change when rules of the certified skill are removed"
    return Plot("left-out", words, draw_intervals(title, rows, WIDE))


def draw_tasks(record: ExamRecord) -> Plot:
    """The mean difference of each task of an exam, from the best to the worst."""
    found = {task: (fsum(values) / len(values), len(values)) for task, values in by_task(record).items()}
    left_out = len(found) - MOST_TASKS
    if left_out > 0:
        least = sorted(found, key=lambda task: abs(found[task][0]))[:left_out]
        found = {task: value for task, value in found.items() if task not in set(least)}
    rows = [BarRow(task, number, mean) for task, (mean, number) in found.items()]
    missing = f"; {left_out} tasks that differ least are left out" if left_out > 0 else ""
    title = f"Exam {record.number}, task by task"
    return Plot("tasks", f"mean difference on each task of the last exam{missing}", draw_differences(title, rows, WIDE))


def draw_costs(given: Sequence[Cost]) -> Plot:
    """The cost of each part of the run, in rollouts, tokens and dollars."""
    columns = (
        Amounts("rollouts", [one.rollouts for one in given], [number(one.rollouts) for one in given]),
        Amounts("tokens", [one.tokens for one in given], [number(one.tokens) for one in given]),
        Amounts("dollars", [one.dollars for one in given], [money(one.dollars) for one in given]),
    )
    drawn = draw_amounts("Cost of each part of the run", [one.part for one in given], columns, WIDE)
    return Plot("costs", "rollouts, tokens and dollars of search, exams, test and proposals", drawn)
