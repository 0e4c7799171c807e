"""The gate: attempts one after the other, each at half the level of the one before, in fresh pairs of rollouts."""

from dataclasses import dataclass
from typing import Protocol

from whet.skills.gate.exam import Exam, RolloutBudget, run_exam, tighten
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.gate.sequential_test import SequentialTest, level_of
from whet.skills.measurement import ReadNotes, Rollouts, Verdict, no_notes

FEWEST = 20
"""While the search is open, an attempt that cannot afford so many positions is not begun, and uses up no level."""


@dataclass(frozen=True, slots=True)
class ExamResult:
    """One attempt: a candidate before an exam."""

    exam: Exam
    attempt: SequentialTest

    @property
    def candidate(self) -> str:
        return self.exam.candidate

    @property
    def level(self) -> float:
        return self.attempt.terms.level


class ExamJournal(Protocol):
    """Where attempts are written down as they begin, for a run that is resumed and for whoever checks it."""

    def opened(self, exam: Exam) -> None:
        """An attempt is about to begin."""
        ...

    def cut(self, exam: Exam, positions: int) -> None:
        """The budget ended an attempt after so many positions, while the search was open."""
        ...

    def cut_of(self, exam: Exam) -> int | None:
        """After how many positions the budget ended an attempt then; None when it did not."""
        ...


class NoJournal:
    """A journal of nothing, for runs that are never resumed."""

    def opened(self, exam: Exam) -> None:
        """Nothing to write down."""

    def cut(self, exam: Exam, positions: int) -> None:
        """Nothing to write down."""

    def cut_of(self, exam: Exam) -> int | None:  # noqa: ARG002
        """Not known."""
        return None


class Gate:
    """Holds candidates against the last certified skill."""

    def __init__(
        self,
        start: str,
        tasks: tuple[str, ...],
        purse: RolloutBudget,
        plan: GatePlan,
        rollouts: Rollouts,
        seed: Seed,
        journal: ExamJournal | None = None,
        read_notes: ReadNotes = no_notes,
    ) -> None:
        self.incumbent, self.purse = start, purse
        self._tasks, self._plan, self._rollouts, self._seed = tasks, plan, rollouts, seed
        self._journal, self._read_notes = journal or NoJournal(), read_notes
        self.held: list[ExamResult] = []
        """All attempts so far."""

    @property
    def link(self) -> str:
        """What the next attempt carries of those before it."""
        return self.held[-1].exam.link if self.held else self._seed.commitment

    @property
    def undecided(self) -> list[ExamResult]:
        """Attempts against the incumbent that can be continued, the last one first."""
        return [one for one in reversed(self.held) if one.exam.incumbent == self.incumbent and one.attempt.can_continue]

    async def run_early_exam(self, candidate: str) -> ExamResult | None:
        """Hold a candidate while the search is open: others follow, so it may use half of the purse at most."""
        if candidate == self.incumbent or self._before(candidate) is not None:
            return None
        held = self._new(candidate)
        planned = min(self.purse.positions // 2, self._plan.positions(len(self._tasks)))
        if planned < max(FEWEST, held.attempt.fewest):
            return None
        cut = self._journal.cut_of(held.exam)
        found = await self._advance(held, planned if cut is None else cut)
        if held.attempt.terms.positions < planned:
            self._journal.cut(held.exam, len(held.attempt.taken))
        return found

    async def run_exam(self, candidate: str, positions: int | None = None) -> ExamResult | None:
        """Hold a candidate against the incumbent, or continue its undecided attempt at its own level, for at most so
        many further positions. None when it has its verdict already, or they are too few to certify anything."""
        before = self._before(candidate)
        if candidate == self.incumbent or (before is not None and not before.attempt.can_continue):
            return None
        held = before or self._new(candidate)
        affordable = self.purse.positions if positions is None else min(positions, self.purse.positions)
        return await self._advance(held, affordable) if affordable >= held.attempt.fewest else None

    async def _advance(self, held: ExamResult, positions: int) -> ExamResult | None:
        """Take so many further positions of an attempt at most; None when none was ever taken."""
        if positions:
            held.attempt.extend(positions)
            self._journal.opened(held.exam)
            await run_exam(held.exam, held.attempt, self._rollouts, self.purse, self._read_notes)
        if not held.attempt.taken:
            return None
        if held not in self.held:
            self.held.append(held)
        if held.attempt.verdict is Verdict.CERTIFIED:
            self.incumbent = held.candidate
        return held

    async def tighten(self, held: ExamResult) -> None:
        """Continue an attempt after its verdict, as far as the purse and the plan reach."""
        most = self._plan.positions(len(self._tasks))
        await tighten(held.exam, held.attempt, most, self._rollouts, self.purse, self._read_notes)
        if held.candidate == self.incumbent and held.attempt.verdict is not Verdict.CERTIFIED:
            self.incumbent = held.exam.incumbent

    def exam_beside(self, candidate: str) -> Exam:
        """An exam against the incumbent that is no attempt of this gate, and has a level of its own."""
        return Exam(self.incumbent, candidate, self._tasks, f"beside {self._seed.value}", 1, self.link)

    def _before(self, candidate: str) -> ExamResult | None:
        found = (one for one in self.held if (one.exam.incumbent, one.candidate) == (self.incumbent, candidate))
        return next(found, None)

    def _exam(self, candidate: str) -> Exam:
        return Exam(self.incumbent, candidate, self._tasks, self._seed.value, len(self.held) + 1, self.link)

    def _new(self, candidate: str) -> ExamResult:
        exam = self._exam(candidate)
        return ExamResult(exam, SequentialTest(self._plan.terms(level_of(self._plan.alpha, exam.number), 1)))
