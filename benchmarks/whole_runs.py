"""Whole runs of the engine in the world of known truth."""

from collections.abc import Callable, Sequence

from known_world import World, WorldProposer
from whet.skills.gate.gate import ExamSetting
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.measurement import Outcome, Pay, ReadExecution, RolloutKey, Rollouts, Verdict, clean_execution
from whet.skills.search.base import CandidateSource
from whet.skills.search.two_tiers import SearchResult, SearchSetting, WatchSearch, search_and_certify

PER_PROPOSAL = 8
"""Rollouts of training tasks that a proposal costs, besides its own measurement."""


class WorldRollouts:
    """Rollouts that cost nothing; how often each was asked for is kept."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.asked: dict[RolloutKey, int] = {}

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        self.asked[key] = self.asked.get(key, 0) + 1
        return float(self.world.succeeds(task, skill, str(key)))


class Proposing:
    """Proposes what a function makes of the skill, and pays for nothing."""

    def __init__(self, propose: Callable[[str], str | None]) -> None:
        self._propose, self.number = propose, 0

    async def propose(self, parent: str, steps: object, pay: Pay, section: str | None = None) -> str | None:
        return self._propose(parent)


class Paying(Proposing):
    """Proposes, and pays for what it looked at."""

    async def propose(self, parent: str, steps: object, pay: Pay, section: str | None = None) -> str | None:
        self.number += 1
        if not pay([RolloutKey.proposal(f"train/{self.number}/{n}") for n in range(PER_PROPOSAL)]):
            return None
        return self._propose(parent)


def proposals(kind: str, seed: int) -> Paying:
    return Paying(WorldProposer(kind, seed).propose)


async def run_two_tiers(
    start: str,
    train: Sequence[str],
    validation: Sequence[str],
    plan: GatePlan,
    proposer: CandidateSource,
    rollouts: Rollouts,
    watch: WatchSearch = lambda _: None,
    read_execution: ReadExecution = clean_execution,
    close: Callable[[], int] = lambda: 0,
) -> SearchResult:
    """Search and certify skills that are plain texts; the plan's seed orders the exams."""
    exams = ExamSetting(tuple(validation), Seed.choose(plan.seed), read_execution=read_execution)
    return await search_and_certify(start, plan, SearchSetting(train, proposer, close=close), exams, rollouts, watch)


async def whole(kind: str, seed: int, budget: int) -> tuple[SearchResult, World]:
    """One run, all defaults."""
    rollouts = WorldRollouts(seed)
    world = rollouts.world
    tasks = world.tasks("train"), world.tasks("validation")
    done = await run_two_tiers("", *tasks, GatePlan(budget, seed), proposals(kind, seed), rollouts)
    assert done.spent <= budget
    return done, world


def certificates(done: SearchResult) -> int:
    return sum(held.test.verdict is Verdict.CERTIFIED for held in done.exam_results)
