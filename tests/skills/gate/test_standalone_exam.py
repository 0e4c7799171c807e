"""The gate alone: any function that scores, any candidates."""

import asyncio
from collections import Counter

import pytest

from known_world import World, skill_of
from whet.skills import BudgetSpent, Cause, Exam, Verdict
from whet.skills.measurement import Outcome

GOOD, BETTER = skill_of(f"H{n}" for n in range(6)), skill_of([*(f"H{n}" for n in range(6)), "G0", "G1"])
TASKS = World().tasks("validation")


class Noisy:
    """Scores tasks of the world afresh at every call."""

    def __init__(self, seed: int) -> None:
        self._world, self.calls = World(seed), 0

    def __call__(self, task: str, skill: str) -> float:
        self.calls += 1
        return float(self._world.succeeds(task, skill, str(self.calls)))


def exam_of(seed: int, **terms: float) -> tuple[Exam[str], Noisy]:
    score = Noisy(seed)
    return Exam("", TASKS, score, seed=seed, concurrency=1, **terms), score  # type: ignore[arg-type]


def test_what_is_certified_is_the_next_to_beat_at_a_smaller_level() -> None:
    exam, score = exam_of(1)
    held = exam.run(GOOD)
    assert held.test.verdict is Verdict.CERTIFIED
    assert held.test.at_least() > 0
    assert (held.level, exam.incumbent) == (0.05, GOOD)
    again = exam.run(skill_of(["N0"]))
    assert again.exam.incumbent == GOOD
    assert again.level == 0.025
    assert [one.level for one in exam.exam_results] == [0.05, 0.025]
    assert exam.spent == score.calls


def test_the_same_candidate_is_not_tried_until_it_passes() -> None:
    exam, score = exam_of(2)
    first = exam.run(skill_of(["N0"]))
    calls = score.calls
    assert exam.run(skill_of(["N0"])) is first
    assert score.calls == calls
    with pytest.raises(ValueError, match="the incumbent itself"):
        exam.run("")


def test_every_score_is_new_and_the_terms_hold() -> None:
    exam, score = exam_of(2, alpha=0.04, minimum_effect=0.2)
    held = [exam.run(skill_of([name])) for name in ("N0", "N1")]
    assert exam.spent == score.calls
    assert exam.spent == 2 * sum(len(one.test.pairs) for one in held)
    assert [(one.level, one.test.terms.minimum_effect) for one in held] == [(0.02, 0.2), (0.01, 0.2)]


def test_after_a_certificate_others_are_examined_anew() -> None:
    exam, _ = exam_of(1)
    null, good = exam.run(skill_of(["N0"])), exam.run(GOOD)
    assert exam.run(GOOD) is good
    again = exam.run(skill_of(["N0"]))
    assert again is not null
    assert (again.exam.number, again.exam.incumbent) == (3, GOOD)


def test_when_too_few_scores_are_left_nothing_more_is_held() -> None:
    poor, score = exam_of(3, budget=13)
    with pytest.raises(BudgetSpent):
        poor.run(GOOD)
    assert score.calls == 0


def test_the_order_of_tasks_is_drawn_unless_chosen() -> None:
    def order(seed: int | None) -> list[str]:
        asked: list[int] = []

        def score(task: int, skill: str) -> float:
            asked.append(task)
            return 0.5

        Exam("a", range(30), score, seed=seed, concurrency=1).run("b")
        return [str(task) for task in asked]

    assert order(1) == order(1) != order(2)
    assert order(None) != order(None)


async def test_functions_that_wait_are_waited_for_and_run_at_once() -> None:
    running = most = 0

    async def score(task: int, skill: str) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return float(skill == "good" or task % 4 == 0)

    exam = Exam("bad", range(30), score, concurrency=5)
    held = await exam.run_async("good")
    assert held.test.verdict is Verdict.CERTIFIED
    assert most == 5
    assert exam.run("bad").test.verdict is Verdict.FUTILE, "also where a loop is running already"
    with pytest.raises(RuntimeError, match="one exam at a time"):
        await asyncio.gather(exam.run_async("one"), exam.run_async("other"))
    wrapped = Exam("bad", range(30), lambda task, skill: score(task, skill))
    assert (await wrapped.run_async("good")).test.verdict is Verdict.CERTIFIED


def test_what_is_lost_says_so_and_what_is_no_score_is_refused() -> None:
    lost = Counter[str]()

    def flaky(task: int, skill: str) -> Outcome:
        lost[skill] += 1
        return Cause.MODEL if lost[skill] % 2 else 1.0

    held = Exam("a", range(10), flaky, concurrency=1).run("b")
    assert held.test.verdict is Verdict.UNDECIDED
    assert held.test.coverage < 0.8
    with pytest.raises(ValueError, match=r"task 'x' is 85; expected a number from 0 to 1"):
        Exam("a", ["x"] * 30, lambda task, skill: 85).run("b")


def test_what_is_no_number_is_refused() -> None:
    scores = {"bad": 0.0, "good": float("nan")}
    exam = Exam("bad", range(30), lambda task, skill: scores[skill])
    with pytest.raises(ValueError, match=r"is nan; expected a number from 0 to 1"):
        exam.run("good")
    scores["good"] = 1.0
    assert exam.run("good").test.verdict is Verdict.CERTIFIED
