"""The exam: a hidden random sequence of validation tasks that the incumbent and one candidate both do.

Every exam has its own sequence. Both skills of a pair do the same task in fresh rollouts that start together, so a
model that changes during the run changes for both. Rollouts run concurrently, but their results are used in the order
of the sequence: which rollout ends first depends on its result.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field

from whet.ids import digest
from whet.skills.gate.sequential_test import Pair, SequentialTest
from whet.skills.measurement import OutOfBudget, ReadExecution, RolloutKey, Rollouts, Side, clean_execution

PAIR = 2
"""Rollouts of a pair."""


class RolloutBudget:
    """A number of rollouts that may still be started. A key that was paid for once is free from then on."""

    def __init__(self, rollouts: int) -> None:
        self.left = rollouts
        self._paid: set[RolloutKey] = set()

    def pay(self, keys: Iterable[RolloutKey]) -> bool:
        """Pay for all of these rollouts; pay for none, and return False, if they cost more than is left."""
        new = set(keys) - self._paid
        if len(new) > self.left:
            return False
        self.left -= len(new)
        self._paid |= new
        return True

    def move_to(self, other: "RolloutBudget") -> None:
        """Give everything that is left to another budget."""
        other.left, self.left = other.left + self.left, 0

    @property
    def pairs(self) -> int:
        """How many pairs the budget can pay for."""
        return self.left // PAIR


@dataclass(frozen=True, slots=True)
class ExamSequence:
    """The tasks of one exam, in order. Another seed, number or incumbent gives another sequence."""

    incumbent: str
    """Digest of the skill to beat."""
    candidate: str
    tasks: tuple[str, ...]
    seed: str
    number: int
    """Number of the exam in its run, from 1."""
    previous: str
    """Link of the exam before this one; for the first exam, the commitment to the seed."""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        # The candidate is not part of the id: a proposer that knows the seed cannot look for a better order.
        parts = (self.seed, str(self.number), self.incumbent, *self.tasks)
        object.__setattr__(self, "id", digest(*(part.encode() for part in parts))[:16])

    @property
    def link(self) -> str:
        """Digest that the next exam refers to, so that no exam can be removed, moved or given another skill."""
        parts = (self.previous, str(self.number), self.id, self.incumbent, self.candidate)
        return digest(*(part.encode() for part in parts))

    def task_at(self, pair: int) -> str:
        """The task of this pair, drawn uniformly and independently of all other pairs."""
        drawn = int(digest(self.id.encode(), str(pair).encode()), 16)
        return self.tasks[drawn % len(self.tasks)]

    def keys(self, pair: int) -> tuple[RolloutKey, RolloutKey]:
        """Keys of the incumbent's rollout and of the candidate's."""
        skills = ((Side.INCUMBENT, self.incumbent), (Side.CANDIDATE, self.candidate))
        incumbent, candidate = (RolloutKey.exam(self.id, pair, side, skill) for side, skill in skills)
        return incumbent, candidate

    def candidate_goes_first(self, pair: int) -> bool:
        """Which rollout is started first when there is little room. A coin decides, not the side."""
        return int(digest(self.id.encode(), b"first", str(pair).encode()), 16) % 2 == 0


async def run_exam(
    exam: ExamSequence,
    test: SequentialTest,
    rollouts: Rollouts,
    budget: RolloutBudget,
    read_execution: ReadExecution = clean_execution,
) -> None:
    """Add pairs until the test has its verdict. The budget must cover all pairs of the test's terms. If a hard limit
    ends the rollouts before that, the test is undecided."""
    started: deque[asyncio.Task[Pair]] = deque()
    try:
        while test.is_open:
            # Start only as many pairs as the test needs whatever their results are, so that none is wasted.
            done = len(test.pairs)
            for number in range(done + len(started), done + test.surely_needed):
                paid = budget.pay(exam.keys(number))
                assert paid, "the caller checked the budget"
                started.append(asyncio.create_task(run_pair(exam, number, rollouts, read_execution)))
            test.add(await started[0])
            started.popleft()
    except OutOfBudget:
        test.break_off()
    finally:
        # Only non-empty if a rollout raised.
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


async def tighten(
    exam: ExamSequence,
    test: SequentialTest,
    max_pairs: int,
    rollouts: Rollouts,
    budget: RolloutBudget,
    read_execution: ReadExecution = clean_execution,
) -> None:
    """Continue a test after its verdict to tighten its bounds, up to `max_pairs` in all or the end of the budget. The
    number of further pairs is fixed before any of them is run."""
    done = len(test.pairs)
    numbers = range(done, min(max_pairs, done + budget.pairs))
    for number in numbers:
        budget.pay(exam.keys(number))
    pairs = await asyncio.gather(*(_if_paid(run_pair(exam, one, rollouts, read_execution)) for one in numbers))
    for pair in pairs:
        if pair is None:
            break
        test.add(pair)


async def _if_paid(pair: Awaitable[Pair]) -> Pair | None:
    try:
        return await pair
    except OutOfBudget:
        return None


async def run_pair(exam: ExamSequence, number: int, rollouts: Rollouts, read_execution: ReadExecution) -> Pair:
    """Run one pair of an exam. A pair that was run before is read from its store."""
    task, keys = exam.task_at(number), exam.keys(number)
    order = list(zip((exam.incumbent, exam.candidate), keys, strict=True))
    if swap := exam.candidate_goes_first(number):
        order.reverse()
    outcomes = await asyncio.gather(*(rollouts(task, skill, key) for skill, key in order))
    incumbent, candidate = reversed(outcomes) if swap else outcomes
    return Pair(incumbent, candidate, (await read_execution(keys[0]), await read_execution(keys[1])))
