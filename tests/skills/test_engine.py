"""Whole runs in the world of known truth."""

from collections.abc import Callable, Sequence

import pytest
from scipy import stats

from whet.skills.attempt import Lost, Outcome, Verdict
from whet.skills.engine import Sharpened, sharpen
from whet.skills.plan import Plan
from whet.skills.search import NotMeasured, Step
from whet.testing.world import World, WorldProposer


class WorldRollouts:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.asked: dict[str, int] = {}

    async def __call__(self, task: str, skill: str, key: str) -> Outcome:
        self.asked[key] = self.asked.get(key, 0) + 1
        return float(self.world.succeeds(task, skill, key))


class Proposals:
    """Each proposal costs eight rollouts of training tasks."""

    def __init__(self, kind: str, seed: int) -> None:
        self._proposer, self.number = WorldProposer(kind, seed), 0

    async def propose(
        self, parent: str, steps: Sequence[Step], pay: Callable[[Sequence[str]], bool], section: str | None = None
    ) -> str | None:
        self.number += 1
        if not pay([f"train/{self.number}/{n}" for n in range(8)]):
            return None
        return self._proposer.propose(parent)


async def whole(kind: str, seed: int, budget: int) -> tuple[Sharpened, World]:
    rollouts = WorldRollouts(seed)
    world = rollouts.world
    done = await sharpen(
        "", world.tasks("train"), world.tasks("validation"), Plan(budget, seed), Proposals(kind, seed), rollouts
    )
    assert done.spent <= budget
    return done, world


def certificates(done: Sharpened) -> int:
    return sum(held.attempt.verdict is Verdict.CERTIFIED for held in done.held)


async def test_what_does_nothing_is_seldom_certified_though_the_search_takes_it() -> None:
    runs = [await whole("null", seed, 1500) for seed in range(100)]
    certified = sum(certificates(done) > 0 for done, _ in runs)
    assert certified <= stats.binom.isf(1e-4, 100, 0.10), "the guarantee"
    assert certified <= stats.binom.isf(1e-4, 100, 0.012), "what the reference finds"
    fooled = sum(any(step.accepted for step in done.steps) for done, _ in runs)
    assert fooled >= 90, "the world has lost its noise"


async def test_what_harms_never_replaces_the_start() -> None:
    runs = [await whole("harm", seed, 1500) for seed in range(60)]
    worse = sum(world.lift(done.certified, split="test") < -1e-9 for done, world in runs)
    assert worse <= stats.binom.isf(1e-4, 60, 0.10)
    leaders = sum(world.lift(done.leader, split="test") < -1e-9 for done, world in runs)
    assert leaders >= 15, "the search alone is fooled"


async def test_what_helps_is_found_and_certified() -> None:
    runs = [await whole("rich", seed, 3000) for seed in range(40)]
    certified = sum(certificates(done) > 0 for done, _ in runs)
    assert stats.binom.ppf(1e-4, 40, 0.776) <= certified
    lift = sum(world.lift(done.certified, split="test") for done, world in runs) / len(runs)
    assert lift == pytest.approx(0.154, abs=0.06)
    assert not any(world.lift(done.certified, split="test") < 0 for done, world in runs)


async def test_begun_again_with_what_was_paid_it_decides_the_same_and_pays_nothing() -> None:
    rollouts = WorldRollouts(3)
    world = rollouts.world

    async def run() -> Sharpened:
        tasks = world.tasks("train"), world.tasks("validation")
        return await sharpen("", *tasks, Plan(1500, 3), proposals, rollouts)

    proposals = Proposals("rich", 3)
    first = await run()
    asked, trained = set(rollouts.asked), 8 * proposals.number
    assert first.spent == len(asked) + trained
    proposals = Proposals("rich", 3)
    assert await run() == first
    assert set(rollouts.asked) == asked


async def test_levels_are_spent_in_their_order_and_the_last_one_is_kept_for_the_end() -> None:
    found = [await whole("rich", seed, 3000) for seed in range(12)]
    for done, _ in found:
        exams: dict[int, list[float]] = {}
        for held in done.held:
            exams.setdefault(held.exam.number, []).append(held.level)
        for number, levels in exams.items():
            assert levels == [pytest.approx(0.10 / 2**number / 4)] * len(levels)
            assert len(levels) <= 4
        incumbents = [held.exam.incumbent for held in done.held]
        assert incumbents[:1] in ([], [""])
    assert max(certificates(done) for done, _ in found) >= 2


async def test_lost_rollouts_are_no_verdict() -> None:
    async def lost(task: str, skill: str, key: str) -> Outcome:
        return Lost.UNRELATED

    world = World()
    with pytest.raises(NotMeasured, match="30 of 30 rollouts"):
        await sharpen("", world.tasks("train"), world.tasks("validation"), Plan(1000), Proposals("rich", 0), lost)
