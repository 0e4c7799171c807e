"""Whole runs in the world of known truth."""

from collections.abc import Callable, Sequence

from whet.skills.attempt import Outcome
from whet.skills.engine import Sharpened, Step, sharpen
from whet.skills.plan import Plan
from whet.testing.world import World, WorldProposer


class WorldRollouts:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.asked: dict[str, int] = {}
        self._chances: dict[tuple[str, str], float] = {}

    async def __call__(self, task: str, skill: str, key: str) -> Outcome:
        self.asked[key] = self.asked.get(key, 0) + 1
        return float(self.world.succeeds(task, skill, key))


class Proposals:
    """Each proposal costs eight rollouts of training tasks."""

    def __init__(self, kind: str, seed: int) -> None:
        self._proposer, self._number = WorldProposer(kind, seed), 0

    async def propose(self, leader: str, steps: Sequence[Step], pay: Callable[[Sequence[str]], bool]) -> str | None:
        self._number += 1
        if not pay([f"train/{self._number}/{n}" for n in range(8)]):
            return None
        return self._proposer.propose(leader)


async def whole(kind: str, seed: int, budget: int) -> tuple[Sharpened, World]:
    rollouts = WorldRollouts(seed)
    world = rollouts.world
    done = await sharpen(
        "", world.tasks("train"), world.tasks("validation"), Plan(budget, seed), Proposals(kind, seed), rollouts
    )
    assert done.spent <= budget
    return done, world
