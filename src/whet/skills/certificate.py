"""Certificates: all that the verdicts of a run rest on, so that anyone can find them again without trusting the run."""

from collections.abc import Sequence
from itertools import islice
from math import fsum, isclose
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from whet.errors import UserError
from whet.explain import explain
from whet.skills.attempt import Attempt, Lost, Outcome, Position, Terms, Verdict, levels, replayed
from whet.skills.engine import Sharpened
from whet.skills.exam import Exam
from whet.skills.gate import Held
from whet.skills.kinds import GateKind
from whet.skills.ledger import Used, set_digest
from whet.skills.sealed import Tested
from whet.skills.shorten import FIRST_EXAM

CERTIFICATE = "certificate.json"
_CLOSE = 1e-6
"""How far a number may be from what it is recomputed to be."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


_Scored = Annotated[float, Field(ge=0, le=1)] | Lost


class Taken(_Stored):
    """One position of an exam."""

    task: str
    incumbent: tuple[_Scored, ...]
    candidate: _Scored
    """A score, or why there is none."""


class Findings(_Stored):
    """What positions come to."""

    verdict: Verdict
    decided_at: int
    """Positions up to the verdict. Those after it sharpen the bounds and change nothing else."""
    log_evidence: float
    """Logarithm of the e-value against "no better", after all positions."""
    at_least: float
    """The lift is at least this, at the level of the attempt."""
    at_most: float
    estimate: float | None
    """Mean difference after the verdict; up to it, chance had a say in when to stop."""
    coverage: float


class Record(_Stored):
    """One attempt."""

    exam: str
    number: int
    """Of the exam in its run."""
    incumbent: str
    candidate: str
    """Digests of both skills."""
    terms: Terms
    positions: tuple[Taken, ...]
    findings: Findings


class Shortening(_Stored):
    """What was dropped again from the certified skill, or tried to be, because it carries nothing."""

    skill: str
    """Digest of what is left; that of the certified skill when all of it was needed."""
    margin: float
    """What is left is worse than the certified skill by no more than this."""
    alpha: float
    """The chance that it is worse by more."""
    levels: tuple[tuple[float, ...], ...]
    records: tuple[Record, ...]
    """The skill without something, each against the certified one; certified is what is not worse than the margin."""


class Certificate(_Stored):
    """All attempts of a run, in their order, and what they were made with."""

    kind: Literal["whet certificate"] = "whet certificate"
    whet: str
    start: str
    """Digest of the skill that the run began with."""
    certified: str
    """Digest of the last certified skill; that of the start when there is none."""
    gate: GateKind = GateKind.CERTIFY
    """Where a classic rule decided instead of exams, there is no certificate."""
    alpha: float
    """The chance that the run certifies anything that is no better than what it replaces."""
    levels: tuple[tuple[float, ...], ...]
    """Of each exam those of its attempts, fixed before the first. All of them together are alpha at most."""
    seed: int
    metric: str = "mean score in [0, 1]"
    made_with: dict[str, Any]
    """Agent, model and sandbox."""
    tasks: dict[str, str]
    """Validation tasks, in the order in which the exams number them, with the digests of all that defines them."""
    records: tuple[Record, ...]
    shortening: Shortening | None = None
    """None when nothing was tried to be dropped."""
    test: Tested | None = None
    used: Used | None = None
    """How often the validation tasks were used to certify, this time included; None when it was not counted."""

    @property
    def tasks_digest(self) -> str:
        """Of the whole validation set."""
        return set_digest(self.tasks)

    @property
    def all_records(self) -> tuple[Record, ...]:
        """Those of removals too."""
        return (*self.records, *(self.shortening.records if self.shortening else ()))

    @property
    def last_certified(self) -> Record | None:
        found = [record for record in self.records if record.findings.verdict is Verdict.CERTIFIED]
        return found[-1] if found else None


def record_of(held: Held) -> Record:
    """An attempt as it is kept."""
    attempt = held.attempt
    return Record(
        exam=held.exam.id,
        number=held.exam.number,
        incumbent=held.exam.incumbent,
        candidate=held.candidate,
        terms=attempt.terms,
        positions=tuple(
            Taken(task=held.exam.task_at(number), incumbent=one.incumbent, candidate=one.candidate)
            for number, one in enumerate(attempt.taken)
        ),
        findings=_findings(attempt),
    )


def shortening_of(done: Sharpened) -> Shortening | None:
    """Removals as they are kept."""
    if not done.removals:
        return None
    plan = done.plan
    exams = 1 + done.removals[-1].held.exam.number - FIRST_EXAM
    return Shortening(
        skill=done.shortened,
        margin=plan.margin,
        alpha=plan.removal_alpha,
        levels=tuple(islice(levels(plan.removal_alpha, plan.attempts), exams)),
        records=tuple(record_of(removal.held) for removal in done.removals),
    )


def problems(certificate: Certificate) -> list[str]:
    """What of a certificate does not hold when it is computed again; nothing when all of it does.

    Whether rollouts had these scores is not computed here: the stores of the run tell.
    """
    if certificate.gate is not GateKind.CERTIFY:
        return [f"there is no certificate: the rule '{certificate.gate}' decided, and it proves nothing"]
    found = [problem for record in certificate.all_records for problem in _problems_of(certificate, record)]
    return [*found, *_problems_of_order(certificate), *_problems_of_shortening(certificate)]


def read_certificate(path: Path) -> Certificate:
    """Read a certificate; UserError when it is none."""
    try:
        return Certificate.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise UserError(f"{path}: expected a certificate: {explain(error, str(path), Certificate)[0]}") from None


def attempt_of(record: Record) -> Attempt:
    """An attempt found again from its positions alone."""
    return replayed(record.terms, [Position(_outcomes(one.incumbent), one.candidate) for one in record.positions])


def _outcomes(given: Sequence[float | Lost]) -> tuple[Outcome, ...]:
    return tuple(given)


def _findings(attempt: Attempt) -> Findings:
    assert attempt.verdict is not None
    assert attempt.decided_at is not None
    return Findings(
        verdict=attempt.verdict,
        decided_at=attempt.decided_at,
        log_evidence=attempt.log_evidence,
        at_least=attempt.at_least(),
        at_most=attempt.at_most(),
        estimate=attempt.estimate(),
        coverage=attempt.coverage,
    )


def _problems_of(certificate: Certificate, record: Record) -> list[str]:
    name = _name(record)
    exam = Exam(record.incumbent, tuple(certificate.tasks), certificate.seed, record.number)
    found = []
    if exam.id != record.exam:
        found.append(f"{name}: the exam is not the one of this incumbent, seed, number and these tasks")
    elif any(exam.task_at(number) != one.task for number, one in enumerate(record.positions)):
        found.append(f"{name}: the positions are not in the order of the exam")
    if any(len(one.incumbent) != record.terms.repeats for one in record.positions):
        return [*found, f"{name}: expected {record.terms.repeats} rollouts of the incumbent at every position"]
    attempt = attempt_of(record)
    if attempt.verdict is None:
        return [*found, f"{name}: its positions come to no verdict"]
    again, told = _findings(attempt).model_dump(), record.findings.model_dump()
    return [
        *found,
        *(
            f"{name}: {key} is {told[key]}, recomputed {value}"
            for key, value in again.items()
            if _differ(told[key], value)
        ),
    ]


def _differ(told: object, again: object) -> bool:
    if isinstance(told, float) and isinstance(again, float):
        return not isclose(told, again, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return told != again


def _problems_of_order(certificate: Certificate) -> list[str]:
    """What does not hold of the attempts together: levels were fixed beforehand, and no pair is tried twice."""
    found = _problems_of_terms(certificate.records, certificate.levels, certificate.alpha, 1, 0.0)
    incumbent, number = certificate.start, 1
    for record in certificate.records:
        # An exam that grew too old is left for one with a higher number.
        if record.incumbent != incumbent or record.number < number:
            found.append(f"{_name(record)}: expected exam {number} of incumbent {incumbent[:8]}, or a later one")
        number = record.number
        if record.findings.verdict is Verdict.CERTIFIED:
            incumbent, number = record.candidate, number + 1
    if certificate.certified != incumbent:
        found.append(f"certified is {certificate.certified[:8]}, but the attempts certify {incumbent[:8]}")
    return found


def _problems_of_shortening(certificate: Certificate) -> list[str]:
    """What does not hold of removals: all are held against the certified skill, before exams of their own numbers."""
    shortening = certificate.shortening
    if shortening is None:
        return []
    levels, margin = shortening.levels, shortening.margin
    found = _problems_of_terms(shortening.records, levels, shortening.alpha, FIRST_EXAM, margin)
    left = certificate.certified
    for record in shortening.records:
        if record.incumbent != certificate.certified:
            found.append(f"{_name(record)}: expected an exam of {certificate.certified[:8]}")
        if record.findings.verdict is Verdict.CERTIFIED:
            left = record.candidate
    if shortening.skill != left:
        found.append(f"what is left is {shortening.skill[:8]}, but the attempts leave {left[:8]}")
    return found


def _problems_of_terms(
    records: Sequence[Record], planned: Sequence[Sequence[float]], alpha: float, first: int, margin: float
) -> list[str]:
    """Levels of attempts: those of their exam, in their order, each used once. The first exam has this number, and all
    attempts have this margin."""
    found = []
    if fsum(level for exam in planned for level in exam) > alpha + _CLOSE:
        found.append(f"the levels of all attempts add up to more than {alpha:g}")
    exams = {number: list(levels) for number, levels in enumerate(planned, first)}
    tried: set[tuple[str, str]] = set()
    for record in records:
        left = exams.get(record.number)
        if not left or not isclose(record.terms.level, left.pop(0)):
            found.append(f"{_name(record)}: its level is not the next one of the exam")
        if not isclose(record.terms.margin, margin):
            found.append(f"{_name(record)}: its margin is not {margin:g}")
        if (record.exam, record.candidate) in tried:
            found.append(f"{_name(record)}: was held before this exam already")
        tried.add((record.exam, record.candidate))
    return found


def _name(record: Record) -> str:
    return f"exam {record.number}, candidate {record.candidate[:8]}"
