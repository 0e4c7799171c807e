"""The exam on its own, for candidates of any optimizer: bring tasks, a score function, and a skill to beat."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from whet.scoring import Cause
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.gate import ExamResult, ExamSetting, Gate
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.measurement import Outcome, RolloutKey

T = TypeVar("T")
ScoreFunction = Callable[[T, str], Outcome | Awaitable[Outcome]]
"""Runs a skill on a task once and returns a score from 0 to 1, or the cause of a missing score. Called in threads."""


class BudgetSpent(Exception):  # noqa: N818 - an end, not an error
    """The budget is too small for another exam."""


class Exam(Generic[T]):
    """Tests candidates against an incumbent, one at a time. A certified candidate becomes the next incumbent.

    Candidates may depend on whether earlier ones were certified, and on nothing else from the exam: no score of its
    tasks, no trace, not its duration. Then the chance that it ever certifies a candidate that is not better than the
    incumbent is at most `alpha`.

    >>> exam = Exam("Be brief.", range(30), lambda task, skill: float("kind" in skill or task % 3 == 0))
    >>> result = exam.run("Be brief and kind.")
    >>> str(result.test.verdict), result.test.at_least() > 0, exam.incumbent
    ('certified', True, 'Be brief and kind.')
    """

    def __init__(
        self,
        incumbent: str,
        tasks: Sequence[T],
        score: ScoreFunction[T],
        *,
        alpha: float = 0.10,
        minimum_effect: float = 0.12,
        seed: int | None = None,
        budget: int | None = None,
        concurrency: int = 8,
    ) -> None:
        """`minimum_effect` is the smallest lift worth finding; `budget` is the maximum number of calls of `score`. The
        first exam uses half of `alpha`, the next a quarter, and so on. The order of tasks is random for each exam; a
        `seed` makes it reproducible, and must not be known to the author of the candidates."""
        self._tasks, self._score, self._concurrency = tasks, score, concurrency
        budget = sys.maxsize if budget is None else budget
        plan = GatePlan(budget, alpha=alpha, minimum_effect=minimum_effect)
        names = tuple(map(str, range(len(tasks))))
        order = Seed.draw() if seed is None else Seed.choose(seed)
        self._gate = Gate(incumbent, ExamSetting(names, order), RolloutBudget(budget), plan, self._roll_out)
        self._max_pairs = plan.max_pairs(len(tasks))
        self._known: dict[RolloutKey, Outcome] = {}
        self._is_busy = False
        self.exam_results: list[ExamResult] = []
        """All exams so far. Candidates must not depend on them."""

    @property
    def incumbent(self) -> str:
        """The last certified skill; the first incumbent if none was certified."""
        return self._gate.incumbent

    @property
    def spent(self) -> int:
        """Number of scores so far."""
        return len(self._known)

    async def run_async(self, candidate: str) -> ExamResult:
        """Test a candidate against the incumbent. The result's `test` has the verdict, the bounds of the lift and the
        e-value. A candidate is tested once: a second call returns the first result. BudgetSpent when too little of the
        budget is left."""
        before = next((one for one in self.exam_results if self._is_of(one, candidate)), None)
        if before is not None:
            return before
        if candidate == self.incumbent:
            raise ValueError("the candidate is the incumbent itself")
        if self._is_busy:
            raise RuntimeError("another candidate is being tested; run one exam at a time")
        self._is_busy, self._room = True, asyncio.Semaphore(self._concurrency)
        try:
            result = await self._gate.run_exam(candidate, self._max_pairs)
        finally:
            self._is_busy = False
        if result is None:
            raise BudgetSpent("too few rollouts are left to certify anything at the level of this exam")
        self.exam_results.append(result)
        return result

    def run(self, candidate: str) -> ExamResult:
        """Run `run_async` and wait for it. Works inside a running event loop, as in a notebook."""
        with ThreadPoolExecutor(1, thread_name_prefix="whet-exam") as thread:
            return thread.submit(lambda: asyncio.run(self.run_async(candidate))).result()

    def _is_of(self, result: ExamResult, candidate: str) -> bool:
        """Whether the candidate was tested against this incumbent, or became the incumbent by this exam."""
        return result.candidate == candidate and self.incumbent in (result.exam.incumbent, candidate)

    async def _roll_out(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        if key not in self._known:
            async with self._room:
                self._known[key] = await self._score_once(self._tasks[int(task)], skill)
        return self._known[key]

    async def _score_once(self, task: T, skill: str) -> Outcome:
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
