"""How better skills are looked for: races drop what falls behind, the pool keeps what is best somewhere."""

from collections import Counter
from collections.abc import Sequence

import pytest

from known_world import World, sentence
from whet.scoring import Cause
from whet.skills.documents.store import PlainTexts
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.kinds import SearchKind
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import NotMeasured, Outcome, Pay, RolloutKey, RunPart, Verdict
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import TrainTasks
from whet.skills.search.pareto import Member, Pareto, weights
from whet.skills.search.race import Race, cost
from whet.skills.search.ratchet import Ratchet
from whet.skills.search.two_tiers import SearchResult
from whole_runs import run_two_tiers

TASKS = tuple(f"t{n}" for n in range(9))


class Scripted:
    """Scores by skill and task, or by skill alone; what was asked is kept."""

    def __init__(self, scores: dict[str, float | Sequence[Outcome]]) -> None:
        self._scores = scores
        self.asked = Counter[RolloutKey]()
        self.tried: dict[str, list[str]] = {}

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        self.asked[key] += 1
        self.tried.setdefault(skill, []).append(task)
        found = self._scores[skill]
        return found if isinstance(found, float) else found[TASKS.index(task)]


class Lists:
    """Proposes these, one after the other, and keeps what it was asked."""

    def __init__(self, *skills: str) -> None:
        self._skills = list(skills)
        self.parents: list[str] = []
        self.sections: list[str | None] = []

    async def propose(
        self,
        parent: str,
        steps: Sequence[SearchStep],
        pay: Pay,
        section: str | None = None,
    ) -> str | None:
        self.parents.append(parent)
        self.sections.append(section)
        return self._skills.pop(0) if self._skills else None


def race(rollouts: Scripted, proposer: Lists, purse: int) -> tuple[Race, TrainTasks]:
    dev = TrainTasks(TASKS, RolloutBudget(purse), rollouts)
    return Race("start", dev, GatePlan(purse), proposer), dev


async def test_a_race_is_won_by_the_best_and_the_others_cost_less() -> None:
    rollouts = Scripted({"start": 0.3, "a": 0.1, "b": 0.5, "c": 0.4, "d": 0.2})
    search, dev = race(rollouts, Lists("a", "b", "c", "d"), 1000)
    steps = await search.round()
    assert [(step.candidate, step.dropped, step.accepted) for step in steps] == [
        ("d", True, False),
        ("a", True, False),
        ("c", True, False),
        ("b", False, True),
    ]
    assert [step.mean for step in steps] == pytest.approx([0.2, 0.1, 0.4, 0.5])
    assert search.leader == "b"
    assert {skill: len(tasks) for skill, tasks in rollouts.tried.items()} == {
        "start": 9,
        "a": 3,
        "d": 3,
        "c": 6,
        "b": 9,
    }
    assert 1000 - dev.budget.left == 9 + cost(4, 9) == rollouts.asked.total()
    assert await search.round() == [], "the proposer has nothing more"


async def test_racers_meet_on_the_same_tasks() -> None:
    names = [f"{n}{letter}" for n in range(3) for letter in "abcd"]
    rollouts = Scripted({"start": 0.9, **dict.fromkeys(names, 0.5)})
    search, _ = race(rollouts, Lists(*names), 1000)
    orders = []
    for n in range(3):
        assert len(await search.round()) == 4
        tried = [set(rollouts.tried[f"{n}{letter}"][:3]) for letter in "abcd"]
        assert tried == [tried[0]] * 4
        orders.append(tuple(rollouts.tried[f"{n}a"]))
    assert len(set(orders)) == 3


async def test_a_race_never_passes_its_budget() -> None:
    for purse in range(9, 60):
        rollouts = Scripted({"start": 0.3, "a": 0.1, "b": 0.5, "c": 0.2})
        search, dev = race(rollouts, Lists("a", "b", "b", "c"), purse)
        while await search.round():
            pass
        assert set(rollouts.asked.values()) == {1}
        assert rollouts.asked.total() == purse - dev.budget.left


async def test_a_race_among_lost_rollouts_is_no_verdict() -> None:
    rollouts = Scripted({"start": 0.3, "a": [Cause.MODEL] * 9, "b": [Cause.AGENT] * 9})
    search, _ = race(rollouts, Lists("a", "b"), 1000)
    with pytest.raises(NotMeasured, match="9 of 9 rollouts") as found:
        await search.round()
    assert len(found.value.keys) == 9


async def test_a_racer_without_scores_falls_behind() -> None:
    rollouts = Scripted({"start": 0.3, "a": [Cause.MODEL] * 9, "b": 0.0})
    search, _ = race(rollouts, Lists("a", "b"), 1000)
    assert [(step.candidate, step.mean, step.accepted) for step in await search.round()] == [("b", 0.0, False)]


class Pays(Lists):
    """Spends all but so much on its first proposal, and keeps how many proposals it was told of."""

    def __init__(self, left: int, *skills: str) -> None:
        super().__init__(*skills)
        self.left, self.told = left, list[int]()

    async def propose(
        self,
        parent: str,
        steps: Sequence[SearchStep],
        pay: Pay,
        section: str | None = None,
    ) -> str | None:
        if not self.told:
            assert pay([RolloutKey.proposal(f"own/{n}") for n in range(91 - self.left)])
        self.told.append(len(steps))
        return await super().propose(parent, steps, pay, section)


@pytest.mark.parametrize(("left", "lanes"), [(cost(4, 9), 4), (cost(4, 9) - 1, 3), (9, 1), (8, 0)])
async def test_a_race_has_as_many_racers_as_it_affords(left: int, lanes: int) -> None:
    rollouts = Scripted({"start": 0.3, "a": 0.1, "b": 0.5, "c": 0.4, "d": 0.2})
    search, dev = race(rollouts, Pays(left, "a", "b", "c", "d"), 100)
    assert len(await search.round()) == lanes
    assert dev.budget.left >= 0


def ratchet(rollouts: Scripted, proposer: Lists, purse: int = 1000, tasks: Sequence[str] = TASKS) -> Ratchet:
    return Ratchet(
        "start",
        TrainTasks(tasks, RolloutBudget(purse), rollouts),
        GatePlan(purse, rejections_before_remeasuring=2),
        proposer,
    )


async def test_when_most_rollouts_are_lost_there_is_no_verdict() -> None:
    scores: dict[str, float | Sequence[Outcome]] = {
        "start": 0.3,
        "a": [Cause.MODEL] * 4 + [0.5] * 5,
        "b": [Cause.MODEL] * 5 + [0.6] * 4,
    }
    search = ratchet(Scripted(scores), Lists("a", "b"), tasks=TASKS[:8])
    (step,) = await search.round()
    assert (step.mean, step.accepted) == (0.5, True)
    with pytest.raises(NotMeasured, match="5 of 8 rollouts on training tasks have no score"):
        await search.round()


async def test_after_rejections_the_leader_is_measured_afresh() -> None:
    rollouts = Scripted({"start": 0.3, "a": 0.4, **dict.fromkeys("bcdefg", 0.1)})
    search = ratchet(rollouts, Lists(*"bacdefg"))
    measured = []
    for _ in range(7):
        assert len(await search.round()) == 1
        measured.append(len(rollouts.tried.get("a", ())) // len(TASKS))
    assert measured == [0, 1, 1, 1, 2, 2, 3]
    assert set(rollouts.asked.values()) == {1}, "each time by new rollouts"


@pytest.mark.parametrize("purse", [9, 17])
async def test_nothing_is_proposed_that_cannot_be_tried(purse: int) -> None:
    proposer = Lists("a")
    assert await ratchet(Scripted({"start": 0.3}), proposer, purse).round() == []
    assert proposer.parents == []


@pytest.mark.parametrize("kind", [Ratchet, Race, Pareto])
async def test_a_proposer_is_told_of_every_step_before(kind: type[Ratchet | Race | Pareto]) -> None:
    proposer = Pays(91, *"abcd", *"efgh")
    rollouts = Scripted({"start": 0.5, **dict.fromkeys("abcdefgh", 0.1)})
    given = "start", TrainTasks(TASKS, RolloutBudget(1000), rollouts), GatePlan(1000), proposer
    search = kind(*given, PlainTexts()) if kind is Pareto else kind(*given)  # type: ignore[call-arg]
    before = await search.round()
    assert await search.round()
    assert proposer.told[-1] == len(before) > 0


def member(*scores: Outcome) -> Member:
    there = [score for score in scores if not isinstance(score, Cause)]
    return Member(("",), sum(there) / len(there), [None if isinstance(score, Cause) else score for score in scores])


@pytest.mark.parametrize("kind", list(SearchKind))
async def test_every_search_takes_the_samples_it_is_told(kind: SearchKind) -> None:
    asked = Counter[str]()

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        asked[f"{skill} {task}"] += key.part is RunPart.SEARCH
        # The second sample alone tells that it is better.
        return float(skill != START and str(key).endswith("/1"))

    plan = GatePlan(200, samples=2, search=kind, shorten=False)
    done = await run_two_tiers(START, TASKS, TASKS, plan, Lists(START + "- more\n"), rollouts)
    (step,) = done.steps
    assert (step.mean, step.bar, step.accepted) == (0.5, 0.0, True)
    searched = {f"{skill} {task}": 2 for skill in (START, step.candidate) for task in TASKS}
    assert asked == searched


async def test_tasks_of_a_measurement_are_told_by_the_mean_of_their_samples() -> None:
    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        first = not str(key).endswith("/1")
        outcomes: dict[str, Outcome] = {"a": float(first), "b": Cause.AGENT, "c": 1.0 if first else Cause.MODEL}
        return outcomes[task]

    dev = TrainTasks(("a", "b", "c"), RolloutBudget(6), rollouts, samples=2)
    found = await dev.measure_some(1, ["skill"], dev.tasks)
    assert found is not None
    assert dev.by_task(found["skill"]) == [0.5, None, 1.0]
    assert dev.budget.left == 0


def test_the_front_of_a_pool_is_what_is_best_on_some_task() -> None:
    pool = {
        "even": member(0.5, 0.5, 0.5, 0.5),
        "first": member(1.0, 1.0, 0.0, 0.0),
        "last": member(0.0, 0.0, 0.0, 1.0),
        "shared": member(1.0, 0.0, 0.0, 1.0),
        "lost": member(Cause.AGENT, Cause.AGENT, 0.0, 0.0),
    }
    assert weights(pool) == {"even": 1, "first": 2, "shared": 2}
    assert weights({"a": member(1.0, Cause.AGENT), "b": member(0.5, Cause.AGENT)}) == {"a": 1}


START = "# A\n- a\n# B\n- b\n"
BETTER_A, BETTER_B = START.replace("- a", "- a!"), START.replace("- b", "- b!")
BOTH = BETTER_A.replace("- b", "- b!")


@pytest.mark.parametrize("leads", [True, False])
async def test_versions_best_on_different_tasks_are_merged_once(leads: bool) -> None:
    low, high = [0.0] * 4, [1.0] * 4
    rollouts = Scripted(
        {
            START: 0.2,
            BETTER_A: [*high, *low, 0.0],
            BETTER_B: [*low, *high, 0.1],
            BOTH: [*(high if leads else low) * 2, 1.0],
        }
    )
    proposer = Lists(BETTER_A, BETTER_B)
    dev = TrainTasks(TASKS, RolloutBudget(1000), rollouts)
    search = Pareto(START, dev, GatePlan(1000, seed=4), proposer, PlainTexts())
    steps = [step for _ in range(3) for step in await search.round()]
    assert [step.candidate for step in steps] == [BETTER_A, BETTER_B, BOTH]
    assert proposer.sections == ["A", "B"], "each section in its turn"
    assert steps[-1].parent == BETTER_B, "the better of the two"
    assert search.leader == (BOTH if leads else BETTER_B)
    assert await search.round() == []
    assert rollouts.asked.total() == 9 * 4


async def test_a_parent_may_be_one_that_does_not_lead() -> None:
    scores: dict[str, float | Sequence[Outcome]] = {START: [0.0] * 8 + [1.0], BETTER_A: [1.0] * 8 + [0.0]}
    names = [f"{START}- {n}\n" for n in range(30)]
    proposer = Lists(BETTER_A, *names)
    dev = TrainTasks(TASKS, RolloutBudget(10_000), Scripted({**scores, **dict.fromkeys(names, 0.0)}))
    search = Pareto(START, dev, GatePlan(1000), proposer, PlainTexts())
    while await search.round():
        pass
    chosen = Counter(proposer.parents[1:31])
    assert search.leader == BETTER_A
    assert set(chosen) == {START, BETTER_A}
    assert chosen[BETTER_A] > chosen[START] >= 1, "weighted by how many tasks each is best on"


async def test_a_section_without_a_proposal_is_passed_over() -> None:
    class OnlyB(Lists):
        async def propose(
            self,
            parent: str,
            steps: Sequence[SearchStep],
            pay: Pay,
            section: str | None = None,
        ) -> str | None:
            return await super().propose(parent, steps, pay, section) if section == "B" else None

    dev = TrainTasks(TASKS, RolloutBudget(1000), Scripted({START: 0.2, BETTER_B: 0.5}))
    (step,) = await Pareto(START, dev, GatePlan(1000), OnlyB(BETTER_B), PlainTexts()).round()
    assert step.candidate == BETTER_B


async def test_a_leader_that_does_worse_leaves_the_front() -> None:
    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        return float(str(key).startswith("dev/1/")) if skill == "start" else 0.5

    proposer = Lists("a", "b", "c")
    plan = GatePlan(1000, rejections_before_remeasuring=2)
    search = Pareto("start", TrainTasks(TASKS, RolloutBudget(1000), rollouts), plan, proposer, PlainTexts())
    assert [step.accepted for _ in range(3) for step in await search.round()] == [False, False, True]
    assert proposer.parents[:2] == ["start", "start"]
    assert proposer.parents[2] in {"a", "b"}
    assert proposer.sections == [None] * 3, "where there is one section, others may be added"


class Sections:
    """Adds a helpful or useless rule to the section that it is asked for."""

    def __init__(self, seed: int) -> None:
        self._number = seed

    async def propose(
        self,
        parent: str,
        steps: Sequence[SearchStep],
        pay: Pay,
        section: str | None = None,
    ) -> str | None:
        self._number += 1
        rule = ("N0", "H0", "H1", "G0", "N1", "H2", "H3", "B0", "H4", "G1")[self._number * 7 % 10]
        heading = f"# {section}\n" if section else "# One\n"
        return parent.replace(heading, f"{heading}{sentence(rule)}\n")


@pytest.mark.parametrize("kind", list(SearchKind))
async def test_every_search_keeps_to_its_budget_and_is_exact_when_begun_again(kind: SearchKind) -> None:
    start = "# One\n# Two\n"
    for seed in range(3):
        world = World(seed)
        asked = Counter[RolloutKey]()

        async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
            asked[key] += 1  # noqa: B023
            return float(world.succeeds(task, skill, str(key)))  # noqa: B023

        async def run() -> SearchResult:
            tasks = world.tasks("train"), world.tasks("validation")  # noqa: B023
            return await run_two_tiers(start, *tasks, GatePlan(1500, seed, search=kind), Sections(seed), rollouts)  # noqa: B023

        first = await run()
        assert first.spent == len(asked) <= 1500
        paid = set(asked)
        assert await run() == first
        assert set(asked) == paid
        assert any(step.accepted for step in first.steps)
        assert all(
            world.lift(held.candidate) > 0 for held in first.exam_results if held.test.verdict is Verdict.CERTIFIED
        )
