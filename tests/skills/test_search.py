"""How better skills are looked for: races drop what falls behind, the pool keeps what is best somewhere."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from whet.skills.attempt import Lost, Outcome, Verdict
from whet.skills.engine import Sharpened, sharpen
from whet.skills.exam import Purse
from whet.skills.kinds import SearchKind
from whet.skills.plan import Plan
from whet.skills.search import Dev, NotMeasured, Step
from whet.skills.search_pareto import Member, Pareto, weights
from whet.skills.search_race import Race, cost
from whet.skills.texts import Verbatim
from whet.testing.world import World, sentence

TASKS = tuple(f"t{n}" for n in range(9))


class Scripted:
    """Scores by skill and task, or by skill alone; what was asked is kept."""

    def __init__(self, scores: dict[str, float | Sequence[Outcome]]) -> None:
        self._scores = scores
        self.asked = Counter[str]()
        self.tried: dict[str, list[str]] = {}

    async def __call__(self, task: str, skill: str, key: str) -> Outcome:
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
        self, parent: str, steps: Sequence[Step], pay: Callable[[Sequence[str]], bool], section: str | None = None
    ) -> str | None:
        self.parents.append(parent)
        self.sections.append(section)
        return self._skills.pop(0) if self._skills else None


def race(rollouts: Scripted, proposer: Lists, purse: int) -> tuple[Race, Dev]:
    dev = Dev(TASKS, Purse(purse), rollouts)
    return Race("start", dev, Plan(purse), proposer), dev


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
    assert 1000 - dev.purse.left == 9 + cost(4, 9) == rollouts.asked.total()
    assert await search.round() == [], "the proposer has nothing more"


async def test_racers_meet_on_the_same_tasks_in_an_order_that_changes_from_race_to_race() -> None:
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


async def test_two_racers_with_the_same_text_are_one_and_a_race_never_passes_its_purse() -> None:
    for purse in range(9, 60):
        rollouts = Scripted({"start": 0.3, "a": 0.1, "b": 0.5, "c": 0.2})
        search, dev = race(rollouts, Lists("a", "b", "b", "c"), purse)
        while await search.round():
            pass
        assert set(rollouts.asked.values()) == {1}
        assert rollouts.asked.total() == purse - dev.purse.left


async def test_a_race_among_lost_rollouts_is_no_verdict() -> None:
    rollouts = Scripted({"start": 0.3, "a": [Lost.UNRELATED] * 9, "b": [Lost.RELATED] * 9})
    search, _ = race(rollouts, Lists("a", "b"), 1000)
    with pytest.raises(NotMeasured, match="9 of 9 rollouts") as found:
        await search.round()
    assert len(found.value.keys) == 9


def member(*scores: Outcome) -> Member:
    there = [score for score in scores if not isinstance(score, Lost)]
    return Member(("",), sum(there) / len(there), [None if isinstance(score, Lost) else score for score in scores])


@pytest.mark.parametrize("kind", list(SearchKind))
async def test_every_search_takes_as_many_samples_of_each_task_as_it_is_told(kind: SearchKind) -> None:
    asked = Counter[str]()

    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        asked[f"{skill} {task}"] += key.startswith("dev/")
        # The second sample alone tells that it is better.
        return float(skill != START and key.endswith("/1"))

    plan = Plan(200, samples=2, search=kind, shorten=False)
    done = await sharpen(START, TASKS, TASKS, plan, Lists(START + "- more\n"), rollouts)
    (step,) = done.steps
    assert (step.mean, step.bar, step.accepted) == (0.5, 0.0, True)
    searched = {f"{skill} {task}": 2 for skill in (START, step.candidate) for task in TASKS}
    assert asked == searched


async def test_tasks_of_a_measurement_are_told_by_the_mean_of_their_samples() -> None:
    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        first = not key.endswith("/1")
        outcomes: dict[str, Outcome] = {"a": float(first), "b": Lost.RELATED, "c": 1.0 if first else Lost.UNRELATED}
        return outcomes[task]

    dev = Dev(("a", "b", "c"), Purse(6), rollouts, samples=2)
    found = await dev.measure_some(1, ["skill"], dev.tasks)
    assert found is not None
    assert dev.by_task(found["skill"]) == [0.5, None, 1.0]
    assert dev.purse.left == 0


def test_the_front_of_a_pool_is_what_is_best_on_some_task() -> None:
    pool = {
        "even": member(0.5, 0.5, 0.5, 0.5),
        "first": member(1.0, 1.0, 0.0, 0.0),
        "last": member(0.0, 0.0, 0.0, 1.0),
        "shared": member(1.0, 0.0, 0.0, 1.0),
        "lost": member(Lost.RELATED, Lost.RELATED, 0.0, 0.0),
    }
    assert weights(pool) == {"even": 1, "first": 2, "shared": 2}


START = "# A\n- a\n# B\n- b\n"
BETTER_A, BETTER_B = START.replace("- a", "- a!"), START.replace("- b", "- b!")
BOTH = BETTER_A.replace("- b", "- b!")


async def test_versions_that_are_best_on_different_tasks_are_merged_without_a_writer() -> None:
    low, high = [0.0] * 4, [1.0] * 4
    rollouts = Scripted(
        {START: 0.2, BETTER_A: [*high, *low, 0.0], BETTER_B: [*low, *high, 0.1], BOTH: [*high, *high, 1.0]}
    )
    proposer = Lists(BETTER_A, BETTER_B)
    dev = Dev(TASKS, Purse(1000), rollouts)
    search = Pareto(START, dev, Plan(1000, seed=4), proposer, Verbatim())
    steps = [step for _ in range(3) for step in await search.round()]
    assert [step.candidate for step in steps] == [BETTER_A, BETTER_B, BOTH]
    assert proposer.sections == ["A", "B"], "each section in its turn"
    assert search.leader == BOTH
    assert rollouts.asked.total() == 9 * 4
    assert await search.round() == []


async def test_a_parent_may_be_one_that_does_not_lead() -> None:
    scores: dict[str, float | Sequence[Outcome]] = {START: [0.0] * 8 + [1.0], BETTER_A: [1.0] * 8 + [0.0]}
    names = [f"{START}- {n}\n" for n in range(30)]
    proposer = Lists(BETTER_A, *names)
    dev = Dev(TASKS, Purse(10_000), Scripted({**scores, **dict.fromkeys(names, 0.0)}))
    search = Pareto(START, dev, Plan(1000), proposer, Verbatim())
    while await search.round():
        pass
    chosen = Counter(proposer.parents[1:31])
    assert search.leader == BETTER_A
    assert set(chosen) == {START, BETTER_A}
    assert chosen[BETTER_A] > chosen[START] >= 1, "weighted by how many tasks each is best on"


class Sections:
    """Adds a helpful or useless rule to the section that it is asked for."""

    def __init__(self, seed: int) -> None:
        self._number = seed

    async def propose(
        self, parent: str, steps: Sequence[Step], pay: Callable[[Sequence[str]], bool], section: str | None = None
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
        asked = Counter[str]()

        async def rollouts(task: str, skill: str, key: str) -> Outcome:
            asked[key] += 1  # noqa: B023
            return float(world.succeeds(task, skill, key))  # noqa: B023

        async def run() -> Sharpened:
            tasks = world.tasks("train"), world.tasks("validation")  # noqa: B023
            return await sharpen(start, *tasks, Plan(1500, seed, search=kind), Sections(seed), rollouts)  # noqa: B023

        first = await run()
        assert first.spent == len(asked) <= 1500
        paid = set(asked)
        assert await run() == first
        assert set(asked) == paid
        assert any(step.accepted for step in first.steps)
        assert all(world.lift(held.candidate) > 0 for held in first.held if held.attempt.verdict is Verdict.CERTIFIED)
