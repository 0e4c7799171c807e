"""What an audit says of noise, and of what a budget can show."""

import pytest

from whet.errors import UserError
from whet.skills.attempt import Lost, Outcome
from whet.skills.audit import Audit, audit, detectable_lift, refuse_hopeless
from whet.skills.plan import Plan, detectable
from whet.skills.search import NotMeasured, first_measurement
from whet.testing.world import World, skill_of


def of(*differences: float) -> Audit:
    return Audit(tuple((one, 0.0) for one in differences), 0, 3 * len(differences), ())


def test_few_tasks_are_taken_with_caution() -> None:
    # With no difference on 14 tasks, up to 10.9 % of them may differ (upper limit of 80 %).
    assert of(*[0.0] * 14).cautious_variance == pytest.approx(0.109 / 2, abs=0.001)
    assert of(1.0, *[0.0] * 13).cautious_variance > of(1.0, *[0.0] * 13).variance == pytest.approx(1 / 28)
    many = of(*[1.0, -1.0] * 10, *[0.0] * 40)
    assert many.cautious_variance == many.variance == pytest.approx(1 / 6)
    assert many.discordance == pytest.approx(1 / 3)
    assert of(0.5, -0.5).cautious_variance == of(0.5, -0.5).variance


async def test_the_noise_of_a_known_world_is_found_and_what_its_skill_does() -> None:
    world = World(5, {"train": 120, "validation": 30})
    helpful = skill_of(["H0", "H1", "H2", "H3", "H4", "H5"])

    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        return float(world.succeeds(task, skill, key))

    found = await audit("", world.tasks("train"), rollouts)
    assert found.variance == pytest.approx(0.154, abs=0.04)
    assert found.rollouts == 360
    better = await audit(helpful, world.tasks("train"), rollouts)
    assert sum(better.moved) / 120 == pytest.approx(world.lift(helpful, split="train"), abs=0.12)


async def test_a_skill_that_reaches_nobody_moves_nothing() -> None:
    async def deaf(task: str, skill: str, key: str) -> Outcome:
        return 1.0

    assert not (await audit("skill", ("a", "b"), deaf)).moves


async def test_lost_rollouts_are_counted_and_left_out() -> None:
    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        return Lost.UNRELATED if task == "a" and "again" in key else 0.5

    found = await audit("skill", ("a", "b"), rollouts)
    assert (found.lost, found.differences, found.moved) == (1, (0.0,), (0.0, 0.0))


def test_budgets_show_what_the_reference_says() -> None:
    # 120 positions at level .0125 with two repeats: 19.6 points.
    plan = Plan(budget=1800)
    assert detectable_lift(0.154, plan, 30) == pytest.approx(0.196, abs=0.001)
    assert detectable_lift(0.154, Plan(budget=900), 30) == pytest.approx(0.196 * 2**0.5, abs=0.001)
    more = detectable_lift(0.154, Plan(budget=3600), 30)
    assert more == detectable_lift(0.154, plan, 30), "more positions than four for each task are not taken"
    least = detectable_lift(0.154, Plan(budget=200), 30)
    assert least == detectable_lift(0.154, Plan(budget=300), 30) == pytest.approx(0.196 * 6**0.5, abs=0.002)
    # 20 positions at level .05 with one repeat, which the only candidate of an exam has.
    assert least == pytest.approx(detectable(0.154, 1, 20, 0.05), rel=0.03)
    assert detectable_lift(0.154, Plan(budget=195), 30) is None


def test_a_hopeless_plan_is_refused_and_told_what_would_do() -> None:
    refuse_hopeless(0.2, "900 rollouts")
    refuse_hopeless(0.3, "900 rollouts")
    with pytest.raises(UserError, match="is 43 points; 900 rollouts would show a lift of 30 points; --force"):
        refuse_hopeless(0.43, "900 rollouts")
    with pytest.raises(UserError, match="no exam can be held; 900 rollouts would show"):
        refuse_hopeless(None, "900 rollouts")
    with pytest.raises(UserError, match="only more validation tasks would show a lift of 30"):
        refuse_hopeless(0.43, None)


async def test_a_good_skill_is_seen_to_be_good_or_not() -> None:
    asked = set()

    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        asked.add(key)
        return 1.0 if skill == "good" or (skill == "heard" and task == "a") else 0.0

    assert not (await audit("deaf", ("a", "b"), rollouts)).moves
    assert (await audit("heard", ("a", "b"), rollouts)).moves
    known = await audit("deaf", ("a", "b"), rollouts, "good")
    assert (known.moves, known.known, known.rollouts) == (True, (1.0, 1.0), 8)
    assert (await audit("heard", ("a", "b"), rollouts, "good")).known == (0.0, 1.0), "against the skill, not none"
    assert asked >= {*first_measurement(("a", "b"), "heard")}, "which the search need not pay for again"


async def test_what_chance_moves_is_not_taken_for_an_effect() -> None:
    world = World(5, {"train": 120, "validation": 30})

    async def deaf(task: str, skill: str, key: str) -> Outcome:
        return float(world.succeeds(task, "", f"{skill}{key}"))

    found = await audit("skill", world.tasks("train"), deaf)
    assert any(found.moved)
    assert not found.moves


async def test_an_audit_without_any_pair_is_no_verdict() -> None:
    async def rollouts(task: str, skill: str, key: str) -> Outcome:
        return Lost.UNRELATED if "again" in key else 0.5

    with pytest.raises(NotMeasured) as nothing:
        await audit("skill", ("a", "b"), rollouts)
    assert nothing.value.keys == ("audit/again/a", "audit/again/b"), "which may be tried again"
