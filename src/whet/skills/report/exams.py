"""The exams and the held-out test of a certificate, as tables and plots show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, log
from typing import Literal

from whet.look.numbers import e_value
from whet.look.plots.drawing import Figure
from whet.runs.stats.means import Interval, is_pass, wilson
from whet.runs.stats.paired import Difference, difference_interval
from whet.scoring import Cause
from whet.skills.certificates.certificate import Certificate, ExamRecord, replay_record
from whet.skills.certificates.guard_text import EXPLAINED, format_both_scores, format_guard
from whet.skills.certificates.text import E_VALUES, E_VALUES_WITH_MARGIN, format_verdict
from whet.skills.measurement import Outcome, Verdict
from whet.skills.report.evidence import PairRow, by_task, list_pairs, trace_evidence
from whet.skills.report.plots import draw_exam
from whet.skills.report.text import explain_interval

Tone = Literal["holds", "worse", "undecided"]
MOST_TASKS = 200
"""The most tasks that are listed; those that differ least are left out."""


@dataclass(frozen=True, slots=True)
class ExamView:
    """One exam."""

    record: ExamRecord
    anchor: str
    title: str
    old: str
    new: str
    """What people call the two skills."""
    tone: Tone
    sentence: str
    """The verdict."""
    needed: float
    """Logarithm of the e-value that certifies."""
    figure: Figure
    pairs: Sequence[PairRow]
    explained: str
    """What an e-value is."""
    guard: str
    """What was found about the guard; empty without one."""

    @property
    def key(self) -> str:
        """What an address calls it: its number, or `shorter`."""
        return self.anchor.removeprefix("exam-")


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task of an exam."""

    name: str
    pairs: int
    mean: float


@dataclass(frozen=True, slots=True)
class TestSide:
    """One skill in the held-out test."""

    name: str
    passed: Interval | None
    mean: float | None
    missing: int
    tasks: int


@dataclass(frozen=True, slots=True)
class TestView:
    """The held-out test."""

    sides: tuple[TestSide, TestSide]
    difference: Difference | None
    sentence: str


def describe_exams(certificate: Certificate, names: Mapping[str, str], *, marked: str = "") -> list[ExamView]:
    """All exams, and the exam of a shorter version. The plot of the one with the anchor `marked` answers to a
    pointer."""
    return [_describe_exam(certificate, record, names, marked) for record in certificate.all_records]


def anchor_of(certificate: Certificate, record: ExamRecord) -> str:
    """The place of an exam on a page."""
    return "exam-shorter" if _is_shorter(certificate, record) else f"exam-{record.number}"


def _is_shorter(certificate: Certificate, record: ExamRecord) -> bool:
    return certificate.shortening is not None and record is certificate.shortening.record


def _describe_exam(certificate: Certificate, record: ExamRecord, names: Mapping[str, str], marked: str) -> ExamView:
    anchor = anchor_of(certificate, record)
    title = "Exam of the shorter version" if _is_shorter(certificate, record) else f"Exam {record.number}"
    old, new = (names.get(one, one[:8]) for one in (record.incumbent, record.candidate))
    evidence, tasks = trace_evidence(record.terms, replay_record(record).pairs), len(certificate.tasks)
    told, pairs = format_verdict(record, tasks), list_pairs(record, evidence)
    marks = ["before the first pair: 1", *map(_describe_pair, pairs)] if anchor == marked else []
    return ExamView(
        record,
        anchor,
        title,
        old,
        new,
        tone_of(record),
        f"{told[0].upper()}{told[1:]}.",
        -log(record.terms.level),
        draw_exam(record, evidence, f"{title}: {new} against {old}, e-values pair by pair", tasks, marks=marks),
        pairs,
        f"{E_VALUES_WITH_MARGIN if record.terms.margin else E_VALUES}{f' {EXPLAINED}' if record.terms.guard else ''}",
        f"{format_guard(record)}; {format_both_scores(record)}." if record.terms.guard else "",
    )


def tone_of(record: ExamRecord) -> Tone:
    """How a verdict is marked. An exam that gave up did not show that the new skill is worse, unless it was asked just
    that."""
    if record.findings.verdict is Verdict.CERTIFIED:
        return "holds"
    worse = record.findings.verdict is Verdict.FUTILE and not record.terms.minimum_effect
    return "worse" if worse else "undecided"


def _describe_pair(pair: PairRow) -> str:
    return f"after pair {pair.number}: {e_value(pair.better)} for, {e_value(pair.futile)} against"


def describe_tasks(certificate: Certificate) -> tuple[list[TaskRow], int]:
    """The tasks of the last exam from the best to the worst, and how many are left out."""
    if not certificate.records:
        return [], 0
    found = by_task(certificate.records[-1])
    rows = [TaskRow(task, len(values), fsum(values) / len(values)) for task, values in found.items()]
    kept = sorted(rows, key=lambda row: -abs(row.mean))[:MOST_TASKS]
    return [row for row in rows if row in kept], len(rows) - len(kept)


def describe_test(certificate: Certificate) -> TestView | None:
    """The held-out test; None when there was none."""
    tested = certificate.test
    if tested is None:
        return None
    sides = _describe_side("before", tested.before), _describe_side("after", tested.after)
    return TestView(sides, difference_interval(tested.differences), f"{tested}.{explain_interval(tested)}")


def _describe_side(name: str, outcomes: Mapping[str, Outcome]) -> TestSide:
    scores = [one for one in outcomes.values() if not isinstance(one, Cause)]
    rate = wilson(sum(map(is_pass, scores)), len(scores)) if scores else None
    mean = fsum(scores) / len(scores) if scores else None
    return TestSide(name, rate, mean, len(outcomes) - len(scores), len(outcomes))
