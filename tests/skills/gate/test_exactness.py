"""What must hold exactly of whole runs: no matter in which order rollouts end, or how many run at once."""

import asyncio
import random

import pytest

from known_world import World
from whet.skills.gate.kinds import SearchKind
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Outcome, RolloutKey, Verdict
from whet.skills.search.two_tiers import SearchResult
from whole_runs import proposals, run_two_tiers, whole


class Disordered:
    """Rollouts of the world, so many at once, that end in any order; those that fail end first."""

    def __init__(self, seed: int, at_once: int, disorder: int) -> None:
        self.world, self.asked = World(seed), set[RolloutKey]()
        self._room, self._random, self._disorder = asyncio.Semaphore(at_once), random.Random(disorder), disorder

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        self.asked.add(key)
        async with self._room:
            succeeds = self.world.succeeds(task, skill, str(key))
            for _ in range(self._random.randrange(4) + 4 * succeeds if self._disorder else 0):
                await asyncio.sleep(0)
        return float(succeeds)


@pytest.mark.parametrize("search", SearchKind)
async def test_a_run_does_not_depend_on_the_order_of_rollouts(
    search: SearchKind,
) -> None:
    async def run(at_once: int, disorder: int) -> tuple[SearchResult, set[RolloutKey]]:
        rollouts = Disordered(3, at_once, disorder)
        tasks = rollouts.world.tasks("train"), rollouts.world.tasks("validation")
        done = await run_two_tiers("", *tasks, GatePlan(1500, 3, search=search), proposals("rich", 3), rollouts)
        return done, rollouts.asked

    first = await run(1000, 0)
    assert first[0].exam_results
    for at_once, disorder in ((1, 1), (7, 2), (1000, 3)):
        assert await run(at_once, disorder) == first


async def test_a_verdict_that_certifies_nothing_takes_nothing_back() -> None:
    later = 0
    for seed in range(6):
        done, _ = await whole("rich", seed, 3000)
        certified = [held.candidate for held in done.exam_results if held.test.verdict is Verdict.CERTIFIED]
        assert done.certified == ([done.start, *certified][-1])
        verdicts = [held.test.verdict for held in done.exam_results]
        later += Verdict.CERTIFIED in verdicts and verdicts[-1] is not Verdict.CERTIFIED
    assert later, "some run must have failed to certify more after a certificate"
