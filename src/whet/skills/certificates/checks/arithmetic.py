"""Recompute a certificate from its own numbers: seed, chain, levels, order of tasks, evidence, verdicts.

This shows that the verdicts follow from the scores. Only the run folder shows that rollouts had these scores.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import fsum, isclose

from whet.skills.certificates.certificate import Certificate, ExamRecord, Findings, compute_findings, replay_record
from whet.skills.certificates.checks.check import (
    CheckLine,
    CheckResult,
    CheckState,
    count_of,
    judge_lines,
    make_line,
    not_checked,
)
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
    within = "coverage, beta, minimum effect and margin are within their bounds"
    levels = f"{certificate.alpha:g}; levels of the exams: {_levels(certificate)}"
    return [
        judge_lines("alpha", _alpha(certificate), levels),
        judge_lines("terms", _each(certificate, _terms), within),
        _seed(certificate),
        judge_lines("exams", _order(certificate), f"{exams} in one chain that starts at the commitment"),
        judge_lines("order", _each(certificate, _tasks), f"{pairs} in the order that the seed gives"),
        judge_lines("verdicts", _each(certificate, _findings), f"recomputed from {pairs}: {_verdicts(records)}"),
    ]


def problems(certificate: Certificate) -> list[str]:
    """The failed checks of the arithmetic; empty when all of them hold."""
    return [check.found for check in check_arithmetic(certificate) if check.state is CheckState.FAILED]


def _each(
    certificate: Certificate, check: Callable[[Certificate, ExamRecord, str], Iterator[CheckLine]]
) -> Iterator[CheckLine]:
    for record in certificate.records:
        yield from check(certificate, record, f"exam {record.number}")
    if certificate.shortening is not None:
        yield from check(certificate, certificate.shortening.record, "shortening")


def _alpha(certificate: Certificate) -> Iterator[CheckLine]:
    alpha, records = certificate.alpha, certificate.records
    yield make_line(
        "alpha is within its bounds",
        f"{alpha:g}",
        f"at most {MOST_ALPHA}",
        wrong=not 0 < alpha <= MOST_ALPHA,
        problem=f"alpha is {alpha:g}; expected more than 0 and at most {MOST_ALPHA}",
    )
    for number, record in enumerate(records, 1):
        level, expected = record.terms.level, certificate.level(number)
        yield make_line(
            f"exam {number}: its level is its share of alpha",
            f"{level:g}",
            f"{expected:g}",
            wrong=not isclose(level, expected, rel_tol=_CLOSE),
            problem=f"exam {number}: its level is {level:g}, not {expected:g}",
        )
    whole, many = fsum(record.terms.level for record in records), certificate.single and len(records) > 1
    spent = f"the certificate spends all of alpha on a single exam, but has {len(records)} exams"
    yield make_line(
        "the levels of all exams add up to at most alpha",
        f"{whole:g}",
        f"at most {alpha:g}",
        wrong=many or whole > alpha * (1 + _CLOSE),
        problem=spent if many else "",
    )


def _levels(certificate: Certificate) -> str:
    return ", ".join(f"{record.terms.level:g}" for record in certificate.records) or "none"


def _terms(certificate: Certificate, record: ExamRecord, name: str) -> Iterator[CheckLine]:
    terms = record.terms
    needs = f"{name}: the coverage that it needs"
    low = terms.coverage < LEAST_COVERAGE
    told = f"{needs} is {terms.coverage:g}; expected at least {LEAST_COVERAGE}"
    yield make_line(needs, f"{terms.coverage:g}", f"at least {LEAST_COVERAGE}", wrong=low, problem=told)
    yield _at_most(name, "beta (giving_up)", terms.beta, MOST_BETA)
    yield _at_most(name, "minimum effect (worth)", terms.minimum_effect, MOST_EFFECT)
    yield make_line(
        f"{name}: its pairs",
        f"{len(record.positions)}, planned {terms.max_pairs}",
        f"at most {MANY}",
        wrong=terms.max_pairs > MANY or len(record.positions) > MANY,
        problem=f"{name}: has {terms.max_pairs} pairs; expected at most {MANY}",
    )
    yield from _margin(certificate, record, name)
    if _is_removal(certificate, record):
        yield from _removal(certificate, record)


def _at_most(name: str, what: str, value: float, most: float) -> CheckLine:
    problem = f"{name}: {what} is {value:g}; expected at most {most}"
    return make_line(f"{name}: {what}", f"{value:g}", f"at most {most}", wrong=value > most, problem=problem)


def _margin(certificate: Certificate, record: ExamRecord, name: str) -> Iterator[CheckLine]:
    margin, what = record.terms.margin, f"{name}: its margin"
    if margin and not (_is_removal(certificate, record) or certificate.single):
        yield make_line(what, f"{margin:g}", "0", wrong=True, problem=f"{what} is {margin:g}, not 0")
    told = f"{what} is {margin:g}; expected at most {MOST_MARGIN}"
    yield make_line(what, f"{margin:g}", f"at most {MOST_MARGIN}", wrong=margin > MOST_MARGIN, problem=told)


def _is_removal(certificate: Certificate, record: ExamRecord) -> bool:
    return certificate.shortening is not None and record is certificate.shortening.record


def _removal(certificate: Certificate, record: ExamRecord) -> Iterator[CheckLine]:
    last, certified = certificate.last_certified, certificate.certified
    strange = last is None or record.incumbent != certified
    told = f"shortening: expected an exam of the certified skill {certified[:8]}"
    yield make_line("shortening: its old skill", record.incumbent[:8], certified[:8], wrong=strange, problem=told)
    if last is None or strange:
        return
    half = last.findings.at_least / 2
    yield make_line(
        "shortening: its margin is at most half of the certified lift",
        f"{record.terms.margin:g}",
        f"at most {half:g}",
        wrong=record.terms.margin > half + _CLOSE,
        problem="shortening: its margin is more than half of the certified lift",
    )
    yield _at_most("shortening", "its level", record.terms.level, MOST_ALPHA)
    link = _link(certificate, certificate.records[-1])
    told = "shortening: does not follow the last exam"
    what = "shortening: follows the last exam"
    yield make_line(what, record.previous[:8], link[:8], wrong=record.previous != link, problem=told)


def _seed(certificate: Certificate) -> CheckResult:
    seed = certificate.seed
    what = "commitment to the seed, made before the first exam"
    told = "the seed does not match the commitment made before the first exam"
    wrong = certificate.commitment != seed.commitment
    fits = make_line(what, certificate.commitment, seed.commitment, wrong=wrong, problem=told)
    if wrong or seed.drawn:
        return judge_lines("seed", [fits], DRAWN.format(certificate.commitment))
    chosen = CheckLine("the seed was drawn at random", seed.origin, "", CheckState.NOT_CHECKED)
    return replace(not_checked("seed", CHOSEN.format(seed.origin)), lines=(fits, chosen))


def _order(certificate: Certificate) -> Iterator[CheckLine]:
    """The chain of exams, and the incumbent of each exam."""
    link, incumbent = certificate.commitment, certificate.start
    tried: set[tuple[str, str]] = set()
    for number, record in enumerate(certificate.records, 1):
        yield from _place(record, number, link, incumbent)
        skills = record.incumbent, record.candidate
        yield make_line(
            f"exam {record.number}: its two skills were not compared before",
            " and ".join(one[:8] for one in skills),
            "new",
            wrong=record.candidate == record.incumbent or skills in tried,
            problem=f"exam {record.number}: these two skills were compared before",
        )
        tried.add(skills)
        link = _link(certificate, record)
        if _was_next(certificate, number):
            incumbent = record.candidate
    last = certificate.last_certified
    certified, expected = certificate.certified, last.candidate if last else certificate.start
    told = f"certified is {certified[:8]}, but the exams certify {expected[:8]}"
    yield make_line("the certified skill", certified[:8], expected[:8], wrong=certified != expected, problem=told)


def _place(record: ExamRecord, number: int, link: str, incumbent: str) -> Iterator[CheckLine]:
    """The number of an exam, what it follows, and the skill that it has to beat."""
    name, old = f"exam {record.number}", record.incumbent
    told = f"{name}: expected exam {number}"
    yield make_line(f"{name}: its number", record.number, number, wrong=record.number != number, problem=told)
    told, before = f"{name}: does not follow the exam before it", record.previous
    what = f"{name}: follows the {'exam before it' if number > 1 else 'commitment'}"
    yield make_line(what, before[:8], link[:8], wrong=before != link, problem=told)
    told = f"{name}: its old skill is {old[:8]}, expected {incumbent[:8]}"
    yield make_line(f"{name}: its old skill", old[:8], incumbent[:8], wrong=old != incumbent, problem=told)


def _was_next(certificate: Certificate, number: int) -> bool:
    """Whether the candidate of an exam became the next incumbent. Later pairs can withhold a verdict after the fact;
    the exams that were taken in between stay."""
    record, later = certificate.records[number - 1], certificate.records[number:]
    if record.findings.verdict is Verdict.WITHHELD:
        return any(one.incumbent == record.candidate for one in later)
    return record.findings.verdict is Verdict.CERTIFIED


def exam_of(certificate: Certificate, record: ExamRecord) -> ExamSequence:
    """Rebuild the exam of a record from the seed and the tasks of the certificate."""
    value = certificate.seed.value
    seed = f"beside {value}" if _is_removal(certificate, record) else value
    return ExamSequence(
        record.incumbent, record.candidate, tuple(certificate.tasks), seed, record.number, record.previous
    )


def _link(certificate: Certificate, record: ExamRecord) -> str:
    return exam_of(certificate, record).link


def _tasks(certificate: Certificate, record: ExamRecord, name: str) -> Iterator[CheckLine]:
    exam, positions = exam_of(certificate, record), record.positions
    other, what = exam.id != record.exam, f"{name}: its id, from old skill, seed, number and tasks"
    told = f"{name}: its id does not fit its old skill, seed, number and tasks"
    yield make_line(what, record.exam, exam.id, wrong=other, problem=told)
    same = sum(exam.task_at(number) == one.task for number, one in enumerate(positions))
    yield make_line(
        f"{name}: the tasks of its pairs, drawn again",
        count_of(len(positions), "pair"),
        f"{same} the same",
        wrong=same < len(positions),
        problem="" if other else f"{name}: the pairs are not in the order that the seed gives",
    )


def _findings(_: Certificate, record: ExamRecord, name: str) -> Iterator[CheckLine]:
    exam = replay_record(record)
    if exam.verdict is None:
        told = f"{name}: its pairs do not lead to a verdict"
        yield make_line(f"{name}: verdict", record.findings.verdict, "none", wrong=True, problem=told)
        return
    recomputed, stored = _flatten(compute_findings(exam)), _flatten(record.findings)
    for key in dict.fromkeys([*recomputed, *stored]):
        mine, again = stored.get(key), recomputed.get(key)
        told = f"{name}: {key} is {mine}, recomputed {again}"
        what = f"{name}: {_WORDS.get(key, key)}"
        yield make_line(what, _show(mine), _show(again), wrong=_differ(mine, again), problem=told)


_WORDS = {
    "decided_at": "pairs up to the verdict",
    "log_evidence": "logarithm of the e-value",
    "at_least": "lower bound of the lift",
    "at_most": "upper bound of the lift",
    "estimate": "mean difference after the verdict",
    "coverage": "share of pairs with both scores",
    "incumbent": "rollouts of the old skill",
    "candidate": "rollouts of the new skill",
    "withheld": "reasons to withhold the verdict",
}
"""What the keys of findings mean."""


def _show(value: object) -> str:
    """
    >>> _show(0.25), _show({"rollouts": 3, "lost": {"model": 1}, "resent_calls": 2}), _show(None), _show(())
    ('0.25', '3 rollouts, lost by model 1, resent calls 2', 'nothing', 'none')
    """
    match value:
        case float():
            return f"{value:.6g}"
        case None:
            return "nothing"
        case ():
            return "none"
        case {"rollouts": rollouts, "lost": lost, **more}:
            causes = [f"lost by {cause} {count}" for cause, count in lost.items()]
            others = [f"{str(what).replace('_', ' ')} {count}" for what, count in more.items() if count]
            return ", ".join([f"{rollouts} rollouts", *causes, *others])
    return str(value)


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
