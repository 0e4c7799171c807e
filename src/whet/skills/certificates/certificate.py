"""Certificates: all that the verdicts of a run rest on, so that anyone can find them again without trusting the run."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


class PairRecord(_Stored):
    """One position of an exam."""

    task: str
    incumbent: _Scored
    candidate: _Scored
    """A score, or why there is none."""
    tries: tuple[_Count, _Count] = (1, 1)
    """How often the incumbent's rollout was begun, and the candidate's."""
    resent: tuple[_Count, _Count] = (0, 0)
    """Calls that were sent again in each."""


class ArmProblems(_Stored):
    """What went wrong with one arm's rollouts."""

    rollouts: int
    lost: dict[str, int]
    """Rollouts without a score, by cause."""
    redone: int
    """Rollouts that were begun more than once: whet was stopped, or the model was down for both arms."""
    resent: int
    """Rollouts with calls that were sent again."""
    resent_calls: int


class Findings(_Stored):
    """What positions come to."""

    verdict: Verdict
    decided_at: int
    """Positions up to the verdict. Those after it sharpen the bounds."""
    log_evidence: float
    """Logarithm of the e-value against "no better", after all positions."""
    at_least: float
    """The lift is at least this, at the level of the attempt."""
    at_most: float
    estimate: float | None
    """Mean difference after the verdict; up to it, chance had a say in when to stop."""
    coverage: float
    incumbent: ArmProblems
    candidate: ArmProblems
    withheld: tuple[str, ...] = ()
    """What differs between the arms by more than chance explains. With any of these no verdict is given."""


class ExamRecord(_Stored):
    """One attempt."""

    exam: str
    number: int
    """Of the attempt in its run."""
    previous: str
    """Link of the attempt before this one; of the first, the commitment to the seed."""
    incumbent: str
    candidate: str
    """Digests of both skills."""
    terms: ExamTerms
    positions: tuple[PairRecord, ...]
    findings: Findings
    reported: dict[str, tuple[int, int]] = {}
    """Names and fingerprints that replies gave of the model: in how many rollouts of each arm."""


class Shortening(_Stored):
    """A version of the certified skill from which all was left out at once that the search saw little of."""

    units: tuple[str, ...]
    """What was left out."""
    record: ExamRecord
    """The shorter skill against the certified one; certified when it is worse by no more than the margin."""


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
    single: bool = False
    """Whether one attempt is all there can be, which then has the whole of alpha. Otherwise the first has half of it,
    the next a quarter, and so on."""
    seed: Seed
    """What the order of tasks was drawn from."""
    commitment: str
    """Digest of the seed, as it was written down and shown before the first exam."""
    metric: Literal["mean score in [0, 1]"] = "mean score in [0, 1]"
    made_with: dict[str, Any]
    """Agent, model and sandbox."""
    tasks: dict[str, str]
    """Validation tasks, in the order in which the exams number them, with the digests of all that defines them."""
    records: tuple[ExamRecord, ...]
    shortening: Shortening | None = None
    """None when nothing was tried to be left out."""
    test: FinalTest | None = None
    used: LedgerEntry | None = None
    """How often the validation tasks were used to certify, this time included; None when it was not counted."""

    @property
    def tasks_digest(self) -> str:
        """Of the whole validation set."""
        return set_digest(self.tasks)

    @property
    def all_records(self) -> tuple[ExamRecord, ...]:
        """Those of removals too."""
        return (*self.records, *([self.shortening.record] if self.shortening else []))

    @property
    def last_certified(self) -> ExamRecord | None:
        found = [record for record in self.records if record.findings.verdict is Verdict.CERTIFIED]
        return found[-1] if found else None

    def level(self, number: int) -> float:
        """What an attempt of this number may have."""
        return self.alpha if self.single and number == 1 else level_of(self.alpha, number)


def make_record(held: ExamResult) -> ExamRecord:
    """An attempt as it is kept."""
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
            )
            for number, one in enumerate(attempt.pairs)
        ),
        findings=compute_findings(attempt),
        reported=attempt.reported_models,
    )


def make_shortening(removal: Removal | None) -> Shortening | None:
    """A removal as it is kept."""
    return None if removal is None else Shortening(units=removal.units, record=make_record(removal.exam_result))


def read_certificate(path: Path) -> Certificate:
    """Read a certificate; UserError when it is none."""
    try:
        data = path.read_bytes()
        found = Certificate.model_validate_json(data)
        json.loads(data, object_pairs_hook=_refuse_double_keys)
        return found
    except DoubleKeyError as error:
        raise UserError(f"{path}: expected a certificate: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise UserError(f"{path}: expected a certificate: {explain(error, str(path), Certificate)[0]}") from None


class DoubleKeyError(Exception):
    """An object has a key twice: programs take the last, and people read the first."""


def _refuse_double_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise DoubleKeyError(f"key '{twice}' is there twice")
    return found


def replay_record(record: ExamRecord) -> SequentialTest:
    """An attempt found again from its positions alone."""
    return replay(
        record.terms,
        [
            Pair(
                one.incumbent,
                one.candidate,
                (Execution(one.tries[0], one.resent[0]), Execution(one.tries[1], one.resent[1])),
            )
            for one in record.positions
        ],
    )


def compute_findings(attempt: SequentialTest) -> Findings:
    """What an attempt that has its verdict comes to."""
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
    )
