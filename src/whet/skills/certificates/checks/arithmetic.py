"""A certificate computed again from its own numbers: seed, chain, levels, order of tasks, evidence, verdicts.

It shows that the verdicts follow from the scores. Whether rollouts had these scores, the run folder tells.
"""

from collections.abc import Callable, Iterator, Sequence
from math import isclose

from whet.skills.certificates.certificate import Certificate, ExamRecord, compute_findings, replay_record
from whet.skills.certificates.checks.check import CheckResult, CheckState, judge, not_checked
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.plan import MANY
from whet.skills.measurement import Verdict

MOST_ALPHA = 0.5
LEAST_COVERAGE = 0.8
MOST_GIVING_UP = 0.5
MOST_WORTH = 0.5
"""What terms may be at most, or at least. A run cannot be asked for others."""
CHOSEN = (
    "the order of tasks was chosen by the maker of the run ({}): others may have been tried before, and nothing here "
    "can rule that out"
)
DRAWN = "drawn by chance, as the certificate says; commitment {}"
_CLOSE = 1e-6
"""How far a number may be from what it is recomputed to be."""


def check_arithmetic(certificate: Certificate) -> list[CheckResult]:
    """All that can be checked of a certificate alone."""
    if certificate.gate is not GateKind.CERTIFY:
        why = f"there is no certificate: the rule '{certificate.gate}' decided, and it proves nothing"
        return [CheckResult("gate", CheckState.FAILED, why)]
    records = certificate.all_records
    positions = sum(len(record.positions) for record in records)
    return [
        judge("alpha", _alpha(certificate), f"{certificate.alpha:g}; attempts have levels {_levels(certificate)}"),
        judge("terms", _each(certificate, _terms), "coverage, futility, worth and margin are within their bounds"),
        _seed(certificate),
        judge("attempts", _order(certificate), f"{len(records)} attempts follow each other from the commitment on"),
        judge("order", _each(certificate, _tasks), f"{positions} positions have the tasks that the seed gives them"),
        judge("verdicts", _each(certificate, _findings), f"{positions} positions, computed again: {_told(records)}"),
    ]


def problems(certificate: Certificate) -> list[str]:
    """What of a certificate does not hold when it is computed again; nothing when all of it does."""
    return [check.found for check in check_arithmetic(certificate) if check.state is CheckState.FAILED]


def _each(certificate: Certificate, check: Callable[[Certificate, ExamRecord, str], Iterator[str]]) -> Iterator[str]:
    for record in certificate.records:
        yield from check(certificate, record, f"attempt {record.number}")
    if certificate.shortening is not None:
        yield from check(certificate, certificate.shortening.record, "shortening")


def _alpha(certificate: Certificate) -> Iterator[str]:
    if not 0 < certificate.alpha <= MOST_ALPHA:
        yield f"alpha is {certificate.alpha:g}; expected more than 0 and at most {MOST_ALPHA}"
    for number, record in enumerate(certificate.records, 1):
        if not isclose(record.terms.level, certificate.level(number), rel_tol=_CLOSE):
            yield f"attempt {number}: its level is {record.terms.level:g}, not {certificate.level(number):g}"
    if certificate.single and len(certificate.records) > 1:
        yield f"one attempt was to have all of alpha, but there are {len(certificate.records)}"


def _levels(certificate: Certificate) -> str:
    return ", ".join(f"{record.terms.level:g}" for record in certificate.records) or "none"


def _terms(certificate: Certificate, record: ExamRecord, name: str) -> Iterator[str]:
    terms = record.terms
    removal = certificate.shortening is not None and record is certificate.shortening.record
    if terms.coverage < LEAST_COVERAGE:
        yield f"{name}: coverage {terms.coverage:g} is enough for it; expected at least {LEAST_COVERAGE}"
    if terms.beta > MOST_GIVING_UP:
        yield f"{name}: giving_up is {terms.beta:g}; expected at most {MOST_GIVING_UP}"
    if terms.minimum_effect > MOST_WORTH:
        yield f"{name}: worth is {terms.minimum_effect:g}; expected at most {MOST_WORTH}"
    if terms.max_pairs > MANY or len(record.positions) > MANY:
        yield f"{name}: has {terms.max_pairs} positions; expected at most {MANY}"
    if terms.margin and not removal:
        yield f"{name}: its margin is {terms.margin:g}, not 0"
    if removal:
        yield from _removal(certificate, record)


def _removal(certificate: Certificate, record: ExamRecord) -> Iterator[str]:
    last = certificate.last_certified
    if last is None or record.incumbent != certificate.certified:
        yield f"shortening: expected an exam of the certified skill {certificate.certified[:8]}"
        return
    if record.terms.margin > last.findings.at_least / 2 + _CLOSE:
        yield "shortening: its margin is more than half of what was certified"
    if record.terms.level > MOST_ALPHA:
        yield f"shortening: its level is {record.terms.level:g}; expected at most {MOST_ALPHA}"
    if record.previous != _link(certificate, certificate.records[-1]):
        yield "shortening: does not follow the last attempt"


def _seed(certificate: Certificate) -> CheckResult:
    seed = certificate.seed
    if certificate.commitment != seed.commitment:
        return CheckResult(
            "seed", CheckState.FAILED, "the seed is not the one that was committed to before the first exam"
        )
    if not seed.drawn:
        return not_checked("seed", CHOSEN.format(seed.origin))
    return CheckResult("seed", CheckState.OK, DRAWN.format(certificate.commitment))


def _order(certificate: Certificate) -> Iterator[str]:
    """What does not hold of the attempts together: chain, and who was to be beaten."""
    link, incumbent = certificate.commitment, certificate.start
    tried: set[tuple[str, str]] = set()
    for number, record in enumerate(certificate.records, 1):
        name = f"attempt {record.number}"
        if record.number != number:
            yield f"{name}: expected attempt {number}"
        if record.previous != link:
            yield f"{name}: does not follow the attempt before it"
        if record.incumbent != incumbent:
            yield f"{name}: expected an attempt against {incumbent[:8]}"
        if record.candidate == record.incumbent or (record.incumbent, record.candidate) in tried:
            yield f"{name}: was compared with this skill already"
        tried.add((record.incumbent, record.candidate))
        link = _link(certificate, record)
        if _was_next(certificate, number):
            incumbent = record.candidate
    last = certificate.last_certified
    expected = last.candidate if last else certificate.start
    if certificate.certified != expected:
        yield f"certified is {certificate.certified[:8]}, but the attempts certify {expected[:8]}"


def _was_next(certificate: Certificate, number: int) -> bool:
    """Whether the candidate of an attempt was the next to beat. A verdict that was withheld later, when more positions
    were known, leaves the attempts that came between."""
    record, later = certificate.records[number - 1], certificate.records[number:]
    if record.findings.verdict is Verdict.WITHHELD:
        return any(one.incumbent == record.candidate for one in later)
    return record.findings.verdict is Verdict.CERTIFIED


def exam_of(certificate: Certificate, record: ExamRecord) -> ExamSequence:
    """The exam that an attempt must have been."""
    removal = certificate.shortening is not None and record is certificate.shortening.record
    seed = f"beside {certificate.seed.value}" if removal else certificate.seed.value
    return ExamSequence(
        record.incumbent, record.candidate, tuple(certificate.tasks), seed, record.number, record.previous
    )


def _link(certificate: Certificate, record: ExamRecord) -> str:
    return exam_of(certificate, record).link


def _tasks(certificate: Certificate, record: ExamRecord, name: str) -> Iterator[str]:
    exam = exam_of(certificate, record)
    if exam.id != record.exam:
        yield f"{name}: the exam is not the one of this incumbent, seed, number and these tasks"
    elif any(exam.task_at(number) != one.task for number, one in enumerate(record.positions)):
        yield f"{name}: the positions are not in the order of the exam"


def _findings(_: Certificate, record: ExamRecord, name: str) -> Iterator[str]:
    attempt = replay_record(record)
    if attempt.verdict is None:
        yield f"{name}: its positions come to no verdict"
        return
    again, told = compute_findings(attempt).model_dump(), record.findings.model_dump()
    for key, value in again.items():
        if _differ(told[key], value):
            yield f"{name}: {key} is {told[key]}, recomputed {value}"


def _differ(told: object, again: object) -> bool:
    if isinstance(told, float) and isinstance(again, float):
        return not isclose(told, again, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return told != again


def _told(records: Sequence[ExamRecord]) -> str:
    return ", ".join(str(record.findings.verdict) for record in records) or "none"
