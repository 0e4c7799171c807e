"""The exams on the page of a certificate: which of their pairs are shown, and what had been said at one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.look.numbers import e_value, level, needed, plural, points
from whet.skills.certificates.certificate import Certificate, ExamRecord
from whet.skills.report.evidence import PairRow, stop_after
from whet.skills.report.exams import ExamView, anchor_of, describe_exams
from whet.view import addresses
from whet.view.page import Parameters

ROWS = 100
"""Pairs of an exam on one page."""


@dataclass(frozen=True, slots=True)
class ExamSection:
    """One exam with the pairs that are on the page."""

    exam: ExamView
    rows: Sequence[PairRow] = ()
    """Empty when the pairs of another exam are shown."""
    address: str = ""
    """Where its pairs are shown; empty when they are here."""
    pages: Sequence[tuple[str, str, bool]] = ()
    """All its pairs: text, address, and whether they are shown now; empty when one page holds them."""
    stops: Mapping[int, str] | None = None
    """Where the exam is shown as it stood after each pair; None for a file from elsewhere, which has no address."""
    stopped: int = 0
    """The pair after which it is shown; 0 for none."""
    said: str = ""
    """What had been said there."""
    is_asked: bool = False
    """Whether the address names one of its pairs."""


@dataclass(frozen=True, slots=True)
class Place:
    """A pair of an exam."""

    exam: str
    pair: int


def make_sections(
    certificate: Certificate, names: Mapping[str, str], query: Parameters, run: str | None
) -> list[ExamSection]:
    """All exams. The pairs of one are shown: of the one that the address names, or that the certificate rests on."""
    if not certificate.records:
        return []
    asked = read_place(query.get("stop")) or read_place(query.get("from"))
    shown = certificate.last_certified or certificate.records[-1]
    anchor = f"exam-{asked.exam}" if asked else anchor_of(certificate, shown)
    stop = asked.pair if asked and query.get("stop") else 0
    return [
        _section(exam, run, asked, stop) if exam.anchor == anchor else ExamSection(exam, address=_pairs_of(exam, run))
        for exam in describe_exams(certificate, names, marked=anchor)
    ]


def read_place(value: str | None) -> Place | None:
    """The exam and the pair that an address names; None when it names none.

    >>> read_place("2.14"), read_place("x"), read_place(None)
    (Place(exam='2', pair=14), None, None)
    """
    exam, _, pair = (value or "").rpartition(".")
    return Place(exam, int(pair)) if exam and pair.isascii() and pair.isdecimal() and len(pair) < 10 else None


def _pairs_of(exam: ExamView, run: str | None) -> str:
    return "" if run is None else addresses.certificate(run, exam.key, start=1)


def _section(exam: ExamView, run: str | None, asked: Place | None, stop: int) -> ExamSection:
    number = len(exam.pairs)
    stop = min(stop, number)
    first = min(max(asked.pair if asked else 1, 1), number) - 1
    first -= first % ROWS
    rows = exam.pairs[first : first + ROWS]
    pages = [
        (f"{at + 1}–{min(at + ROWS, number)}", addresses.certificate(run, exam.key, start=at + 1), at == first)
        for at in range(0, number, ROWS)
        if run is not None
    ]
    return ExamSection(
        exam,
        rows,
        pages=pages if len(pages) > 1 else (),
        stops=None
        if run is None
        else {row.number: addresses.certificate(run, exam.key, stop=row.number) for row in rows},
        stopped=stop,
        said=describe_stop(exam.record, stop) if stop else "",
        is_asked=asked is not None,
    )


def describe_stop(record: ExamRecord, pairs: int) -> str:
    """What had been said of an exam after this many of its pairs."""
    at = stop_after(record, pairs)
    between = f"between {points(at.low)} and {points(at.high)} points"
    bounds = f"The lift was {between}, each bound at level {level(record.terms.level)}."
    if at.verdict is None:
        more = plural(at.fewest, "more pair", "more pairs")
        return (
            f"There was no verdict: the e-value was {e_value(at.better)}, and {needed(record.terms.level)} certifies; "
            f"that took at least {more}. {bounds}"
        )
    since = "" if at.decided_at == at.pairs else f", since pair {at.decided_at}"
    return f"The verdict was: {at.verdict}{since}. The e-value was {e_value(at.better)}. {bounds}"
