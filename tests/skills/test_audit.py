"""What an audit says of noise, and of what a budget can show."""

import pytest

from whet.errors import UserError
from whet.skills.attempt import Lost, Outcome
from whet.skills.audit import Audit, audit, detectable_lift, refuse_hopeless, table
from whet.skills.plan import Plan
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
    shown = dict(table(0.154, plan, 0, 30))
    assert shown[900] == pytest.approx(0.196 * 2**0.5, abs=0.001)
    assert shown[3600] == shown[1800], "more positions than four for each task are not taken"
    assert detectable_lift(0.154, Plan(budget=200), 30) is None


def test_a_hopeless_plan_is_refused() -> None:
    refuse_hopeless(0.2, Plan(1800))
    with pytest.raises(UserError, match="can show is 43 points, above 30"):
        refuse_hopeless(0.43, Plan(400))
    with pytest.raises(UserError, match="40 rollouts are left for exams, and one takes 60 at least"):
        refuse_hopeless(None, Plan(200))
