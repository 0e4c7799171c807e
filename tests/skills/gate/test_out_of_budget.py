"""Where the hard limit of a budget falls into a search or an exam, it ends with what there is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from known_world import World, WorldProposer, skill_of
from whet.skills.gate.exam import ExamSequence, RolloutBudget, run_exam, tighten
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.sequential_test import ExamTerms, SequentialTest, replay
from whet.skills.measurement import Outcome, OutOfBudget, RolloutKey, RunPart, Verdict
from whet.skills.search.two_tiers import SearchResult
from whole_runs import Proposing, run_two_tiers

TERMS = ExamTerms(0.0125, 120)
GOOD = skill_of(f"H{n}" for n in range(6))


class Limited:
    """Rollouts of the world, so many and no more; what was paid is free from then on."""

    def __init__(self, most: int, seed: int = 0) -> None:
        self.world, self.most, self.known = World(seed), most, set[RolloutKey]()

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        if key not in self.known and len(self.known) >= self.most:
            raise OutOfBudget
        self.known.add(key)
        return float(self.world.succeeds(task, skill, str(key)))


def exam() -> ExamSequence:
    return ExamSequence("", GOOD, World().tasks("validation"), "0", 1, "before")


async def held(rollouts: Limited) -> SequentialTest:
    attempt = SequentialTest(TERMS)
    await run_exam(exam(), attempt, rollouts, RolloutBudget(10_000))
    return attempt


@settings(max_examples=40)
@given(most=st.integers(0, 200))
async def test_an_exam_that_is_cut_short_is_undecided(most: int) -> None:
    rollouts = Limited(most)
    whole, attempt = await held(Limited(10_000)), await held(rollouts)
    assert whole.verdict is Verdict.CERTIFIED
    assert attempt.pairs == whole.pairs[: len(attempt.pairs)]
    if len(attempt.pairs) < len(whole.pairs):
        assert attempt.verdict is Verdict.UNDECIDED
        assert len(attempt.pairs) <= most // 2
    if attempt.pairs:
        assert replay(attempt.terms, attempt.pairs) == attempt, "its certificate holds"
    assert await held(rollouts) == attempt


@pytest.mark.parametrize("more", [0, 7, 40])
async def test_bounds_are_sharpened_as_far_as_the_money_goes(more: int) -> None:
    rollouts = Limited(10_000)
    attempt = await held(rollouts)
    rollouts.most, decided = len(rollouts.known) + more, len(attempt.pairs)
    await tighten(exam(), attempt, 120, rollouts, RolloutBudget(10_000))
    assert attempt.verdict is Verdict.CERTIFIED
    assert decided <= len(attempt.pairs) <= decided + more // 2


async def test_bounds_rest_on_no_position_behind_one_that_was_not_paid() -> None:
    rollouts = Limited(10_000)
    attempt = await held(rollouts)
    decided = len(attempt.pairs)

    async def one_fails(task: str, skill: str, key: RolloutKey) -> Outcome:
        if f"/{decided + 2}/" in str(key):
            raise OutOfBudget
        return await rollouts(task, skill, key)

    await tighten(exam(), attempt, 120, one_fails, RolloutBudget(10_000))
    assert len(attempt.pairs) == decided + 2, "their order is that of the exam"


async def test_the_leader_of_a_search_without_money_is_examined() -> None:
    class SearchIsLimited(Limited):
        async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
            self.most = 10_000 if key.part is not RunPart.SEARCH else 400
            return await super().__call__(task, skill, key)

    async def run(rollouts: Limited) -> SearchResult:
        world = rollouts.world
        tasks = world.tasks("train"), world.tasks("validation")
        proposer = Proposing(WorldProposer("rich", 1).propose)
        return await run_two_tiers("", *tasks, GatePlan(3000, 1), proposer, rollouts)

    rollouts = SearchIsLimited(0, seed=1)
    found = await run(rollouts)
    assert len(found.steps) < 400 / 30
    assert [held.candidate for held in found.exam_results][-1:] == [found.leader]
    assert await run(rollouts) == found
