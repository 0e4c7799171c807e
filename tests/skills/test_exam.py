"""Exams: one sequence for all candidates, taken in its order whatever ends first, and never dearer than its purse."""

import asyncio
import random
from collections import Counter

import numpy as np
import pytest
from many_attempts import verdicts

from whet.skills.attempt import Attempt, Lost, Outcome, Terms, Verdict
from whet.skills.exam import Exam, Purse, hold, tighten
from whet.testing.world import World, skill_of

TERMS = Terms(0.0125, 120)
GOOD = skill_of(f"H{n}" for n in range(6))


class Rolled:
    """Rollouts of the world, which end in any order, failures first; what was asked is kept."""

    def __init__(self, seed: int = 0, disorder: int = 0) -> None:
        self.world, self.asked = World(seed), Counter[str]()
        self._random = random.Random(disorder)
        self._disorder = disorder

    async def __call__(self, task: str, skill: str, key: str) -> Outcome:
        self.asked[key] += 1
        succeeds = self.world.succeeds(task, skill, key)
        if self._disorder:
            for _ in range(self._random.randrange(8) + 8 * succeeds):
                await asyncio.sleep(0)
        return float(succeeds)


def exam_of(seed: int, number: int = 1, incumbent: str = "") -> Exam:
    return Exam(incumbent, World().tasks("validation"), seed, number)


async def held(exam: Exam, skill: str, rolled: Rolled, purse: Purse | None = None) -> Attempt:
    attempt = await hold(exam, skill, TERMS, rolled, purse or Purse(10_000))
    assert attempt is not None
    return attempt


@pytest.mark.parametrize("seed", range(4))
async def test_the_order_in_which_rollouts_end_does_not_matter(seed: int) -> None:
    plain = Rolled(seed)
    first = await held(exam_of(seed), GOOD, plain)
    for disorder in (1, 2):
        other = Rolled(seed, disorder)
        assert await held(exam_of(seed), GOOD, other) == first
        assert other.asked == plain.asked


async def test_rollouts_run_at_once_and_none_is_begun_in_vain() -> None:
    running, most = 0, 0

    async def counting(task: str, skill: str, key: str) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return await rolled(task, skill, key)

    for seed in range(3):
        rolled = Rolled(seed)
        attempt = await hold(exam_of(seed), GOOD, TERMS, counting, Purse(10_000))
        assert attempt is not None
        assert len(rolled.asked) == 3 * len(attempt.taken)
    assert most >= 9


async def test_candidates_of_one_exam_share_the_incumbent_and_nothing_else() -> None:
    exam, rolled, purse = exam_of(1), Rolled(1), Purse(10_000)
    first = await held(exam, skill_of(["N0"]), rolled, purse)
    spent = 10_000 - purse.left
    second = await held(exam, skill_of(["N1"]), rolled, purse)
    assert max(rolled.asked.values()) == 2, "the incumbent's are asked again, and not paid again"
    assert [key for key, times in rolled.asked.items() if times > 1 and "candidate" in key] == []
    shared = min(len(first.taken), len(second.taken))
    assert [one.incumbent for one in first.taken[:shared]] == [one.incumbent for one in second.taken[:shared]]
    assert spent == 3 * len(first.taken)
    assert 10_000 - purse.left == len(rolled.asked)


async def test_another_incumbent_or_number_is_another_sequence() -> None:
    fewer_tasks = Exam("", World().tasks("validation")[1:], 1, 1)
    exams = (exam_of(1), exam_of(2), exam_of(1, 2), exam_of(1, incumbent=GOOD), fewer_tasks)
    assert len({tuple(exam.task_at(position) for position in range(40)) for exam in exams}) == 5
    keys = [key for exam in exams for key in exam.keys(0, GOOD, 2)]
    assert len(set(keys)) == 5 * 3, "no rollout of one exam is one of another"


def test_tasks_are_drawn_evenly() -> None:
    exam = exam_of(3)
    drawn = Counter(exam.task_at(position) for position in range(6000))
    assert len(drawn) == 30
    assert all(130 < times < 280 for times in drawn.values())


def test_whoever_sees_how_often_an_exam_asks_each_task_passes_it_without_being_better() -> None:
    """The reason why a proposer is shown nothing of exams: a candidate that fixes 5 of 30 tasks and breaks 5."""
    passed = 0
    for seed in range(400):
        exam = exam_of(seed)
        asked = Counter(exam.task_at(position) for position in range(120))
        by_frequency = sorted(exam.tasks, key=lambda task: asked[task])
        solved = set(exam.tasks[:15])
        effect = dict.fromkeys([task for task in by_frequency if task in solved][:5], -1.0)
        effect |= dict.fromkeys([task for task in by_frequency if task not in solved][-5:], 1.0)
        seen = [[effect.get(exam.task_at(position), 0.0) for position in range(120)]]
        passed += int(verdicts(np.array(seen), Terms(0.0125, 120, worth=0.10)).certified.sum())
    assert passed >= 207, "the reference finds .61"


async def test_a_purse_is_never_overdrawn_and_its_end_is_undecided() -> None:
    for size in (60, 100, 200):
        rolled, purse = Rolled(5), Purse(size)
        attempt = await held(exam_of(5), skill_of(["N0"]), rolled, purse)
        assert len(rolled.asked) <= size
        assert purse.left == size - len(rolled.asked)
        if attempt.verdict is Verdict.UNDECIDED:
            assert len(attempt.taken) == size // 3


async def test_an_attempt_that_cannot_be_afforded_is_not_begun() -> None:
    rolled, purse = Rolled(), Purse(59)
    assert await hold(exam_of(0), GOOD, TERMS, rolled, purse) is None
    assert not rolled.asked
    assert purse.left == 59


async def test_a_lost_rollout_of_the_incumbent_voids_its_position_for_every_candidate() -> None:
    rolled = Rolled(2)

    async def failing(task: str, skill: str, key: str) -> Outcome:
        return Lost.UNRELATED if "/3/incumbent/1" in key else await rolled(task, skill, key)

    for candidate in (GOOD, skill_of(["G0"])):
        attempt = await hold(exam_of(2), candidate, TERMS, failing, Purse(10_000))
        assert attempt is not None
        assert [number for number, position in enumerate(attempt.taken) if position.is_void] == [3]


async def test_after_its_verdict_an_attempt_goes_on_to_its_cap_or_the_end_of_its_purse() -> None:
    exam, rolled, purse = exam_of(1), Rolled(1), Purse(7)
    attempt = await held(exam, GOOD, rolled)
    decided = len(attempt.taken)
    await tighten(exam, GOOD, attempt, 120, rolled, purse)
    assert (len(attempt.taken), purse.left) == (decided + 2, 1)
    await tighten(exam, GOOD, attempt, 40, rolled, Purse(10_000))
    assert len(attempt.taken) == 40
    assert attempt.verdict is Verdict.CERTIFIED


async def test_when_a_rollout_cannot_be_had_later_positions_are_given_up() -> None:
    given_up = set()

    async def failing(task: str, skill: str, key: str) -> Outcome:
        if "/0/candidate/" in key:
            raise LookupError
        if "/0/" not in key:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.add(key)
        return 1.0

    with pytest.raises(LookupError):
        await hold(exam_of(0), GOOD, TERMS, failing, Purse(10_000))
    assert len(given_up) >= 3
    assert asyncio.all_tasks() == {asyncio.current_task()}
