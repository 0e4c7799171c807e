"""The exam: the hidden sequence of tasks that one candidate and the incumbent are both given, and how it is held.

Every attempt has an exam of its own. At each position both skills do the same task in fresh rollouts that start
together, so a model that changes while the run lasts changes for both. Rollouts run at once, but are looked at in the
order of the exam: which ends first depends on how it ends.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field

from whet.ids import digest
from whet.skills.gate.sequential_test import Pair, SequentialTest
from whet.skills.measurement import OutOfBudget, ReadNotes, RolloutKey, Rollouts, Side, no_notes

PAIR = 2
"""Rollouts at each position."""


class RolloutBudget:
    """So many rollouts, and no more. What was paid for once is free from then on."""

    def __init__(self, rollouts: int) -> None:
        self.left = rollouts
        self._paid: set[RolloutKey] = set()

    def pay(self, keys: Iterable[RolloutKey]) -> bool:
        """Pay for all of these, or for none if they cost more than is left."""
        new = set(keys) - self._paid
        if len(new) > self.left:
            return False
        self.left -= len(new)
        self._paid |= new
        return True

    def pour_into(self, other: "RolloutBudget") -> None:
        """Give all that is left to another purse."""
        other.left, self.left = other.left + self.left, 0

    @property
    def positions(self) -> int:
        """How many positions of an exam it could pay for."""
        return self.left // PAIR


@dataclass(frozen=True, slots=True)
class Exam:
    """The sequence of one attempt. Another seed, number or incumbent is another sequence."""

    incumbent: str
    """Digest of the skill to beat."""
    candidate: str
    tasks: tuple[str, ...]
    seed: str
    number: int
    """Of the attempt in its run, from 1."""
    previous: str
    """Link of the attempt before this one; of the first, the commitment to the seed."""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        # Nothing of the candidate is in it: whoever knows the seed cannot look for a candidate with a better order.
        parts = (self.seed, str(self.number), self.incumbent, *self.tasks)
        object.__setattr__(self, "id", digest(*(part.encode() for part in parts))[:16])

    @property
    def link(self) -> str:
        """What the next attempt carries of this one: none can be left out, moved or given another skill unnoticed."""
        parts = (self.previous, str(self.number), self.id, self.incumbent, self.candidate)
        return digest(*(part.encode() for part in parts))

    def task_at(self, position: int) -> str:
        """The task at this position: any one, as likely as each other, whatever came before."""
        drawn = int(digest(self.id.encode(), str(position).encode()), 16)
        return self.tasks[drawn % len(self.tasks)]

    def keys(self, position: int) -> tuple[RolloutKey, RolloutKey]:
        """Of the incumbent's rollout at this position, and of the candidate's."""
        skills = ((Side.INCUMBENT, self.incumbent), (Side.CANDIDATE, self.candidate))
        incumbent, candidate = (RolloutKey.exam(self.id, position, side, skill) for side, skill in skills)
        return incumbent, candidate

    def candidate_goes_first(self, position: int) -> bool:
        """Which of the two asks first for a place, where there are few: a coin decides, not the arm."""
        return int(digest(self.id.encode(), b"first", str(position).encode()), 16) % 2 == 0


async def run_exam(
    exam: Exam, attempt: SequentialTest, rollouts: Rollouts, purse: RolloutBudget, read_notes: ReadNotes = no_notes
) -> None:
    """Take positions until an attempt has its verdict. The purse must hold all of its positions. Where the budget ends
    on the way, the attempt is undecided."""
    begun: deque[asyncio.Task[Pair]] = deque()
    try:
        while attempt.is_open:
            # As many at once as are needed whatever comes of them, so nothing is begun in vain.
            done = len(attempt.taken)
            for ahead in range(done + len(begun), done + attempt.surely_needed):
                paid = purse.pay(exam.keys(ahead))
                assert paid, "the purse was looked into before"
                begun.append(asyncio.create_task(_position(exam, ahead, rollouts, read_notes)))
            attempt.take(await begun[0])
            begun.popleft()
    except OutOfBudget:
        attempt.break_off()
    finally:
        # Only non-empty if a rollout raised.
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


async def tighten(
    exam: Exam,
    attempt: SequentialTest,
    positions: int,
    rollouts: Rollouts,
    purse: RolloutBudget,
    read_notes: ReadNotes = no_notes,
) -> None:
    """Continue an attempt after its verdict, up to so many positions in all or the end of the purse. How many are taken
    is settled before any of them is looked at."""
    done = len(attempt.taken)
    ahead = range(done, min(positions, done + purse.positions))
    for position in ahead:
        purse.pay(exam.keys(position))
    found = await asyncio.gather(*(_if_paid(_position(exam, one, rollouts, read_notes)) for one in ahead))
    for taken in found:
        if taken is None:
            break
        attempt.take(taken)


async def _if_paid(position: Awaitable[Pair]) -> Pair | None:
    try:
        return await position
    except OutOfBudget:
        return None


async def _position(exam: Exam, number: int, rollouts: Rollouts, read_notes: ReadNotes) -> Pair:
    task, keys = exam.task_at(number), exam.keys(number)
    pair = list(zip((exam.incumbent, exam.candidate), keys, strict=True))
    if swap := exam.candidate_goes_first(number):
        pair.reverse()
    found = await asyncio.gather(*(rollouts(task, skill, key) for skill, key in pair))
    incumbent, candidate = reversed(found) if swap else found
    return Pair(incumbent, candidate, (await read_notes(keys[0]), await read_notes(keys[1])))
