"""Whole runs in the world of known truth."""

from collections.abc import Iterator
from functools import partial

import pytest
from scipy import stats

from known_world import World, skill_of
from whet.scoring import Cause
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import NotMeasured, Outcome, RolloutKey, Verdict
from whet.skills.search.two_tiers import SearchResult
from whole_runs import Paying, WorldRollouts, certificates, proposals, run_two_tiers, whole


def is_certified(held: ExamResult) -> bool:
    return held.test.verdict is Verdict.CERTIFIED


def seldom(hits: int, runs: int, at_most: float) -> bool:
    """Whether something that happens with this chance at most may have happened so often."""
    return hits <= stats.binom.isf(1e-4, runs, at_most)


async def test_what_does_nothing_is_seldom_certified_though_the_search_takes_it() -> None:
    runs = [(await whole("null", seed, 1500))[0] for seed in range(100)]
    certified = sum(certificates(done) > 0 for done in runs)
    assert seldom(certified, 100, 0.10), "the guarantee"
    assert sum(any(step.accepted for step in done.steps) for done in runs) >= 90, "the world has lost its noise"


async def test_what_helps_some_tasks_and_harms_others_is_seldom_certified() -> None:
    runs = [(await whole("mixed", seed, 1500))[0] for seed in range(60)]
    assert seldom(sum(certificates(done) > 0 for done in runs), 60, 0.05)


async def test_what_harms_never_replaces_the_start() -> None:
    runs = [await whole("harm", seed, 1500) for seed in range(100)]
    worse = sum(world.lift(done.certified, split="test") < -1e-9 for done, world in runs)
    assert seldom(worse, 100, 0.001)
    leaders = sum(world.lift(done.leader, split="test") < -1e-9 for done, world in runs)
    assert leaders >= stats.binom.ppf(1e-4, 100, 0.57), "the search alone is fooled"


async def test_what_helps_is_found_and_certified() -> None:
    runs = [await whole("rich", seed, 3000) for seed in range(40)]
    certified = sum(certificates(done) > 0 for done, _ in runs)
    assert stats.binom.ppf(1e-4, 40, 0.776) <= certified
    lifts = [world.lift(done.certified, split="test") for done, world in runs]
    assert sum(lifts) / len(lifts) == pytest.approx(0.154, abs=0.06)
    assert seldom(sum(lift < -1e-9 for lift in lifts), 40, 0.001)


def one_proposal(rule: str) -> Paying:
    """A writer with one idea, which the search is over with."""
    ideas = [rule]
    return Paying(lambda _: ideas.pop() if ideas else None)


async def sharpened_once(rule: str, seed: int) -> tuple[SearchResult, World]:
    rollouts = WorldRollouts(seed)
    tasks = rollouts.world.tasks("train"), rollouts.world.tasks("validation")
    return await run_two_tiers("", *tasks, GatePlan(900, seed), one_proposal(rule), rollouts), rollouts.world


async def test_what_the_search_leaves_goes_to_the_exam() -> None:
    done, _ = await sharpened_once(skill_of(["G0", "G1", "H0", "H2", "H3"]), 0)
    (held,) = done.exam_results
    assert is_certified(held)
    assert len(held.test.pairs) == 180, "six positions for each task, though a fifth of 900 is for 90"
    assert done.spent == 2 * 180 + 2 * 30 + 2 * 8


def next_of(ideas: Iterator[list[str]], _: str) -> str | None:
    found = next(ideas, None)
    return skill_of(found) if found else None


async def test_an_undecided_leader_is_continued_after_the_search() -> None:
    ideas = [["N0"], ["N0", "G0"], ["N0", "G0", "G1"]]
    for seed in range(40):
        rollouts, steps = WorldRollouts(seed), iter(ideas)
        tasks = rollouts.world.tasks("train"), rollouts.world.tasks("validation")
        proposer = Paying(partial(next_of, steps))
        told: list[tuple[Verdict | None, int, float]] = []

        def watch(event: object, told: list[tuple[Verdict | None, int, float]] = told) -> None:
            if isinstance(event, ExamResult):
                told.append((event.test.verdict, len(event.test.pairs), event.level))

        done = await run_two_tiers("", *tasks, GatePlan(600, seed), proposer, rollouts, watch)
        if told and told[0][0] is Verdict.UNDECIDED:
            assert len(done.exam_results) == 1
            assert [level for *_, level in told] == [pytest.approx(0.05)] * 2
            assert told[1][1] > told[0][1]
            assert done.exam_results[0].test.verdict is told[1][0]
            assert max(rollouts.asked.values()) == 1
            return
    pytest.fail("no early attempt was undecided")


async def test_what_a_budget_was_raised_by_comes_when_the_search_is_over() -> None:
    rollouts = WorldRollouts(2)
    tasks = rollouts.world.tasks("train"), rollouts.world.tasks("validation")

    async def run(raised: int) -> SearchResult:
        proposer = one_proposal(skill_of(["G0"]))
        return await run_two_tiers("", *tasks, GatePlan(120, 2), proposer, rollouts, close=lambda: raised)

    before, after = await run(0), await run(500)
    assert (before.steps, before.leader) == (after.steps, after.leader)
    assert (
        after.exam_results[0].test.pairs[: len(before.exam_results[0].test.pairs)] == before.exam_results[0].test.pairs
    )
    assert len(after.exam_results[0].test.pairs) > len(before.exam_results[0].test.pairs)
    assert before.spent <= 120 < after.spent <= 620


async def test_a_leader_that_does_nothing_is_seldom_certified() -> None:
    runs = [(await sharpened_once(skill_of(["N0"]), seed))[0] for seed in range(300)]
    held = sum(len(done.exam_results) for done in runs)
    assert held >= 100, "the search takes it in two of five runs"
    assert seldom(sum(certificates(done) for done in runs), held, 0.05)


async def test_lost_rollouts_are_no_verdict() -> None:
    async def lost(task: str, skill: str, key: RolloutKey) -> Outcome:
        return Cause.MODEL

    world = World()
    with pytest.raises(NotMeasured, match="30 of 30 rollouts"):
        await run_two_tiers(
            "", world.tasks("train"), world.tasks("validation"), GatePlan(1000), proposals("rich", 0), lost
        )
