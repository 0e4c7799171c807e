"""Search greedily, certify honestly: the two tiers, and the one bit that passes from the second to the first.

Everything that is paid for has a key of its own, and whoever is asked answers the same key alike. So a run that was
killed is begun again from the start: it takes the same decisions, and pays for nothing twice.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Protocol

from whet.skills.attempt import Attempt, Lost, Verdict, levels
from whet.skills.exam import Exam, OutOfBudget, Purse, Rollouts, hold, tighten
from whet.skills.plan import Plan


@dataclass(frozen=True, slots=True)
class Step:
    """One proposal and what the search made of it. It is all that a proposer is told of earlier ones."""

    parent: str
    candidate: str
    mean: float
    """Of the candidate, on the dev tasks."""
    bar: float
    """What it had to be above."""

    @property
    def accepted(self) -> bool:
        return self.mean > self.bar


class Proposer(Protocol):
    """Writes skills. What it is given comes from training tasks, its own memory and certified bits; nothing else."""

    async def propose(self, leader: str, steps: Sequence[Step], pay: Callable[[Sequence[str]], bool]) -> str | None:
        """Another skill than the leader, by its digest; None when it has nothing more to propose, which ends the
        search. It pays for rollouts of training tasks itself, and gives up when it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """One attempt: which candidate against which incumbent, at what level."""

    exam: Exam
    candidate: str
    level: float
    attempt: Attempt


@dataclass(slots=True)
class Sharpened:
    """What came of a run."""

    plan: Plan
    start: str
    certified: str
    """The best skill that was certified; the start when none was."""
    leader: str
    """The best that the search found. Nothing is promised of it."""
    steps: list[Step] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    spent: int = 0


class NotMeasured(Exception):  # noqa: N818 - an outcome, not an error of whet's
    """Too many rollouts were lost to say anything. Never reported as "no improvement"."""

    def __init__(self, reason: str, keys: Iterable[str] = ()) -> None:
        """`keys` are of what was lost. No decision rests on it, so it may be tried again."""
        super().__init__(reason)
        self.keys = tuple(keys)


async def sharpen(
    start: str,
    dev: Sequence[str],
    validation: Sequence[str],
    plan: Plan,
    proposer: Proposer,
    rollouts: Rollouts,
    watch: Callable[[Step | Held], None] = lambda _: None,
) -> Sharpened:
    """Look for better skills on the dev tasks, and certify the best on the validation tasks, within the budget."""
    result = Sharpened(plan, start, start, start)
    search = _Search(start, dev, Purse(plan.search_purse), plan, proposer, rollouts)
    gate = _Gate(start, tuple(validation), Purse(plan.certify_purse), plan, rollouts)
    accepted = 0
    while (step := await _next(search)) is not None:
        result.steps.append(step)
        watch(step)
        accepted += step.accepted
        if accepted >= plan.accepted_before_attempt and gate.may_try_early:
            accepted = 0
            await _certify(gate, search.leader, result, watch, last=False)
    await _certify(gate, search.leader, result, watch, last=True)
    await _tighten(gate, result)
    result.certified, result.leader = gate.incumbent, search.leader
    result.spent = plan.budget - search.purse.left - gate.purse.left
    return result


async def _next(search: "_Search") -> Step | None:
    try:
        return await search.step()
    except OutOfBudget:
        return None


async def _certify(
    gate: "_Gate", candidate: str, result: Sharpened, watch: Callable[[Step | Held], None], *, last: bool
) -> None:
    held = await gate.hold(candidate, last=last)
    if held is not None:
        result.held.append(held)
        watch(held)


async def _tighten(gate: "_Gate", result: Sharpened) -> None:
    """Spend what exams have left on the last certificate: when its verdict falls, its bound is barely above 0."""
    certified = [held for held in result.held if held.attempt.verdict is Verdict.CERTIFIED]
    if certified:
        await gate.tighten(certified[-1])


class _Search:
    """The ratchet on dev tasks: a proposal leads when its mean is above the bar, and its mean is the next bar."""

    def __init__(
        self, start: str, dev: Sequence[str], purse: Purse, plan: Plan, proposer: Proposer, rollouts: Rollouts
    ) -> None:
        self.leader, self.purse = start, purse
        self._dev, self._plan, self._proposer, self._rollouts = dev, plan, proposer, rollouts
        self._bar: float | None = None
        self._rejections = 0
        self._measured = 0
        self._steps: list[Step] = []

    async def step(self) -> Step | None:
        """The next proposal, measured; None when there is none or it cannot be paid."""
        if self._bar is None or self._rejections >= self._plan.rejections_before_remeasuring:
            self._bar = await self._mean(self.leader)
            self._rejections = 0
        if self._bar is None or self.purse.left < len(self._dev):
            return None
        parent = self.leader
        candidate = await self._proposer.propose(parent, self._steps, self.purse.pay)
        if candidate is None or (mean := await self._mean(candidate)) is None:
            return None
        step = Step(parent, candidate, mean, self._bar)
        if step.accepted:
            self.leader, self._bar, self._rejections = candidate, mean, 0
        else:
            self._rejections += 1
        self._steps.append(step)
        return step

    async def _mean(self, skill: str) -> float | None:
        """A fresh mean over all dev tasks; None when it cannot be paid."""
        self._measured += 1
        keys = _measurement(self._measured, self._dev, skill)
        if not self.purse.pay(keys):
            return None
        outcomes = await asyncio.gather(
            *(self._rollouts(task, skill, key) for task, key in zip(self._dev, keys, strict=True))
        )
        scores = [outcome for outcome in outcomes if not isinstance(outcome, Lost)]
        if 2 * len(scores) < len(outcomes):
            lost = [key for key, outcome in zip(keys, outcomes, strict=True) if isinstance(outcome, Lost)]
            raise NotMeasured(f"{len(lost)} of {len(outcomes)} rollouts on training tasks were lost", lost)
        return fsum(scores) / len(scores)


def first_measurement(tasks: Sequence[str], start: str) -> list[str]:
    """The keys of the rollouts that a search begins with."""
    return _measurement(1, tasks, start)


def _measurement(number: int, tasks: Sequence[str], skill: str) -> list[str]:
    return [f"dev/{number}/{task}/{skill}" for task in tasks]


class _Gate:
    """Exams, one for each incumbent, with levels that were fixed before the first."""

    def __init__(self, start: str, tasks: tuple[str, ...], purse: Purse, plan: Plan, rollouts: Rollouts) -> None:
        self.incumbent, self.purse = start, purse
        self._tasks, self._plan, self._rollouts = tasks, plan, rollouts
        self._all_levels = levels(plan.alpha, plan.attempts)
        self._number = 0
        self._tried: set[str] = set()
        self._levels: tuple[float, ...] = ()
        self._next_exam(start)

    @property
    def may_try_early(self) -> bool:
        """The last level of an exam is kept for the end of the search."""
        return len(self._levels) > 1

    async def hold(self, candidate: str, *, last: bool) -> Held | None:
        """Hold the leader before the exam, unless it was before or there is no money for it."""
        if candidate == self.incumbent or candidate in self._tried or not self._levels:
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
        self._number += 1
        self._exam = Exam(incumbent, self._tasks, self._plan.seed, self._number)
        self._levels = next(self._all_levels)
        self._tried = set()
