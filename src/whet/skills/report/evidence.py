"""What an exam knew after each of its pairs: its e-values, and what could have been said if it had stopped there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, log

from whet.scoring import Cause
from whet.skills.certificates.certificate import ExamRecord, replay_record
from whet.skills.gate.eprocess import EProcess, PlannedEProcess
from whet.skills.gate.sequential_test import ExamTerms, Pair, SequentialTest, replay
from whet.skills.measurement import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Evidence:
    """Natural logarithms of the e-values, before the first pair and after each."""

    better: tuple[float, ...]
    """That the new skill is better, or not worse than the margin allows."""
    futile: tuple[float, ...]
    """That its lift is below the minimum effect."""
    guard: tuple[float, ...] = ()
    """That the guard is not worse than its margin allows; empty without a guard."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair of an exam, and the e-values after it."""

    number: int
    """From 1."""
    task: str
    old: Outcome
    new: Outcome
    gain: float
    """Logarithm of the factor by which the pair multiplied the first e-value."""
    better: float
    futile: float
    guard: float | None


@dataclass(frozen=True, slots=True)
class StoppedExam:
    """An exam as it stood after some of its pairs."""

    pairs: int
    verdict: Verdict | None
    """None while it was open."""
    decided_at: int | None
    better: float
    """Logarithm of the e-value."""
    needed: float
    """Logarithm of the e-value that certifies."""
    fewest: int
    """Further pairs that it took at least to certify."""
    low: float
    high: float
    """Bounds of the lift."""


def trace_evidence(terms: ExamTerms, pairs: Sequence[Pair]) -> Evidence:
    """Compute the e-values of an exam again, pair by pair."""
    better, futile = EProcess(-terms.margin, above=True), EProcess(terms.minimum_effect, above=False)
    guard = PlannedEProcess(terms.guard.margin, terms.level) if terms.guard else None
    found = [(0.0, 0.0, 0.0)]
    for pair in pairs:
        better.add(pair.worst())
        futile.add(pair.best())
        if guard is not None:
            guard.add(pair.guard.worst())
        found.append((better.log, futile.log, guard.log if guard else 0.0))
    first, second, third = zip(*found, strict=True)
    return Evidence(first, second, third if guard else ())


def list_pairs(record: ExamRecord, evidence: Evidence) -> list[PairRow]:
    """Every pair of an exam with the e-values after it."""
    return [
        PairRow(
            number,
            one.task,
            one.incumbent,
            one.candidate,
            evidence.better[number] - evidence.better[number - 1],
            evidence.better[number],
            evidence.futile[number],
            evidence.guard[number] if evidence.guard else None,
        )
        for number, one in enumerate(record.positions, 1)
    ]


def stop_after(record: ExamRecord, pairs: int) -> StoppedExam:
    """The exam as it stood after this many pairs."""
    test: SequentialTest = replay(record.terms, replay_record(record).pairs[:pairs])
    return StoppedExam(
        len(test.pairs),
        test.verdict,
        test.decided_at,
        test.log_evidence,
        -log(record.terms.level),
        test.fewest,
        test.at_least(),
        test.at_most(),
    )


def by_task(record: ExamRecord) -> Mapping[str, list[float]]:
    """The measured differences of each task of an exam, from the best task to the worst."""
    tasks: dict[str, list[float]] = {}
    for one in record.positions:
        if not isinstance(one.incumbent, Cause) and not isinstance(one.candidate, Cause):
            tasks.setdefault(one.task, []).append(one.candidate - one.incumbent)
    return dict(sorted(tasks.items(), key=lambda pair: (-fsum(pair[1]) / len(pair[1]), pair[0])))
