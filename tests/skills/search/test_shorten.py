"""A shorter version of a certified skill: one attempt at leaving out all that the search saw little of."""

import asyncio
import copy
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from known_world import World, sentence
from many_exams import population, streamed, verdicts
from whet.skills.certificates.certificate import Certificate, make_record, make_shortening
from whet.skills.certificates.checks.arithmetic import problems
from whet.skills.certificates.text import format_certificate
from whet.skills.documents.store import PlainTexts, SkillTexts
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.gate import ExamSetting, Gate
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.gate.sequential_test import ExamTerms
from whet.skills.measurement import Outcome, RolloutKey, Verdict
from whet.skills.proposers.base import SearchStep
from whet.skills.search.shorten import Removal, SkillUnit, measure_effects, shorten
from whet.skills.search.two_tiers import SearchResult
from whole_runs import Proposing, run_two_tiers

TASKS = World().tasks("validation")


def skill(*rules: str) -> str:
    return "# Rules\n" + "".join(f"- {sentence(rule)}\n" for rule in rules)


def step(before: str, after: str, effect: float) -> SearchStep:
    return SearchStep(before, after, 0.5 + effect, 0.5)


LEARNED = [
    step(skill(), skill("G0"), 0.2),
    step(skill("G0"), skill("G0", "N0"), 0.01),
    step(skill("G0", "N0"), skill("G0", "N0", "G1"), 0.2),
    step(skill("G0", "N0", "G1"), skill("G0", "N0", "G1", "N1"), 0.02),
]
FULL = skill("G0", "N0", "G1", "N1")


async def shortened(
    seed: int,
    steps: list[SearchStep],
    certified: str,
    purse: int = 3000,
    start: str = skill(),
    texts: SkillTexts | None = None,
) -> tuple[Removal | None, Gate]:
    """What comes of it after the skill was certified with a bound of about 20 points."""
    world = World(seed)

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        if "beside" not in asking and skill == start:
            return 0.0
        return float(world.succeeds(task, skill, str(key)))

    asking = ["certify"]
    plan = GatePlan(0, seed)
    gate = Gate(start, ExamSetting(TASKS, Seed.choose(seed)), RolloutBudget(400), plan, rollouts)
    held = await gate.run_exam(certified)
    assert held is not None
    assert held.test.verdict is Verdict.CERTIFIED
    await gate.tighten(held)
    gate.budget.left = purse
    asking.append("beside")
    return await shorten(start, steps, gate, plan, texts or PlainTexts()), gate


async def test_all_suspects_are_left_out_at_once_and_what_helped_stays() -> None:
    accepted = 0
    for seed in range(4):
        removal, gate = await shortened(seed, LEARNED, FULL)
        assert removal is not None
        assert removal.units == (f"- {sentence('N0')}", f"- {sentence('N1')}")
        assert removal.exam_result.candidate == skill("G0", "G1")
        exam, attempt = removal.exam_result.exam, removal.exam_result.test
        assert exam.incumbent == FULL
        assert attempt.terms.level == 0.05
        assert attempt.terms.margin <= gate.exam_results[0].test.at_least() / 2
        assert len(gate.exam_results) == 1, "it uses no level of the attempts"
        accepted += removal.accepted
    assert accepted >= 1


async def test_one_learned_rule_is_kept_at_least_for_the_start_was_beaten() -> None:
    known = [step(skill(), skill("N0"), 0.01), step(skill("N0"), skill("N0", "N1"), 0.02)]
    removal, _ = await shortened(0, known, skill("N0", "N1"))
    assert removal is not None
    assert removal.units == (f"- {sentence('N0')}",)
    assert (await shortened(0, [step(skill(), skill("N0"), 0.01)], skill("N0")))[0] is None


async def test_without_money_or_anything_to_drop_nothing_is_tried() -> None:
    removal, gate = await shortened(0, LEARNED, FULL, purse=1)
    assert (removal, gate.budget.left) == (None, 1)
    sure = [step(skill(), skill("G0"), 0.2), step(skill("G0"), skill("G0", "G1"), 0.2)]
    removal, gate = await shortened(0, sure, skill("G0", "G1"))
    assert (removal, gate.budget.left) == (None, 3000)


class Written:
    """Skills of several documents, which stand for themselves."""

    def documents(self, skill: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(skill)
        return found

    def with_documents(self, skill: str, documents: Mapping[str, str]) -> str:
        return json.dumps({**self.documents(skill), **documents})


async def test_what_is_left_out_may_be_of_the_memory_too() -> None:
    start = {"SKILL.md": skill(), "AGENTS.md": "# Memory\n- Be brief.\n"}
    first = {**start, "SKILL.md": skill("G0")}
    full = {**first, "AGENTS.md": f"# Memory\n- Be brief.\n- {sentence('N0')}\n"}
    a, b, c = map(json.dumps, (start, first, full))
    removal, _ = await shortened(1, [step(a, b, 0.2), step(b, c, 0.01)], c, start=a, texts=Written())
    assert removal is not None
    assert json.loads(removal.exam_result.candidate) == first


def test_what_the_search_found_of_each_unit_is_its_mean_effect_alone() -> None:
    a, b, c, d, e = (skill(*rules) for rules in ((), ("N0",), ("N0", "H0"), ("H0",), ("H0", "G0", "G1")))
    steps = [
        SearchStep(a, b, 0.51, 0.50),
        SearchStep(b, c, 0.60, 0.51),
        SearchStep(c, d, 0.64, 0.60),  # without N0 it was better: that counts as well
        SearchStep(d, e, 0.90, 0.64),  # two at once: nothing is known of each
        SearchStep(a, skill("H1"), 0.9, 0.1, dropped=True),
    ]
    found = measure_effects(steps, PlainTexts())
    assert found == {
        SkillUnit("", f"- {sentence('N0')}"): pytest.approx((0.01 - 0.04) / 2),
        SkillUnit("", f"- {sentence('H0')}"): pytest.approx(0.09),
    }


def share_passed(shape: float, margin: float, lift: float, seed: int) -> float:
    """How often a removal that changes the truth by so much passes."""
    random, terms = np.random.default_rng(seed), ExamTerms(0.05, 300, minimum_effect=0.0, beta=0.20)
    arms = population(random, 600, 30, lift, spread=0.25, shape=shape)
    return float(verdicts(streamed(random, arms, terms.max_pairs), terms, floor=-margin).certified.mean())


@pytest.mark.parametrize(("shape", "margin"), [(0.8, 0.10), (0.8, 0.05), (0.3, 0.10)])
def test_what_costs_the_margin_is_seldom_left_out(shape: float, margin: float) -> None:
    """What costs nothing is left out far more often."""
    at_margin, for_nothing = share_passed(shape, margin, -margin, seed=1), share_passed(shape, margin, 0.0, seed=2)
    assert at_margin <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 600)
    assert for_nothing > 3 * at_margin


async def sharpened(seed: int, *, dropping: bool = True) -> SearchResult:
    world = World(seed)

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        return float(world.succeeds(task, skill, str(key)))

    helps = tuple(f"H{n}" for n in range(6))
    left = [skill(*helps), skill(*helps, "N0"), skill(*helps, "N0", "N1")]
    proposer = Proposing(lambda _: left.pop(0) if left else None)
    return await run_two_tiers(
        skill(), world.tasks("train"), TASKS, GatePlan(6000, seed, shorten=dropping), proposer, rollouts
    )


async def test_nothing_is_left_out_unless_it_is_asked_for() -> None:
    assert GatePlan(400).shorten is False
    runs = [(await sharpened(seed), await sharpened(seed, dropping=False)) for seed in range(4)]
    assert any(with_.removal for with_, _ in runs)
    for with_, without in runs:
        assert with_.certified == without.certified != without.start
        assert without.removal is None
        assert without.spent + (2 * len(with_.removal.exam_result.test.pairs) if with_.removal else 0) == with_.spent


@pytest.fixture(scope="module")
def certificate() -> dict[str, Any]:
    """A certificate with a removal that passed, in JSON."""
    runs = ((number, *asyncio.run(shortened(number, LEARNED, FULL))) for number in range(30))
    number, removal, gate = next(run for run in runs if run[1] is not None and run[1].accepted)
    seed = Seed.choose(number)
    made = Certificate(
        whet="0",
        start=skill(),
        certified=FULL,
        alpha=0.10,
        seed=seed,
        commitment=seed.commitment,
        made_with={},
        tasks=dict.fromkeys(TASKS, "digest"),
        records=tuple(map(make_record, gate.exam_results)),
        shortening=make_shortening(removal),
    )
    assert "points lower on these 30 tasks, at level 0.05." in format_certificate(made)
    found: dict[str, Any] = made.model_dump(mode="json")
    return found


def test_a_removal_is_computed_again_with_the_certificate(certificate: dict[str, Any]) -> None:
    assert problems(Certificate.model_validate(certificate)) == []


TAMPERINGS: dict[str, Callable[[dict[str, Any]], object]] = {
    "other score": lambda record: record["positions"][0].update(candidate=0.25),
    "other reference": lambda record: record.update(incumbent="other"),
    "larger margin": lambda record: record["terms"].update(margin=0.3),
    "other chain": lambda record: record.update(previous="other"),
}


@pytest.mark.parametrize("tamper", TAMPERINGS.values(), ids=TAMPERINGS)
def test_a_removal_that_was_tampered_with_is_found_out(
    certificate: dict[str, Any], tamper: Callable[[dict[str, Any]], object]
) -> None:
    data = copy.deepcopy(certificate)
    tamper(data["shortening"]["record"])
    assert problems(Certificate.model_validate(data))
