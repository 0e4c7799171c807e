"""Which level a candidate is held at, how much of the purse it may use, and what is continued."""

import pytest

from whet.skills.gate.exam import ExamSequence, RolloutBudget
from whet.skills.gate.gate import ExamResult, ExamSetting, Gate, NoJournal
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.measurement import Execution, Outcome, OutOfBudget, RolloutKey, Verdict

TASKS = tuple(f"task-{number}" for number in range(10))


class Asked:
    """Good skills do every task, fair ones a little of each, all others nothing. What is asked for is kept."""

    def __init__(self) -> None:
        self.keys: list[RolloutKey] = []

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        self.keys.append(key)
        return 0.15 if skill.startswith("fair") else float(skill.startswith("good"))


def gate(purse: int = 10_000, alpha: float = 0.10) -> tuple[Gate, Asked]:
    asked = Asked()
    return Gate(
        "start", ExamSetting(TASKS, Seed.choose(0)), RolloutBudget(purse), GatePlan(0, alpha=alpha), asked
    ), asked


def level(held: ExamResult | None) -> float | None:
    return held.level if held else None


async def test_each_exam_has_half_the_level_of_the_last() -> None:
    found, _ = gate()
    assert level(await found.run_exam("null")) == pytest.approx(0.05)
    assert level(await found.run_early_exam("good")) == pytest.approx(0.025)
    assert found.incumbent == "good"
    assert level(await found.run_exam("other null")) == pytest.approx(0.0125)
    assert [held.exam.number for held in found.exam_results] == [1, 2, 3]


async def test_attempts_are_chained_from_the_commitment_on() -> None:
    found, _ = gate()
    for name in ("null", "good", "other null"):
        await found.run_exam(name)
    links = [Seed.choose(0).commitment, *(held.exam.link for held in found.exam_results)]
    assert [held.exam.previous for held in found.exam_results] == links[:-1]
    assert len(set(links)) == 4


async def test_an_early_exam_uses_half_of_the_budget() -> None:
    found, _ = gate(purse=100)
    early = await found.run_early_exam("fair")
    assert early is not None
    assert early.test.verdict is Verdict.UNDECIDED
    assert len(early.test.pairs) == 25
    assert found.budget.left == 50
    assert await found.run_early_exam("fair") is None, "it is continued when the search is closed, and not before"


async def test_an_undecided_exam_is_continued_at_its_level() -> None:
    found, asked = gate(purse=100)
    early = await found.run_early_exam("fair")
    assert early is not None
    seen = list(early.test.pairs)
    assert found.undecided == [early]
    found.budget.left += 200
    assert await found.run_exam("fair") is early
    assert (early.test.verdict, early.level) == (Verdict.CERTIFIED, 0.05)
    assert early.test.pairs[: len(seen)] == seen
    assert len(asked.keys) == len(set(asked.keys)), "no position is taken twice"
    assert [held.exam.number for held in found.exam_results] == [1], "it is one attempt"


async def test_what_has_its_verdict_is_not_continued() -> None:
    found, asked = gate()
    assert (await found.run_exam("null")).test.verdict is Verdict.FUTILE  # type: ignore[union-attr]
    before = list(asked.keys)
    assert await found.run_exam("null") is None
    assert await found.run_early_exam("null") is None
    assert await found.run_exam("start") is None
    assert (asked.keys, found.undecided) == (before, [])


async def test_an_attempt_begins_when_it_could_certify_and_otherwise_uses_no_level() -> None:
    found, asked = gate(purse=13)
    assert await found.run_exam("good") is None, "at level .05 it takes 7 positions, all of them won"
    assert (asked.keys, found.exam_results) == ([], [])
    found, _ = gate(purse=14)
    held = await found.run_exam("good")
    assert held is not None
    assert held.test.verdict is Verdict.CERTIFIED
    early, _ = gate(purse=79)
    assert await early.run_early_exam("good") is None, "half of it is for 19 positions; others follow"
    early, _ = gate(purse=80)
    assert await early.run_early_exam("good") is not None


class Noted(NoJournal):
    """A journal that is kept."""

    def __init__(self) -> None:
        self.cuts: dict[str, int] = {}
        self.links: list[str] = []

    def record_start(self, exam: ExamSequence) -> None:
        self.links.append(exam.link)

    def record_cut(self, exam: ExamSequence, pairs: int) -> None:
        self.cuts[exam.link] = pairs

    def find_cut(self, exam: ExamSequence) -> int | None:
        return self.cuts.get(exam.link)


async def test_a_resumed_exam_is_cut_short_at_the_same_pair() -> None:
    journal, left = Noted(), 10

    async def limited(task: str, skill: str, key: RolloutKey) -> Outcome:
        number = int(str(key).split("/")[1])
        if number >= left:
            raise OutOfBudget
        return 0.5

    def new() -> Gate:
        return Gate("start", ExamSetting(TASKS, Seed.choose(0), journal), RolloutBudget(200), GatePlan(0), limited)

    first = await new().run_early_exam("fair")
    left = 1000  # what is left of the search came to it since then
    again = new()
    second = await again.run_early_exam("fair")
    assert first is not None
    assert second is not None
    assert len(first.test.pairs) == len(second.test.pairs) == 10
    assert (first.test, first.exam) == (second.test, second.exam)
    continued = await again.run_exam("fair")
    assert continued is second
    assert len(second.test.pairs) > 10


async def test_an_attempt_is_written_down_before_its_first_rollout() -> None:
    journal = Noted()

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        assert journal.links
        return 1.0

    found = Gate("start", ExamSetting(TASKS, Seed.choose(0), journal), RolloutBudget(200), GatePlan(0), rollouts)
    held = await found.run_exam("same")
    assert held is not None
    assert journal.links == [held.exam.link]


async def test_arms_that_differ_in_resent_calls_get_no_verdict() -> None:
    async def notes(key: RolloutKey) -> Execution:
        return Execution(resent=int("/candidate/" in str(key)))

    asked = Asked()
    found = Gate(
        "start", ExamSetting(TASKS, Seed.choose(0), read_execution=notes), RolloutBudget(200), GatePlan(0), asked
    )
    held = await found.run_exam("good")
    assert held is not None
    assert held.test.verdict is Verdict.WITHHELD
    assert found.incumbent == "start"
    assert await found.run_exam("good") is None, "nor is it tried again"


async def test_a_verdict_is_withheld_when_more_positions_show_that_the_arms_differ() -> None:
    async def notes(key: RolloutKey) -> Execution:
        number = int(str(key).split("/")[1])
        return Execution(resent=int("/candidate/" in str(key) and number % 3 == 0))

    asked = Asked()
    found = Gate(
        "start", ExamSetting(TASKS, Seed.choose(0), read_execution=notes), RolloutBudget(200), GatePlan(0), asked
    )
    held = await found.run_exam("good")
    assert held is not None
    assert found.incumbent == "good", "3 of 7 against none may be chance"
    await found.tighten(held)
    assert held.test.verdict is Verdict.WITHHELD
    assert found.incumbent == "start"
