"""Dropping what carries nothing: null rules go, helpful ones stay, and no more is lost than the margin."""

import asyncio
import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit

from whet.skills.attempt import Outcome
from whet.skills.certificate import Certificate, problems, record_of, shortening_of
from whet.skills.engine import Sharpened, sharpen
from whet.skills.exam import Purse
from whet.skills.exam_times import DAY, ExamTimes, Timeless, WrittenTimes
from whet.skills.gate import Series
from whet.skills.plan import Plan
from whet.skills.readable import readable
from whet.skills.search import Step
from whet.skills.shorten import FIRST_EXAM, Removal, Unit, in_order, shorten
from whet.skills.texts import Texts, Verbatim
from whet.skills.wealth import log_wealth
from whet.testing.world import World, sentence

PLAN = Plan(10_000)
TASKS = World().tasks("validation")


def skill(*rules: str) -> str:
    return "# Rules\n" + "".join(f"- {sentence(rule)}\n" for rule in rules)


async def removals(
    seed: int,
    certified: str,
    steps: Sequence[Step] = (),
    purse: Purse | None = None,
    plan: Plan = PLAN,
    *,
    start: str = "# Rules\n",
    texts: Texts | None = None,
    times: ExamTimes | None = None,
    watch: Callable[[Removal], None] = lambda _: None,
) -> list[Removal]:
    world = World(seed)

    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        return float(world.succeeds(task, skill, key))

    exams = Series(certified, TASKS, plan, plan.removal_alpha, times or Timeless(), FIRST_EXAM)
    given = purse or Purse(10_000), texts or Verbatim(), watch
    return await shorten(start, certified, steps, exams, plan, rollouts, *given)


async def test_null_rules_go_and_helpful_rules_stay() -> None:
    full = skill("G0", "N0", "G1", "N1", "N2", "H2", "H3")
    dropped = [
        removal.unit.split()[-1].rstrip(".")
        for seed in range(6)
        for removal in await removals(seed, full, plan=Plan(10_000, seed, rollouts_per_task=30))
        if removal.accepted
    ]
    useless = sum(rule.startswith("N") for rule in dropped)
    assert useless >= 6
    assert len(dropped) - useless <= 2
    world = World()
    for rule in dropped:
        assert world.lift(full.replace(f"- {sentence(rule)}\n", ""), over=full) > -PLAN.margin


async def test_all_removals_are_held_against_the_certified_skill_and_each_that_passes_begins_another_exam() -> None:
    full = skill("H0", "N0", "N1", "N2")
    for seed in range(20):
        found = await removals(seed, full, plan=Plan(10_000, seed, rollouts_per_task=36))
        number, level, left = FIRST_EXAM, 0.05 / 2 / 4, 4
        for removal in found:
            held = removal.held
            assert (held.exam.incumbent, held.exam.number) == (full, number)
            assert held.level == held.attempt.terms.level == pytest.approx(level)
            assert (held.attempt.terms.margin, held.attempt.terms.worth) == (0.10, 0.0)
            left -= 1
            assert left >= 0
            if removal.accepted:
                number, level, left = number + 1, level / 2, 4
        kept = [removal for removal in found if removal.accepted]
        for before, after in pairwise(kept):
            assert after.unit not in after.held.candidate
            assert before.unit not in after.held.candidate, "what is gone stays gone"
        if len(kept) > 1:
            return
    pytest.fail("the world has lost its null rules")


async def test_without_money_or_anything_to_drop_nothing_is_tried() -> None:
    assert await removals(0, skill()) == []
    small = Purse(3 * 20 - 1)
    assert await removals(0, skill("N0"), purse=small) == []
    assert small.left == 59
    exact = Purse(61)
    found = await removals(0, skill("N0", "N1"), purse=exact)
    assert found
    assert exact.left >= 0


class Written:
    """Skills of several documents, which stand for themselves."""

    def documents(self, skill: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(skill)
        return found

    def with_documents(self, skill: str, documents: Mapping[str, str]) -> str:
        return json.dumps({**self.documents(skill), **documents})


async def test_what_carries_nothing_is_dropped_from_the_memory_too() -> None:
    rules = skill("G0", "G1")
    start = {"SKILL.md": skill(), "AGENTS.md": "# Memory\n- Be brief.\n"}
    full = {"SKILL.md": rules, "AGENTS.md": f"# Memory\n- Be brief.\n- {sentence('N0')}\n"}
    passed = None
    for seed in range(9):
        plan = Plan(10_000, seed, rollouts_per_task=30)
        found = await removals(seed, json.dumps(full), plan=plan, start=json.dumps(start), texts=Written())
        assert {removal.unit for removal in found} <= {f"- {sentence(rule)}" for rule in ("G0", "G1", "N0")}
        passed = passed or next((one for one in found if one.accepted and one.unit == f"- {sentence('N0')}"), None)
    assert passed
    left = json.loads(passed.held.candidate)
    assert left["AGENTS.md"] == "# Memory\n- Be brief.\n"
    assert set(left["SKILL.md"].split("\n")) <= set(rules.split("\n"))


async def test_the_start_is_no_candidate_for_the_certified_skill_has_beaten_it() -> None:
    purse = Purse(10_000)
    assert await removals(0, skill("N0"), purse=purse) == []
    assert purse.left == 10_000


async def test_the_next_removal_after_a_day_meets_a_new_exam(tmp_path: Path) -> None:
    now = 1e9

    def a_day_passes(_: Removal) -> None:
        nonlocal now
        now += DAY + 1

    times = WrittenTimes(tmp_path / "times.json", lambda: now)
    found = await removals(0, skill("H0", "H1", "H2"), times=times, watch=a_day_passes)
    assert not any(removal.accepted for removal in found), "or the next would meet a new one anyway"
    assert [removal.held.exam.number - FIRST_EXAM for removal in found] == [0, 1, 2]


def test_what_the_search_found_least_of_is_tried_first() -> None:
    a, b, c, d, e = (skill(*rules) for rules in ((), ("N0",), ("N0", "H0"), ("H0",), ("H0", "G0", "G1")))
    steps = [
        Step(a, b, 0.51, 0.50),
        Step(b, c, 0.60, 0.51),
        Step(c, d, 0.64, 0.60),  # without N0 it was better: that counts as well
        Step(d, e, 0.90, 0.64),  # two at once: nothing is known of each
        Step(a, skill("H1"), 0.9, 0.1, dropped=True),
    ]
    rules = [f"- {sentence(rule)}" for rule in ("H1", "G0", "H0", "N0")] + ["- A long rule that no step knows of."]
    units = [Unit("", rule) for rule in rules]
    assert in_order(units, steps, Verbatim()) == [units[3], units[2], units[4], units[0], units[1]]


def rates(a: float, margin: float, lift: float, runs: int, seed: int) -> tuple[float, float]:
    """How often a removal that changes the truth by so much passes, and after how many positions a verdict falls."""
    random = np.random.default_rng(seed)
    tasks, positions, repeats = 30, 300, 3
    before = np.clip(random.beta(a, a, (runs, tasks)), 0.005, 0.995)
    after = _shifted(before, 0.25 * random.standard_normal(before.shape), lift)
    drawn = random.integers(0, tasks, (runs, positions))
    p, q = (np.take_along_axis(chances, drawn, axis=1) for chances in (before, after))
    found = (random.random(q.shape) < q) - (random.random((repeats, *p.shape)) < p).mean(0)
    passed = _first(log_wealth(found, -margin, above=True), 0.05)
    futile = _first(log_wealth(found, 0.0, above=False), 0.20)
    ended = np.minimum(np.minimum(passed, futile) + 1, positions)
    return float(((passed <= futile) & (passed < positions)).mean()), float(ended.mean())


def _shifted(chances: NDArray[np.float64], noise: NDArray[np.float64], lift: float) -> NDArray[np.float64]:
    wanted = np.clip(chances.mean(1) + lift, 0.004, 0.996)
    low, high = np.full(len(chances), -12.0), np.full(len(chances), 12.0)
    for _ in range(50):
        middle = (low + high) / 2
        above = expit(logit(chances) + noise + middle[:, None]).mean(1) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    shifted: NDArray[np.float64] = expit(logit(chances) + noise + ((low + high) / 2)[:, None])
    return shifted


def _first(logs: NDArray[np.float64], level: float) -> NDArray[np.int64]:
    crossed = logs >= -math.log(level)
    first: NDArray[np.int64] = np.where(crossed.any(axis=1), crossed.argmax(axis=1), logs.shape[1])
    return first


@pytest.mark.parametrize(
    ("a", "margin", "lift", "passes", "positions"),
    [
        (0.8, 0.10, -0.10, 0.033, 77),
        (0.8, 0.10, -0.05, 0.312, 139),
        (0.8, 0.10, 0.00, 0.833, 114),
        (0.8, 0.10, 0.05, 0.974, 66),
        (0.8, 0.05, 0.00, 0.342, 217),
        (0.3, 0.10, -0.10, 0.025, 56),
        (0.3, 0.10, 0.00, 0.900, 85),
    ],
)
def test_removals_pass_as_often_as_the_reference_says(
    a: float, margin: float, lift: float, passes: float, positions: float
) -> None:
    runs = 1000
    share, mean = rates(a, margin, lift, runs, seed=1)
    assert share == pytest.approx(passes, abs=4 * math.sqrt(passes * (1 - passes) * (1 / runs + 1 / 2000)) + 0.002)
    assert mean == pytest.approx(positions, rel=0.12)


class Once:
    """Proposes one skill."""

    def __init__(self, candidate: str) -> None:
        self._left = [candidate]

    async def propose(self, parent: str, steps: object, pay: object, section: object = None) -> str | None:
        return self._left.pop() if self._left else None


async def sharpened(seed: int, *, dropping: bool = True) -> Sharpened:
    world = World(seed)

    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        return float(world.succeeds(task, skill, key))

    proposer = Once(skill(*(f"H{n}" for n in range(6)), "G0", "G1", "N0", "N1"))
    return await sharpen(skill(), world.tasks("train"), TASKS, Plan(6000, seed, shorten=dropping), proposer, rollouts)


async def test_nothing_is_dropped_where_it_is_not_wished() -> None:
    with_, without = await sharpened(0), await sharpened(0, dropping=False)
    assert with_.certified == without.certified != without.start
    assert with_.removals
    assert not without.removals
    assert without.spent < with_.spent


@pytest.fixture(scope="module")
def certificate() -> dict[str, Any]:
    """A certificate with at least one removal that passed, in JSON."""
    done = next(
        done for done in (asyncio.run(sharpened(seed)) for seed in range(9)) if done.shortened != done.certified
    )
    assert done.spent <= 6000
    made = Certificate(
        whet="0",
        start=done.start,
        certified=done.certified,
        alpha=0.10,
        levels=tuple(done.levels),
        seed=done.plan.seed,
        made_with={},
        tasks=dict.fromkeys(TASKS, "digest"),
        records=tuple(map(record_of, done.held)),
        shortening=shortening_of(done),
    )
    text = readable(made)
    assert "by no more than 10 points, but for a chance of 5%" in text
    found: dict[str, Any] = made.model_dump(mode="json")
    return found


def test_removals_are_computed_again_with_the_certificate(certificate: dict[str, Any]) -> None:
    assert problems(Certificate.model_validate(certificate)) == []


def other_margin(shortening: dict[str, Any]) -> None:
    shortening["margin"] = 0.05


def other_skill(shortening: dict[str, Any]) -> None:
    shortening["skill"] = "other"


def other_score(shortening: dict[str, Any]) -> None:
    one = shortening["records"][0]["positions"][0]
    one["candidate"] = 1.0 - one["candidate"]


def other_reference(shortening: dict[str, Any]) -> None:
    shortening["records"][0]["incumbent"] = "other"


def level_twice(shortening: dict[str, Any]) -> None:
    shortening["records"].append(shortening["records"][-1])


def no_margin(shortening: dict[str, Any]) -> None:
    shortening["records"][0]["terms"]["margin"] = 0.3


@pytest.mark.parametrize("tamper", [other_margin, other_skill, other_score, other_reference, level_twice, no_margin])
def test_removals_that_were_tampered_with_are_found_out(
    certificate: dict[str, Any], tamper: Callable[[dict[str, Any]], None]
) -> None:
    data = copy.deepcopy(certificate)
    tamper(data["shortening"])
    assert problems(Certificate.model_validate(data))
