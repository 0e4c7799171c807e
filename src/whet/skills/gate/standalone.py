"""The gate alone, for candidates of whatever optimizer: bring tasks, a function that scores, and a skill to beat."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from whet.scoring import Cause
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.gate import ExamResult, Gate
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.measurement import Outcome, RolloutKey

T = TypeVar("T")
Score = Callable[[T, str], Outcome | Awaitable[Outcome]]
"""One fresh try of a skill on a task: a number from 0 to 1, or why there is none. It may be called in threads."""


class BudgetSpent(Exception):  # noqa: N818 - an end, not an error
    """No further candidate can be held: the rollouts are used up."""


class Exam(Generic[T]):
    """Holds candidates against an incumbent, one at a time. One that is certified is the next incumbent.

    Candidates may depend on the verdicts "certified" or not, and on nothing else that the exam has seen: no score of
    its tasks, no trace, not how long it took. Then the chance that anything is ever certified that is no better than
    what it replaced is at most `alpha`.

    >>> exam = Exam("Be brief.", range(30), lambda task, skill: float("kind" in skill or task % 3 == 0))
    >>> held = exam.hold("Be brief and kind.")
    >>> str(held.attempt.verdict), held.attempt.at_least() > 0, exam.incumbent
    ('certified', True, 'Be brief and kind.')
    """

    def __init__(
        self,
        incumbent: str,
        tasks: Sequence[T],
        score: Score[T],
        *,
        alpha: float = 0.10,
        worth: float = 0.12,
        seed: int | None = None,
        budget: int | None = None,
        concurrency: int = 8,
    ) -> None:
        """`worth` is the smallest lift worth finding, `budget` the most calls of `score`, without limit by default.
        The first candidate has half of `alpha`, the next a quarter, and so on. The order of tasks is drawn by chance
        for each candidate; a `seed` makes it the same again, and must not be known to whoever writes candidates."""
        self._tasks, self._score, self._concurrency = tasks, score, concurrency
        budget = sys.maxsize if budget is None else budget
        plan = GatePlan(budget, alpha=alpha, worth=worth)
        names = tuple(map(str, range(len(tasks))))
        order = Seed.draw() if seed is None else Seed.chosen(seed)
        self._gate = Gate(incumbent, names, RolloutBudget(budget), plan, self._rolled_out, order)
        self._positions = plan.positions(len(tasks))
        self._known: dict[RolloutKey, Outcome] = {}
        self._is_busy = False
        self.held: list[ExamResult] = []
        """All attempts so far, with their levels. Candidates must not depend on them."""

    @property
    def incumbent(self) -> str:
        """The last certified skill; at first the one that it began with."""
        return self._gate.incumbent

    @property
    def spent(self) -> int:
        """Scores so far."""
        return len(self._known)

    async def holds(self, candidate: str) -> ExamResult:
        """Hold a candidate against the incumbent; its attempt tells the verdict, bounds of the lift and the evidence.

        The same candidate is not tried twice on one exam: what was found of it stays. Spent when it cannot be held."""
        before = next((held for held in self.held if self._was(held, candidate)), None)
        if before is not None:
            return before
        if candidate == self.incumbent:
            raise ValueError("the candidate is the incumbent itself")
        if self._is_busy:
            raise RuntimeError("a candidate is being held already; an exam sees one after the other")
        self._is_busy, self._room = True, asyncio.Semaphore(self._concurrency)
        try:
            held = await self._gate.run_exam(candidate, self._positions)
        finally:
            self._is_busy = False
        if held is None:
            raise BudgetSpent("too few rollouts are left to certify anything at the level of this attempt")
        self.held.append(held)
        return held

    def hold(self, candidate: str) -> ExamResult:
        """The same for code that does not wait, also in a notebook."""
        with ThreadPoolExecutor(1, thread_name_prefix="whet-exam") as thread:
            return thread.submit(lambda: asyncio.run(self.holds(candidate))).result()

    def _was(self, held: ExamResult, candidate: str) -> bool:
        """Whether the candidate was held against this incumbent, or became it by that."""
        return held.candidate == candidate and self.incumbent in (held.exam.incumbent, candidate)

    async def _rolled_out(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        if key not in self._known:
            async with self._room:
                self._known[key] = await self._scored(self._tasks[int(task)], skill)
        return self._known[key]

    async def _scored(self, task: T, skill: str) -> Outcome:
        if inspect.iscoroutinefunction(self._score):
            found = await self._score(task, skill)
        else:
            found = await asyncio.to_thread(self._score, task, skill)
            found = await found if inspect.isawaitable(found) else found
        if isinstance(found, Cause):
            return found
        if not 0 <= found <= 1:
            raise ValueError(f"the score of task {task!r} is {found!r}; expected a number from 0 to 1")
        return float(found)
