"""What an audit says of noise, and of what a budget can show."""

import pytest

from known_world import World, skill_of
from whet.errors import UserError
from whet.scoring import Cause
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import NotMeasured, Outcome, RolloutKey
from whet.skills.rollouts.audit import Audit, audit, detectable_lift, is_hopeless, refuse_hopeless


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
    assert of(*[1.0] * 5, *[0.0] * 5).cautious_variance == 0.25, "no score varies by more"


def test_24_tasks_and_800_rollouts_are_never_refused() -> None:
    assert not is_hopeless(detectable_lift(0.25, GatePlan(budget=760)))


async def test_the_noise_of_a_known_world_is_found() -> None:
    world = World(5, {"train": 120, "validation": 30})
    helpful = skill_of(["H0", "H1", "H2", "H3", "H4", "H5"])

    async def rollouts(task: str, skill: str | None, key: RolloutKey) -> Outcome:
        return float(world.succeeds(task, skill or "", str(key)))

    found = await audit("", world.tasks("train"), rollouts)
    assert found.variance == pytest.approx(0.154, abs=0.04)
    assert found.rollouts == 360
    better = await audit(helpful, world.tasks("train"), rollouts)
    assert sum(better.moved) / 120 == pytest.approx(world.lift(helpful, split="train"), abs=0.12)


async def test_a_skill_that_reaches_nobody_moves_nothing() -> None:
    async def deaf(task: str, skill: str | None, key: RolloutKey) -> Outcome:
        return 1.0

    assert not (await audit("skill", ("a", "b"), deaf)).moves


async def test_lost_rollouts_are_counted_and_left_out() -> None:
    async def rollouts(task: str, skill: str | None, key: RolloutKey) -> Outcome:
        return Cause.MODEL if task == "a" and "again" in str(key) else 0.5

    found = await audit("skill", ("a", "b"), rollouts)
    assert (found.lost, found.differences, found.moved) == (1, (0.0,), (0.0, 0.0))


def test_a_budget_shows_what_the_exam_that_will_be_held_can_show() -> None:
    # 80 and 40 positions at level .05.
    assert detectable_lift(0.154, GatePlan(budget=800, certify_share=0.2)) == pytest.approx(0.21, abs=0.03)
    assert detectable_lift(0.154, GatePlan(budget=400, certify_share=0.2)) == pytest.approx(0.31, abs=0.03)
    assert detectable_lift(0.154, GatePlan(budget=65, certify_share=0.2)) is None, "13 rollouts cannot certify anything"


def test_a_hopeless_plan_is_refused_and_told_what_would_do() -> None:
    assert not is_hopeless(0.3)
    assert is_hopeless(0.301)
    assert is_hopeless(None)
    with pytest.raises(
        UserError, match=r"only lifts from 43 points on \(in 80 % of exams\); 900 rollouts would detect 30"
    ):
        refuse_hopeless(0.43, "900 rollouts")
    with pytest.raises(UserError, match="is too small for an exam; 900 rollouts would detect"):
        refuse_hopeless(None, "900 rollouts")
    with pytest.raises(UserError, match="no budget would detect 30"):
        refuse_hopeless(0.43, None)


async def test_a_good_skill_is_seen_to_be_good_or_not() -> None:
    asked = set()

    async def rollouts(task: str, skill: str | None, key: RolloutKey) -> Outcome:
        asked.add(key)
        return 1.0 if skill == "good" or (skill == "heard" and task == "a") else 0.0

    assert not (await audit("deaf", ("a", "b"), rollouts)).moves
    assert (await audit("heard", ("a", "b"), rollouts)).moves
    known = await audit("deaf", ("a", "b"), rollouts, "good")
    assert (known.moves, known.known, known.rollouts) == (True, (1.0, 1.0), 8)
    assert (await audit("heard", ("a", "b"), rollouts, "good")).known == (0.0, 1.0), "against the skill, not none"
    assert asked >= {*(RolloutKey.search(1, task, "heard") for task in ("a", "b"))}, (
        "which the search need not pay for again"
    )


async def test_what_chance_moves_is_not_taken_for_an_effect() -> None:
    world = World(5, {"train": 120, "validation": 30})

    async def deaf(task: str, skill: str | None, key: RolloutKey) -> Outcome:
        return float(world.succeeds(task, "", f"{skill or ''}{key}"))

    found = await audit("skill", world.tasks("train"), deaf)
    assert any(found.moved)
    assert not found.moves


async def test_an_audit_without_any_pair_is_no_verdict() -> None:
    async def rollouts(task: str, skill: str | None, key: RolloutKey) -> Outcome:
        return Cause.MODEL if "again" in str(key) else 0.5

    with pytest.raises(NotMeasured) as nothing:
        await audit("skill", ("a", "b"), rollouts)
    assert nothing.value.keys == tuple(RolloutKey.audit("again", task) for task in ("a", "b")), (
        "which may be tried again"
    )
