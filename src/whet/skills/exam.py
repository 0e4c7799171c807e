"""The exam: the hidden sequence of tasks that candidates are held against, and how one of them is held.

All candidates of one exam walk the same tasks and meet the same rollouts of the incumbent; each brings fresh rollouts
of its own. Rollouts run at once, but are looked at in the order of the exam: which ends first depends on how it ends.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from whet.ids import digest
from whet.skills.attempt import Attempt, Outcome, Position, Terms

FEWEST = 20
"""An attempt that cannot afford so many positions is not begun, and uses up no level."""


class OutOfBudget(Exception):  # noqa: N818 - an end, not an error
    """The hard limit of a budget lets nothing more be rolled out. Whoever is at work ends with what there is."""


class Rollouts(Protocol):
    """Where skills are tried on tasks."""

    async def __call__(self, task: str, skill: str, key: str) -> Outcome:
        """What comes of a rollout. Its key is its own: under another key it is rolled out afresh, under the same it
        is not paid for again. OutOfBudget when it cannot be paid; then no later one can, unless it was paid before."""
        ...


class Purse:
    """So many rollouts, and no more. What was paid for once is free from then on."""

    def __init__(self, rollouts: int, paid: Iterable[str] = ()) -> None:
        self.left = rollouts
        self._paid = set(paid)

    def half(self) -> "Purse":
        """A purse with half of what is left, to be settled afterwards."""
        return Purse(self.left // 2, self._paid)

    def settle(self, half: "Purse") -> None:
        """Take back what is left of a half."""
        self.left -= self.left // 2 - half.left
        self._paid = half.paid

    @property
    def paid(self) -> set[str]:
        return self._paid

    def pay(self, keys: Iterable[str]) -> bool:
        """Pay for all of these, or for none if they cost more than is left."""
        new = set(keys) - self._paid
        if len(new) > self.left:
            return False
        self.left -= len(new)
        self._paid |= new
        return True

    def affords(self, positions: Iterable[Iterable[str]]) -> int:
        """How many of these positions, in order, it could pay for."""
        left, known, number = self.left, set(self._paid), 0
        for keys in positions:
            new = set(keys) - known
            left -= len(new)
            known |= new
            if left < 0:
                break
            number += 1
        return number


@dataclass(frozen=True, slots=True)
class Exam:
    """The sequence of one incumbent. Another incumbent, or another number, is another sequence."""

    incumbent: str
    """Digest of the skill to beat."""
    tasks: tuple[str, ...]
    seed: int
    number: int
    id: str = field(init=False)

    def __post_init__(self) -> None:
        parts = (self.incumbent, str(self.seed), str(self.number), *self.tasks)
        object.__setattr__(self, "id", digest(*(part.encode() for part in parts))[:16])

    def task_at(self, position: int) -> str:
        """The task at this position: any one, as likely as each other, whatever came before."""
        drawn = int(digest(self.id.encode(), str(position).encode()), 16)
        return self.tasks[drawn % len(self.tasks)]

    def incumbent_keys(self, position: int, repeats: int) -> list[str]:
        return [f"{self.id}/{position}/incumbent/{repeat}" for repeat in range(repeats)]

    def candidate_key(self, position: int, candidate: str) -> str:
        return f"{self.id}/{position}/candidate/{candidate}"

    def keys(self, position: int, candidate: str, repeats: int) -> list[str]:
        """All rollouts at this position."""
        return [*self.incumbent_keys(position, repeats), self.candidate_key(position, candidate)]


async def hold(exam: Exam, candidate: str, terms: Terms, rollouts: Rollouts, purse: Purse) -> Attempt | None:
    """Hold a candidate before an exam; None when the purse is too small to begin. Where the budget ends on the way,
    the attempt is undecided."""
    wanted = (exam.keys(position, candidate, terms.repeats) for position in range(terms.positions))
    affordable = purse.affords(wanted)
    if affordable < min(FEWEST, terms.positions):
        return None
    attempt = Attempt(replace(terms, positions=affordable))
    begun: deque[asyncio.Task[Position]] = deque()
    try:
        while attempt.verdict is None:
            # As many at once as are needed whatever comes of them, so nothing is begun in vain.
            done = len(attempt.taken)
            for ahead in range(done + len(begun), done + attempt.surely_needed):
                paid = purse.pay(exam.keys(ahead, candidate, terms.repeats))
                assert paid, "the purse was looked into before"
                begun.append(asyncio.create_task(_position(exam, ahead, candidate, terms.repeats, rollouts)))
            attempt.take(await begun[0])
            begun.popleft()
    except OutOfBudget:
        attempt.break_off()
    finally:
        # None is left but when a rollout cannot be had at all.
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
    return attempt if attempt.taken else None


async def tighten(
    exam: Exam, candidate: str, attempt: Attempt, positions: int, rollouts: Rollouts, purse: Purse
) -> None:
    """Go on with an attempt after its verdict, up to so many positions or the end of the purse. How many are taken is
    settled before any of them is looked at."""
    repeats = attempt.terms.repeats
    wanted = range(len(attempt.taken), positions)
    affordable = purse.affords(exam.keys(position, candidate, repeats) for position in wanted)
    ahead = wanted[:affordable]
    for position in ahead:
        purse.pay(exam.keys(position, candidate, repeats))
    found = await asyncio.gather(*(_if_paid(_position(exam, one, candidate, repeats, rollouts)) for one in ahead))
    for taken in found:
        if taken is None:
            break
        attempt.take(taken)


async def _if_paid(position: Awaitable[Position]) -> Position | None:
    try:
        return await position
    except OutOfBudget:
        return None


async def _position(exam: Exam, number: int, candidate: str, repeats: int, rollouts: Rollouts) -> Position:
    task = exam.task_at(number)
    *incumbent, mine = await asyncio.gather(
        *(rollouts(task, exam.incumbent, key) for key in exam.incumbent_keys(number, repeats)),
        rollouts(task, candidate, exam.candidate_key(number, candidate)),
    )
    return Position(tuple(incumbent), mine)
