"""A shorter version of a certified skill: one attempt at leaving out all that the search saw little of."""

import asyncio
import copy
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit

from known_world import World, sentence
from whet.skills.certificates.certificate import Certificate, make_record, make_shortening
from whet.skills.certificates.checks.arithmetic import problems
from whet.skills.certificates.text import format_certificate
from whet.skills.documents.store import PlainTexts, SkillTexts
from whet.skills.gate.eprocess import log_e_value
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.gate import ExamSetting, Gate
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.measurement import Outcome, RolloutKey, Verdict
from whet.skills.proposers.base import SearchStep
from whet.skills.search.shorten import Removal, SkillUnit, measure_effects, shorten
from whet.skills.search.two_tiers import SearchResult
from whole_runs import run_two_tiers

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


def rates(a: float, margin: float, lift: float, runs: int, seed: int) -> tuple[float, float]:
    """How often a removal that changes the truth by so much passes, and after how many positions a verdict falls."""
    random = np.random.default_rng(seed)
    tasks, positions = 30, 300
    before = np.clip(random.beta(a, a, (runs, tasks)), 0.005, 0.995)
    after = _shifted(before, 0.25 * random.standard_normal(before.shape), lift)
    drawn = random.integers(0, tasks, (runs, positions))
    p, q = (np.take_along_axis(chances, drawn, axis=1) for chances in (before, after))
    found = (random.random(q.shape) < q).astype(float) - (random.random(p.shape) < p)
    passed = _first(log_e_value(found, -margin, above=True), 0.05)
    futile = _first(log_e_value(found, 0.0, above=False), 0.20)
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


@pytest.mark.parametrize(("a", "margin"), [(0.8, 0.10), (0.8, 0.05), (0.3, 0.10)])
def test_what_costs_the_margin_is_seldom_left_out_and_what_costs_nothing_more_often(a: float, margin: float) -> None:
    at_margin, _ = rates(a, margin, -margin, 600, seed=1)
    for_nothing, _ = rates(a, margin, 0.0, 600, seed=2)
    assert at_margin <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 600)
    assert for_nothing > 3 * at_margin


class InTurn:
    """Proposes these skills, one after the other."""

    def __init__(self, *candidates: str) -> None:
        self._left = list(candidates)

    async def propose(self, parent: str, steps: object, pay: object, section: object = None) -> str | None:
        return self._left.pop(0) if self._left else None


async def sharpened(seed: int, *, dropping: bool = True) -> SearchResult:
    world = World(seed)

    async def rollouts(task: str, skill: str, key: RolloutKey) -> Outcome:
        return float(world.succeeds(task, skill, str(key)))

    helps = tuple(f"H{n}" for n in range(6))
    proposer = InTurn(skill(*helps), skill(*helps, "N0"), skill(*helps, "N0", "N1"))
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


def other_score(record: dict[str, Any]) -> None:
    one = record["positions"][0]
    one["candidate"] = 1.0 - one["candidate"]


def other_reference(record: dict[str, Any]) -> None:
    record["incumbent"] = "other"


def larger_margin(record: dict[str, Any]) -> None:
    record["terms"]["margin"] = 0.3


def other_chain(record: dict[str, Any]) -> None:
    record["previous"] = "other"


@pytest.mark.parametrize("tamper", [other_score, other_reference, larger_margin, other_chain])
def test_a_removal_that_was_tampered_with_is_found_out(
    certificate: dict[str, Any], tamper: Callable[[dict[str, Any]], None]
) -> None:
    data = copy.deepcopy(certificate)
    tamper(data["shortening"]["record"])
    assert problems(Certificate.model_validate(data))
