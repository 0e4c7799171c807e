"""Whole runs in the world of known truth."""

import pytest
from scipy import stats
from whole_runs import Paying, WorldRollouts, certificates, proposals, whole

from whet.skills.attempt import Lost, Outcome, Verdict
from whet.skills.engine import Sharpened, sharpen
from whet.skills.gate import Held
from whet.skills.plan import Plan
from whet.skills.search import NotMeasured
from whet.testing.world import World, skill_of


def is_certified(held: Held) -> bool:
    return held.attempt.verdict is Verdict.CERTIFIED


def seldom(hits: int, runs: int, at_most: float) -> bool:
    """Whether something that happens with this chance at most may have happened so often."""
    return hits <= stats.binom.isf(1e-4, runs, at_most)


async def test_what_does_nothing_is_seldom_certified_though_the_search_takes_it() -> None:
    runs = [(await whole("null", seed, 1500))[0] for seed in range(400)]
    certified = sum(certificates(done) > 0 for done in runs)
    assert certified <= 64, "the guarantee of .10"
    assert certified <= 16, "the reference finds .006 to .012"
    assert sum(any(step.accepted for step in done.steps) for done in runs) >= 380, "the world has lost its noise"


async def test_what_helps_some_tasks_and_harms_others_is_seldom_certified() -> None:
    runs = [(await whole("mixed", seed, 1500))[0] for seed in range(60)]
    assert seldom(sum(certificates(done) > 0 for done in runs), 60, 0.02)


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


async def test_begun_again_with_what_was_paid_it_decides_the_same_and_pays_nothing() -> None:
    rollouts = WorldRollouts(3)
    world = rollouts.world

    async def run() -> Sharpened:
        tasks = world.tasks("train"), world.tasks("validation")
        return await sharpen("", *tasks, Plan(1500, 3), proposer, rollouts)

    proposer = proposals("rich", 3)
    first = await run()
    asked, trained = set(rollouts.asked), 8 * proposer.number
    assert first.spent == len(asked) + trained
    proposer = proposals("rich", 3)
    assert await run() == first
    assert set(rollouts.asked) == asked


async def test_levels_are_spent_in_their_order_and_what_was_certified_last_is_returned() -> None:
    found = [await whole("rich", seed, 3000) for seed in range(12)]
    for done, _ in found:
        exams: dict[int, list[float]] = {}
        for held in done.held:
            exams.setdefault(held.exam.number, []).append(held.level)
        for number, levels in exams.items():
            whole_exam = pytest.approx(0.10 / 2**number)
            assert levels == [pytest.approx(0.10 / 2**number / 4)] * len(levels) or levels == [whole_exam]
            assert len(levels) <= 4
            assert sum(done.levels[number - 1]) == whole_exam
            if levels == [whole_exam]:
                assert number == done.held[-1].exam.number, "nothing follows"
        incumbents = [held.exam.incumbent for held in done.held]
        assert incumbents[:1] in ([], [""])
        assert done.certified == next((one.candidate for one in reversed(done.held) if is_certified(one)), "")
    assert max(certificates(done) for done, _ in found) >= 2


def one_proposal(rule: str) -> Paying:
    """A writer with one idea, which the search is over with."""
    ideas = [rule]
    return Paying(lambda _: ideas.pop() if ideas else None)


async def sharpened_once(rule: str, seed: int) -> tuple[Sharpened, World]:
    rollouts = WorldRollouts(seed)
    tasks = rollouts.world.tasks("train"), rollouts.world.tasks("validation")
    return await sharpen("", *tasks, Plan(900, seed, shorten=False), one_proposal(rule), rollouts), rollouts.world


async def test_the_only_candidate_of_an_exam_has_the_level_of_all_and_meets_the_incumbent_once_a_position() -> None:
    done, _ = await sharpened_once(skill_of(["G0", "G1", "H0", "H2", "H3"]), 0)
    (held,) = done.held
    assert (held.level, held.attempt.terms.repeats, done.levels[0]) == (0.05, 1, (0.05,))
    assert held.attempt.terms.positions == 90, "180 rollouts are for exams"


async def test_the_only_candidate_of_an_exam_is_seldom_certified_when_it_does_nothing() -> None:
    runs = [(await sharpened_once(skill_of(["N0"]), seed))[0] for seed in range(600)]
    held = sum(len(done.held) for done in runs)
    assert held >= 200, "the search takes it in two of five runs"
    assert seldom(sum(certificates(done) for done in runs), held, 0.05)


async def test_lost_rollouts_are_no_verdict() -> None:
    async def lost(task: str, skill: str, key: str) -> Outcome:
        return Lost.UNRELATED

    world = World()
    with pytest.raises(NotMeasured, match="30 of 30 rollouts"):
        await sharpen("", world.tasks("train"), world.tasks("validation"), Plan(1000), proposals("rich", 0), lost)
