"""The gate: exams, one after the other, and the levels that candidates are held at."""

from dataclasses import dataclass, replace
from enum import Enum
from math import fsum

from whet.skills.attempt import Attempt, Verdict, levels
from whet.skills.exam import Exam, Purse, Rollouts, hold, tighten
from whet.skills.exam_times import ExamTimes
from whet.skills.plan import Plan


@dataclass(frozen=True, slots=True)
class Held:
    """One attempt: which candidate against which incumbent, at what level."""

    exam: Exam
    candidate: str
    level: float
    attempt: Attempt


class Follow(Enum):
    """Whether other candidates will be held after this one."""

    SURELY = "surely"
    """Then this one may not use the last level of its exam, nor more than half of the purse."""
    PERHAPS = "perhaps"
    NEVER = "never"
    """Then the first candidate of an exam is its only one, and has the level of all."""


class Series:
    """Exams one after the other, with levels that were fixed before the first. What one leaves unused is forfeited."""

    def __init__(
        self, incumbent: str, tasks: tuple[str, ...], plan: Plan, alpha: float, times: ExamTimes, number: int = 1
    ) -> None:
        """`number` is that of the first."""
        self._tasks, self._seed, self._times = tasks, plan.seed, times
        self._all_levels = levels(alpha, plan.attempts)
        self.levels: list[tuple[float, ...]] = []
        """Of each exam so far, those of its attempts."""
        self._open(incumbent, number)

    def next(self, incumbent: str) -> None:
        """Open another exam."""
        self._open(incumbent, self.exam.number + 1)

    def _open(self, incumbent: str, number: int) -> None:
        self.exam = Exam(incumbent, self._tasks, self._seed, number)
        self.levels.append(next(self._all_levels))
        self._attempts = 0

    def renew_if_stale(self) -> None:
        """Leave an exam whose rollouts are too old to be compared with new ones."""
        while self._times.is_stale(self.exam.id, self._attempts):
            self.next(self.exam.incumbent)

    @property
    def left(self) -> tuple[float, ...]:
        """The levels of this exam that are not used yet."""
        return self.levels[-1][self._attempts :]

    @property
    def is_new(self) -> bool:
        """Whether this exam has seen no candidate yet."""
        return self._attempts == 0

    def see_one_only(self) -> None:
        """Give all levels of this exam, which is new, to its first candidate. No other will be held before it."""
        self.levels[-1] = (fsum(self.levels[-1]),)

    def use_level(self) -> None:
        """An attempt has its verdict."""
        self._attempts += 1
        self._times.ended(self.exam.id, self._attempts)


class Gate:
    """Holds leaders before exams, one exam for each incumbent."""

    def __init__(
        self, start: str, tasks: tuple[str, ...], purse: Purse, plan: Plan, rollouts: Rollouts, times: ExamTimes
    ) -> None:
        self.purse = purse
        self._tasks, self._plan, self._rollouts = tasks, plan, rollouts
        self._series = Series(start, tasks, plan, plan.alpha, times)
        self._tried: set[str] = set()

    @property
    def incumbent(self) -> str:
        return self._series.exam.incumbent

    @property
    def number(self) -> int:
        """Of the exam that is open."""
        return self._series.exam.number

    @property
    def levels(self) -> list[tuple[float, ...]]:
        """Of each exam so far, those of its attempts."""
        return self._series.levels

    async def hold(self, candidate: str, others: Follow) -> Held | None:
        """Hold the leader before the exam, unless it was before or there is no money for it. `others` follow it."""
        if candidate == self.incumbent or candidate in self._tried:
            return None
        self._series.renew_if_stale()
        plan = self._plan
        if others is Follow.NEVER and self._series.is_new:
            self._series.see_one_only()
            plan = replace(plan, attempts=1)
        exam, left = self._series.exam, self._series.left
        if len(left) < (2 if others is Follow.SURELY else 1):
            return None
        share = self.purse.half() if others is Follow.SURELY else self.purse
        attempt = await hold(exam, candidate, plan.terms(left[0], len(self._tasks)), self._rollouts, share)
        if share is not self.purse:
            self.purse.settle(share)
        if attempt is None:
            return None
        self._series.use_level()
        self._tried.add(candidate)
        if attempt.verdict is Verdict.CERTIFIED:
            self._series.next(candidate)
            self._tried = set()
        return Held(exam, candidate, left[0], attempt)

    async def tighten(self, held: Held) -> None:
        """Go on with an attempt, with all that the purse has left."""
        most = self._plan.rollouts_per_task * len(self._tasks) // (1 + held.attempt.terms.repeats)
        await tighten(held.exam, held.candidate, held.attempt, most, self._rollouts, self.purse)
