"""The rules of other optimizers: what they compare, and how often they take what does nothing."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whet
from known_world import World, WorldProposer
from whet.errors import UserError
from whet.scoring import Cause
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.heuristics import RULES, RuleComparison, RuleGate, false_accepts
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import NotMeasured, Outcome, OutOfBudget, RolloutKey
from whole_runs import Proposing, run_two_tiers

CLASSIC = [kind for kind in GateKind if kind is not GateKind.CERTIFY]


def taken(before: list[Outcome], after: list[Outcome]) -> set[str]:
    return {str(kind) for kind in CLASSIC if RuleComparison(kind, "a", "b", tuple(before), tuple(after)).accepted}


@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        ([0.5, 0.5], [0.5, 0.5], set()),
        ([0.0, 1.0], [1.0, 0.0], set()),
        ([0.0, 0.5], [0.4, 0.5], {"strict", "soft", "mixed", "no-regression"}),
        ([0.9, 0.9], [1.0, 0.5], {"hard", "mixed"}),
        ([1.0, 0.0, 0.0], [0.9, 0.5, 0.5], {"strict", "soft"}),
        ([1.0, 0.0, 0.0], [0.0, 1.0, 1.0], {"strict", "soft", "mixed", "hard"}),
        ([1.0, 0.0], [1.0, 1.0], set(map(str, CLASSIC))),
        # Sums of the same fractions are no gain.
        ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], set()),
        # What was passed and is lost has regressed; else lost tasks are left out.
        ([1.0, 0.0], [Cause.AGENT, 0.5], {"strict", "soft", "mixed"}),
        ([Cause.AGENT, 0.0], [1.0, 0.0], set()),
        ([Cause.AGENT], [1.0], set()),
    ],
)
def test_each_rule_compares_what_it_says(before: list[Outcome], after: list[Outcome], by: set[str]) -> None:
    assert taken(before, after) == by


scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8)


@given(scores, st.randoms(use_true_random=False))
def test_no_rule_takes_a_tie_or_both_ways(before: list[float], chance: random.Random) -> None:
    after = chance.sample(before, len(before))
    for rule in RULES.values():
        there, back = (bool(rule(*map(np.array, pair))) for pair in ((before, after), (after, before)))
        assert not there
        assert not back


def test_the_strict_rule_takes_nearly_half_of_what_does_nothing() -> None:
    world = World(7)
    tasks = world.tasks("train")

    def measured(task: str, sample: str) -> float:
        return float(world.succeeds(task, "", sample))

    pairs = [(measured(task, f"{n}/a"), measured(task, f"{n}/b")) for n in range(20) for task in tasks]
    assert false_accepts(GateKind.STRICT, pairs, 30) == pytest.approx(0.44, abs=0.015)
    assert false_accepts(GateKind.SOFT, pairs, 30) == false_accepts(GateKind.STRICT, pairs, 30)
    assert false_accepts(GateKind.NO_REGRESSION, pairs, 30) < 0.02
    assert false_accepts(GateKind.STRICT, pairs, 200) > 0.46


def test_without_noise_nothing_is_taken_that_does_nothing() -> None:
    assert [false_accepts(kind, [(1.0, 1.0), (0.5, 0.5)], 30) for kind in CLASSIC] == [0.0] * 5


async def test_a_pass_is_paid_for_once() -> None:
    asked: list[RolloutKey] = []
    means = {"start": 0.2, "better": 0.5, "worse": 0.1, "best": 0.9}

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        asked.append(key)
        return means[skill]

    gate = RuleGate(GateKind.STRICT, "start", ["a", "b"], RolloutBudget(8), rollouts)
    found = [await gate.run_exam(skill) for skill in ("better", "worse", "better", "best", "start")]
    assert [(one.incumbent, one.accepted) for one in found if one] == [
        ("start", True),
        ("better", False),
        ("better", True),
        ("best", False),
    ]
    assert found[2] is None, "it is the incumbent itself"
    assert gate.incumbent == "best"
    assert len(set(asked)) == 8
    assert gate.budget.left == 0


async def test_a_pass_that_is_lost_is_no_decision() -> None:
    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        return Cause.MODEL if skill == "b" else 0.5

    gate = RuleGate(GateKind.STRICT, "a", ["1", "2", "3"], RolloutBudget(100), rollouts)
    with pytest.raises(NotMeasured, match="3 of 3 rollouts on validation tasks"):
        await gate.run_exam("b")


@pytest.mark.parametrize("most", [2, 5])
async def test_without_money_for_both_passes_nothing_is_decided(most: int) -> None:
    left = 5

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        nonlocal left
        if not left:
            raise OutOfBudget
        left -= 1
        return float(skill == "b")

    gate = RuleGate(GateKind.STRICT, "a", ["1", "2", "3"], RolloutBudget(most), rollouts)
    assert await gate.run_exam("b") is None
    left, gate.budget = 5, RolloutBudget(6)
    assert await gate.run_exam("b") is None, "a hard limit"
    assert gate.incumbent == "a"


async def test_a_run_under_a_classic_rule_certifies_nothing_and_is_fooled() -> None:
    fooled = 0
    for seed in range(10):
        world = World(seed)

        async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
            return float(world.succeeds(task, skill, str(key)))  # noqa: B023

        plan = GatePlan(1500, seed, gate=GateKind.STRICT)
        tasks = world.tasks("train"), world.tasks("validation")
        done = await run_two_tiers("", *tasks, plan, Proposing(WorldProposer("null", seed).propose), rollouts)
        assert done.certified == ""
        assert not done.exam_results
        assert done.removal is None
        assert done.final == done.accepted
        assert done.spent <= 1500
        fooled += any(compared.accepted for compared in done.comparisons)
    assert fooled >= 5


@pytest.mark.parametrize("option", ["search", "gate"])
def test_a_kind_that_is_not_known_is_told_in_one_line(option: str) -> None:
    wrong: dict[str, Any] = {option: "fast"}
    with pytest.raises(UserError, match=f"`{option}` is 'fast'; expected one of: (ratchet|certify), "):
        whet.SharpenOptions(**wrong)
