"""Certificates: the evidence of all verdicts of a run, so that anyone can recompute them without trusting the run."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from whet.errors import UserError
from whet.scoring import Cause
from whet.skills.gate.alpha_ledger import LedgerEntry, set_digest
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.seed import Seed
from whet.skills.gate.sequential_test import ExamTerms, Pair, SequentialTest, level_of, replay
from whet.skills.measurement import Execution, Verdict
from whet.skills.rollouts.final_test import FinalTest
from whet.skills.search.shorten import Removal
from whet.validation_errors import explain

CERTIFICATE = "certificate.json"


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, serialize_by_alias=True)


_Scored = Annotated[float, Field(ge=0, le=1)] | Cause
_Count = Annotated[int, Field(ge=0)]


def _is_none(value: object) -> bool:
    """Certificates of runs without a guard have no keys about a guard."""
    return value is None


class PairRecord(_Stored):
    """One pair of an exam."""

    task: str
    incumbent: _Scored
    candidate: _Scored
    """A score, or the cause of a missing score."""
    tries: tuple[_Count, _Count] = (1, 1)
    """How often the incumbent's rollout was started, and the candidate's."""
    resent: tuple[_Count, _Count] = (0, 0)
    """Re-sent model calls in each rollout."""
    guard: tuple[_Scored, _Scored] | None = Field(default=None, exclude_if=_is_none)
    """Scores of the guard in both rollouts."""


class ArmProblems(_Stored):
    """Problems of the rollouts of one skill."""

    rollouts: int
    lost: dict[str, int]
    """Rollouts without a score, by cause."""
    redone: int
    """Rollouts that were started more than once: whet was stopped, or the model was down for both skills."""
    resent: int
    """Rollouts with re-sent model calls."""
    resent_calls: int


class GuardFindings(_Stored):
    """What an exam with a guard found about each of its two tests."""

    target_shown: bool
    """Whether it was shown that the new skill is better."""
    shown: bool
    """Whether it was shown that the guard is not worse than its margin allows."""
    harmed: bool
    """Whether the guard is likely worse than that."""
    log_evidence: float
    """Logarithm of the e-value of the guard against "worse than the margin allows"."""


class Findings(_Stored):
    """The result of an exam, computed from its pairs."""

    verdict: Verdict
    decided_at: int
    """Pairs up to the verdict. Later pairs tighten the bounds."""
    log_evidence: float
    """Logarithm of the e-value against "not better", after all pairs."""
    at_least: float
    """Lower bound of the lift, at the level of the exam."""
    at_most: float
    estimate: float | None
    """Mean difference after the verdict. Up to the verdict, the stopping rule biases the mean."""
    coverage: float
    incumbent: ArmProblems
    candidate: ArmProblems
    withheld: tuple[str, ...] = ()
    """Problems that differ between the skills by more than chance explains. Any of these withholds the verdict."""
    guard: GuardFindings | None = Field(default=None, exclude_if=_is_none)


class ExamRecord(_Stored):
    """One exam."""

    exam: str
    number: int
    """Number of the exam in its run."""
    previous: str
    """Link of the exam before this one; for the first exam, the commitment to the seed."""
    incumbent: str
    candidate: str
    """Digests of both skills."""
    terms: ExamTerms
    positions: tuple[PairRecord, ...]
    findings: Findings
    reported: dict[str, tuple[int, int]] = {}
    """Names and fingerprints of the model in replies, with the number of rollouts of each skill."""

    @model_validator(mode="after")
    def _guard_everywhere(self) -> Self:
        parts = {self.terms.guard is None, self.findings.guard is None, *(one.guard is None for one in self.positions)}
        if len(parts) > 1:
            raise ValueError(f"exam {self.number} has a guard in some parts only")
        return self


class Shortening(_Stored):
    """A version of the certified skill without the learned units that had little effect in the search."""

    units: tuple[str, ...]
    """The removed units."""
    record: ExamRecord
    """Exam of the shorter skill against the certified one. It passes if it is worse by no more than the margin."""


class Certificate(_Stored):
    """All exams of a run, in order, and its setup."""

    kind: Literal["whet certificate"] = "whet certificate"
    whet: str
    start: str
    """Digest of the first skill of the run."""
    certified: str
    """Digest of the last certified skill; the start when none was certified."""
    gate: GateKind = GateKind.CERTIFY
    """Where a rule decides instead of exams, nothing is certified."""
    alpha: float
    """Maximum chance that the run certifies a skill that is not better than the skill it replaces."""
    single: bool = False
    """Whether the run has only one exam, which then uses all of alpha. Otherwise the first exam uses half of alpha, the
    next a quarter, and so on."""
    seed: Seed
    """The order of tasks is drawn from this seed."""
    commitment: str
    """Digest of the seed, shown before the first exam."""
    metric: Literal["mean score in [0, 1]"] = "mean score in [0, 1]"
    made_with: dict[str, Any]
    """Agent, model and sandbox."""
    tasks: dict[str, str]
    """Validation tasks in their order in the run, with their digests."""
    records: tuple[ExamRecord, ...]
    shortening: Shortening | None = None
    """None when the run did not try to shorten the skill."""
    test: FinalTest | None = None
    used: LedgerEntry | None = None
    """How often the validation tasks were used to certify, including this run; None when there was no exam."""

    @property
    def tasks_digest(self) -> str:
        """Digest of the whole validation set."""
        return set_digest(self.tasks)

    @property
    def all_records(self) -> tuple[ExamRecord, ...]:
        """All exams, including the exam of a shorter version."""
        return (*self.records, *([self.shortening.record] if self.shortening else []))

    @property
    def guard(self) -> str | None:
        """Name of the judge that must not get worse; None without one."""
        return next((record.terms.guard.judge for record in self.records if record.terms.guard), None)

    @property
    def last_certified(self) -> ExamRecord | None:
        found = [record for record in self.records if record.findings.verdict is Verdict.CERTIFIED]
        return found[-1] if found else None

    def level(self, number: int) -> float:
        """The level of the exam with this number."""
        return self.alpha if self.single and number == 1 else level_of(self.alpha, number)


def make_record(held: ExamResult) -> ExamRecord:
    """Make the record of an exam."""
    exam, attempt = held.exam, held.test
    return ExamRecord(
        exam=exam.id,
        number=exam.number,
        previous=exam.previous,
        incumbent=exam.incumbent,
        candidate=exam.candidate,
        terms=attempt.terms,
        positions=tuple(
            PairRecord(
                task=exam.task_at(number),
                incumbent=one.incumbent,
                candidate=one.candidate,
                tries=(one.executions[0].tries, one.executions[1].tries),
                resent=(one.executions[0].resent, one.executions[1].resent),
                guard=(one.guard.incumbent, one.guard.candidate) if attempt.terms.guard else None,
            )
            for number, one in enumerate(attempt.pairs)
        ),
        findings=compute_findings(attempt),
        reported=attempt.reported_models,
    )


def make_shortening(removal: Removal | None) -> Shortening | None:
    """Make the record of a removal."""
    return None if removal is None else Shortening(units=removal.units, record=make_record(removal.exam_result))


def read_certificate(path: Path) -> Certificate:
    """Read a certificate; UserError when the file is not one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_certificate(data, str(path))


def parse_certificate(data: bytes, name: str) -> Certificate:
    """Read a certificate from the bytes of a file with this name; UserError when it is none."""
    try:
        found = Certificate.model_validate_json(data)
        json.loads(data, object_pairs_hook=_refuse_double_keys)
        return found
    except DoubleKeyError as error:
        raise UserError(f"{name}: expected a certificate: {error}") from None
    except ValidationError as error:
        raise UserError(f"{name}: expected a certificate: {explain(error, name, Certificate)[0]}") from None


class DoubleKeyError(Exception):
    """An object has a key twice: programs use the last one, and people read the first."""


def _refuse_double_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise DoubleKeyError(f"key '{twice}' occurs twice")
    return found


def replay_record(record: ExamRecord) -> SequentialTest:
    """Run the test of an exam again on its recorded pairs."""
    return replay(
        record.terms,
        [
            Pair(
                one.incumbent,
                one.candidate,
                _executions(one),
            )
            for one in record.positions
        ],
    )


def _executions(one: PairRecord) -> tuple[Execution, Execution]:
    guard = one.guard or (None, None)
    old, new = (Execution(one.tries[arm], one.resent[arm], guard=guard[arm]) for arm in range(2))
    return old, new


def compute_findings(attempt: SequentialTest) -> Findings:
    """Compute the findings of a test that has its verdict."""
    assert attempt.verdict is not None
    assert attempt.decided_at is not None
    old, new = attempt.arms
    return Findings(
        verdict=attempt.verdict,
        decided_at=attempt.decided_at,
        log_evidence=attempt.log_evidence,
        at_least=attempt.at_least(),
        at_most=attempt.at_most(),
        estimate=attempt.estimate(),
        coverage=attempt.coverage,
        incumbent=ArmProblems(**asdict(old)),
        candidate=ArmProblems(**asdict(new)),
        withheld=tuple(attempt.differences_between_arms()),
        guard=None
        if attempt.guard is None
        else GuardFindings(
            target_shown=attempt.is_target_shown,
            shown=attempt.is_guard_shown,
            harmed=attempt.guard.is_harmed,
            log_evidence=attempt.guard.log_evidence,
        ),
    )
