"""The gate: exams one after the other, each at half the level of the one before, with fresh pairs of rollouts."""

from dataclasses import dataclass, field
from typing import Protocol

from whet.skills.gate.exam import ExamSequence, RolloutBudget, run_exam, tighten
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.gate.sequential_test import SequentialTest
from whet.skills.measurement import ReadExecution, Rollouts, Verdict, clean_execution

FEWEST = 20
"""While the search is open, an exam that cannot afford this many pairs is not started, and uses no level."""


@dataclass(frozen=True, slots=True)
class ExamResult:
    """One exam of one candidate, and its test."""

    exam: ExamSequence
    test: SequentialTest

    @property
    def candidate(self) -> str:
        return self.exam.candidate

    @property
    def level(self) -> float:
        return self.test.terms.level


class ExamJournal(Protocol):
    """Records exams when they start, for a resumed run and for the check of a certificate."""

    def record_start(self, exam: ExamSequence) -> None:
        """Record an exam before its first rollout."""
        ...

    def record_cut(self, exam: ExamSequence, pairs: int) -> None:
        """Record that the budget ended an exam after this many pairs while the search was open."""
        ...

    def find_cut(self, exam: ExamSequence) -> int | None:
        """After how many pairs the budget ended an exam; None when it did not."""
        ...


class NoJournal:
    """A journal for runs that are never resumed."""

    def record_start(self, exam: ExamSequence) -> None: ...

    def record_cut(self, exam: ExamSequence, pairs: int) -> None: ...

    def find_cut(self, exam: ExamSequence) -> int | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class ExamSetting:
    """How the exams of a run are held: on which tasks, in which order, recorded where."""

    tasks: tuple[str, ...]
    """Ids of the validation tasks."""
    seed: Seed
    """The order of every exam is drawn from this seed."""
    journal: ExamJournal = field(default_factory=NoJournal)
    read_execution: ReadExecution = clean_execution


class Gate:
    """Tests candidates against the last certified skill."""

    def __init__(
        self, start: str, setting: ExamSetting, budget: RolloutBudget, plan: GatePlan, rollouts: Rollouts
    ) -> None:
        self.incumbent, self.budget = start, budget
        self._setting, self._plan, self._rollouts = setting, plan, rollouts
        self.exam_results: list[ExamResult] = []
        """All exams so far."""

    @property
    def link(self) -> str:
        """What the next exam refers to."""
        return self.exam_results[-1].exam.link if self.exam_results else self._setting.seed.commitment

    @property
    def undecided(self) -> list[ExamResult]:
        """Exams against the incumbent that can be continued, the last one first."""
        mine = (one for one in reversed(self.exam_results) if one.exam.incumbent == self.incumbent)
        return [one for one in mine if one.test.can_continue]

    async def run_early_exam(self, candidate: str) -> ExamResult | None:
        """Test a candidate while the search is open. It may use at most half of the budget: other exams follow."""
        if self._plan.one_exam or candidate == self.incumbent or self._find(candidate) is not None:
            return None
        result = self._new(candidate)
        planned = min(self.budget.pairs // 2, self._plan.max_pairs(len(self._setting.tasks)))
        if planned < max(FEWEST, result.test.fewest_to_start):
            return None
        journal = self._setting.journal
        cut = journal.find_cut(result.exam)
        found = await self._advance(result, planned if cut is None else cut)
        if result.test.terms.max_pairs < planned:
            journal.record_cut(result.exam, len(result.test.pairs))
        return found

    async def run_exam(self, candidate: str, max_pairs: int | None = None) -> ExamResult | None:
        """Test a candidate against the incumbent, or continue its undecided exam at its own level, for at most this
        many further pairs. None when it already has a verdict, or the pairs are too few to certify anything."""
        before = self._find(candidate)
        if candidate == self.incumbent or (before is not None and not before.test.can_continue):
            return None
        result = before or self._new(candidate)
        affordable = self.budget.pairs if max_pairs is None else min(max_pairs, self.budget.pairs)
        return await self._advance(result, affordable) if affordable >= result.test.fewest_to_start else None

    async def _advance(self, result: ExamResult, pairs: int) -> ExamResult | None:
        """Run at most this many further pairs of an exam; None when the exam has no pair at all."""
        if pairs:
            result.test.extend(pairs)
            self._setting.journal.record_start(result.exam)
            await run_exam(result.exam, result.test, self._rollouts, self.budget, self._setting.read_execution)
        if not result.test.pairs:
            return None
        if result not in self.exam_results:
            self.exam_results.append(result)
        if result.test.verdict is Verdict.CERTIFIED:
            self.incumbent = result.candidate
        return result

    async def tighten(self, result: ExamResult) -> None:
        """Continue an exam after its verdict, as far as the budget and the plan allow."""
        most = self._plan.max_pairs(len(self._setting.tasks))
        await tighten(result.exam, result.test, most, self._rollouts, self.budget, self._setting.read_execution)
        if result.candidate == self.incumbent and result.test.verdict is not Verdict.CERTIFIED:
            self.incumbent = result.exam.incumbent

    async def run_side_exam(self, candidate: str, test: SequentialTest) -> ExamResult:
        """Test a candidate against the incumbent on the test's own terms. It is not one of the gate's exams, and uses
        none of their levels."""
        seed = f"beside {self._setting.seed.value}"
        exam = ExamSequence(self.incumbent, candidate, self._setting.tasks, seed, 1, self.link)
        await run_exam(exam, test, self._rollouts, self.budget, self._setting.read_execution)
        return ExamResult(exam, test)

    def _find(self, candidate: str) -> ExamResult | None:
        wanted = self.incumbent, candidate
        return next((one for one in self.exam_results if (one.exam.incumbent, one.candidate) == wanted), None)

    def _new(self, candidate: str) -> ExamResult:
        setting, number = self._setting, len(self.exam_results) + 1
        exam = ExamSequence(self.incumbent, candidate, setting.tasks, setting.seed.value, number, self.link)
        return ExamResult(exam, SequentialTest(self._plan.terms(self._plan.level(number), 1)))
