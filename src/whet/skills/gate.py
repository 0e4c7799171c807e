"""The gate: exams, one for each incumbent, and the levels that candidates are held at."""

from dataclasses import dataclass

from whet.skills.attempt import Attempt, Verdict, levels
from whet.skills.exam import Exam, Purse, Rollouts, hold, tighten
from whet.skills.plan import Plan


@dataclass(frozen=True, slots=True)
class Held:
    """One attempt: which candidate against which incumbent, at what level."""

    exam: Exam
    candidate: str
    level: float
    attempt: Attempt


class Gate:
    """Exams, one for each incumbent, with levels that were fixed before the first."""

    def __init__(self, start: str, tasks: tuple[str, ...], purse: Purse, plan: Plan, rollouts: Rollouts) -> None:
        self.incumbent, self.purse = start, purse
        self._tasks, self._plan, self._rollouts = tasks, plan, rollouts
        self._all_levels = levels(plan.alpha, plan.attempts)
        self.number = 0
        self._tried: set[str] = set()
        self._levels: tuple[float, ...] = ()
        self._next_exam(start)

    async def hold(self, candidate: str, *, last: bool) -> Held | None:
        """Hold the leader before the exam, unless it was before or there is no money for it."""
        # The last level of an exam is kept for the end of the search.
        if candidate == self.incumbent or candidate in self._tried or len(self._levels) < (1 if last else 2):
            return None
        level = self._levels[0]
        # An early attempt may use at most half of what is left.
        share = self.purse if last else self.purse.half()
        terms = self._plan.terms(level, len(self._tasks))
        attempt = await hold(self._exam, candidate, terms, self._rollouts, share)
        if share is not self.purse:
            self.purse.settle(share)
        if attempt is None:
            return None
        held = Held(self._exam, candidate, level, attempt)
        self._levels = self._levels[1:]
        self._tried.add(candidate)
        if attempt.verdict is Verdict.CERTIFIED:
            self._next_exam(candidate)
        return held

    async def tighten(self, held: Held) -> None:
        most = self._plan.rounds * len(self._tasks)
        await tighten(held.exam, held.candidate, held.attempt, most, self._rollouts, self.purse)

    def _next_exam(self, incumbent: str) -> None:
        self.incumbent = incumbent
        self.number += 1
        self._exam = Exam(incumbent, self._tasks, self._plan.seed, self.number)
        self._levels = next(self._all_levels)
        self._tried = set()
