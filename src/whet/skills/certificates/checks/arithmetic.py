"""Recompute a certificate from its own numbers: seed, chain, levels, order of tasks, evidence, verdicts.

This shows that the verdicts follow from the scores. Only the run folder shows that rollouts had these scores.
"""

from collections.abc import Callable, Iterator, Sequence
from math import isclose

from whet.skills.certificates.certificate import Certificate, ExamRecord, Findings, compute_findings, replay_record
from whet.skills.certificates.checks.check import CheckResult, CheckState, count_of, judge, not_checked
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.plan import MANY
from whet.skills.measurement import Verdict

MOST_ALPHA = 0.5
LEAST_COVERAGE = 0.8
MOST_BETA = 0.5
MOST_EFFECT = 0.5
MOST_MARGIN = 0.5
"""Bounds of the terms. whet accepts no options outside of them."""
CHOSEN = (
    "the order of tasks was chosen by the maker of the run ({}), who may have tried other seeds before; no check can "
    "rule that out"
)
DRAWN = "drawn at random, according to the certificate; commitment {}"
_CLOSE = 1e-6
"""How far a number may be from its recomputed value."""


def check_arithmetic(certificate: Certificate) -> list[CheckResult]:
    """Run the checks that need nothing but the certificate."""
    if certificate.gate is not GateKind.CERTIFY:
        why = f"there is no certificate: the rule '{certificate.gate}' decided, and it proves nothing"
        return [CheckResult("gate", CheckState.FAILED, why)]
    records = certificate.all_records
    pairs = count_of(sum(len(record.positions) for record in records), "pair")
    exams = count_of(len(records), "exam")
    return [
        judge("alpha", _alpha(certificate), f"{certificate.alpha:g}; levels of the exams: {_levels(certificate)}"),
        judge("terms", _each(certificate, _terms), "coverage, beta, minimum effect and margin are within their bounds"),
        _seed(certificate),
        judge("exams", _order(certificate), f"{exams} in one chain that starts at the commitment"),
        judge("order", _each(certificate, _tasks), f"{pairs} in the order that the seed gives"),
        judge("verdicts", _each(certificate, _findings), f"recomputed from {pairs}: {_verdicts(records)}"),
    ]


def problems(certificate: Certificate) -> list[str]:
    """The failed checks of the arithmetic; empty when all of them hold."""
    return [check.found for check in check_arithmetic(certificate) if check.state is CheckState.FAILED]


def _each(certificate: Certificate, check: Callable[[Certificate, ExamRecord, str], Iterator[str]]) -> Iterator[str]:
    for record in certificate.records:
        yield from check(certificate, record, f"exam {record.number}")
    if certificate.shortening is not None:
        yield from check(certificate, certificate.shortening.record, "shortening")


def _alpha(certificate: Certificate) -> Iterator[str]:
    if not 0 < certificate.alpha <= MOST_ALPHA:
        yield f"alpha is {certificate.alpha:g}; expected more than 0 and at most {MOST_ALPHA}"
    for number, record in enumerate(certificate.records, 1):
        if not isclose(record.terms.level, certificate.level(number), rel_tol=_CLOSE):
            yield f"exam {number}: its level is {record.terms.level:g}, not {certificate.level(number):g}"
    if certificate.single and len(certificate.records) > 1:
        yield f"the certificate spends all of alpha on a single exam, but has {len(certificate.records)} exams"


def _levels(certificate: Certificate) -> str:
    return ", ".join(f"{record.terms.level:g}" for record in certificate.records) or "none"


def _terms(certificate: Certificate, record: ExamRecord, name: str) -> Iterator[str]:
    terms = record.terms
    removal = certificate.shortening is not None and record is certificate.shortening.record
    if terms.coverage < LEAST_COVERAGE:
        yield f"{name}: the coverage that it needs is {terms.coverage:g}; expected at least {LEAST_COVERAGE}"
    if terms.beta > MOST_BETA:
        yield f"{name}: beta (giving_up) is {terms.beta:g}; expected at most {MOST_BETA}"
    if terms.minimum_effect > MOST_EFFECT:
        yield f"{name}: minimum effect (worth) is {terms.minimum_effect:g}; expected at most {MOST_EFFECT}"
    if terms.max_pairs > MANY or len(record.positions) > MANY:
        yield f"{name}: has {terms.max_pairs} pairs; expected at most {MANY}"
    if terms.margin and not (removal or certificate.single):
        yield f"{name}: its margin is {terms.margin:g}, not 0"
    if terms.margin > MOST_MARGIN:
        yield f"{name}: its margin is {terms.margin:g}; expected at most {MOST_MARGIN}"
    if removal:
        yield from _removal(certificate, record)


def _removal(certificate: Certificate, record: ExamRecord) -> Iterator[str]:
    last = certificate.last_certified
    if last is None or record.incumbent != certificate.certified:
        yield f"shortening: expected an exam of the certified skill {certificate.certified[:8]}"
        return
    if record.terms.margin > last.findings.at_least / 2 + _CLOSE:
        yield "shortening: its margin is more than half of the certified lift"
    if record.terms.level > MOST_ALPHA:
        yield f"shortening: its level is {record.terms.level:g}; expected at most {MOST_ALPHA}"
    if record.previous != _link(certificate, certificate.records[-1]):
        yield "shortening: does not follow the last exam"


def _seed(certificate: Certificate) -> CheckResult:
    seed = certificate.seed
    if certificate.commitment != seed.commitment:
        return CheckResult(
            "seed", CheckState.FAILED, "the seed does not match the commitment made before the first exam"
        )
    if not seed.drawn:
        return not_checked("seed", CHOSEN.format(seed.origin))
    return CheckResult("seed", CheckState.OK, DRAWN.format(certificate.commitment))


def _order(certificate: Certificate) -> Iterator[str]:
    """Problems of the chain of exams, and of the incumbent of each exam."""
    link, incumbent = certificate.commitment, certificate.start
    tried: set[tuple[str, str]] = set()
    for number, record in enumerate(certificate.records, 1):
        name = f"exam {record.number}"
        if record.number != number:
            yield f"{name}: expected exam {number}"
        if record.previous != link:
            yield f"{name}: does not follow the exam before it"
        if record.incumbent != incumbent:
            yield f"{name}: its old skill is {record.incumbent[:8]}, expected {incumbent[:8]}"
        if record.candidate == record.incumbent or (record.incumbent, record.candidate) in tried:
            yield f"{name}: these two skills were compared before"
        tried.add((record.incumbent, record.candidate))
        link = _link(certificate, record)
        if _was_next(certificate, number):
            incumbent = record.candidate
    last = certificate.last_certified
    expected = last.candidate if last else certificate.start
    if certificate.certified != expected:
        yield f"certified is {certificate.certified[:8]}, but the exams certify {expected[:8]}"


def _was_next(certificate: Certificate, number: int) -> bool:
    """Whether the candidate of an exam became the next incumbent. Later pairs can withhold a verdict after the fact;
    the exams that were taken in between stay."""
    record, later = certificate.records[number - 1], certificate.records[number:]
    if record.findings.verdict is Verdict.WITHHELD:
        return any(one.incumbent == record.candidate for one in later)
    return record.findings.verdict is Verdict.CERTIFIED


def exam_of(certificate: Certificate, record: ExamRecord) -> ExamSequence:
    """Rebuild the exam of a record from the seed and the tasks of the certificate."""
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
        yield f"{name}: its id does not fit its old skill, seed, number and tasks"
    elif any(exam.task_at(number) != one.task for number, one in enumerate(record.positions)):
        yield f"{name}: the pairs are not in the order that the seed gives"


def _findings(_: Certificate, record: ExamRecord, name: str) -> Iterator[str]:
    exam = replay_record(record)
    if exam.verdict is None:
        yield f"{name}: its pairs do not lead to a verdict"
        return
    recomputed, stored = _flatten(compute_findings(exam)), _flatten(record.findings)
    for key in dict.fromkeys([*recomputed, *stored]):
        if _differ(stored.get(key), recomputed.get(key)):
            yield f"{name}: {key} is {stored.get(key)}, recomputed {recomputed.get(key)}"


def _flatten(findings: Findings) -> dict[str, object]:
    """The findings by key; those about the guard each have a key of their own."""
    found = findings.model_dump()
    guard = found.pop("guard", None) or {}
    return {**found, **{f"{key} of the guard": value for key, value in guard.items()}}


def _differ(stored: object, recomputed: object) -> bool:
    if isinstance(stored, float) and isinstance(recomputed, float):
        return not isclose(stored, recomputed, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return stored != recomputed


def _verdicts(records: Sequence[ExamRecord]) -> str:
    return ", ".join(str(record.findings.verdict) for record in records) or "none"
