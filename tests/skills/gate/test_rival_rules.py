"""The rules of other optimizers: what they say of given pairs, and how often they take what does nothing."""

import numpy as np
import pytest
from scipy import stats

from known_world import World, skill_of
from many_exams import paired, population
from rival_rules import RULES


def takes(rule: str, differences: list[float]) -> bool:
    return bool(RULES[rule](np.array(differences)))


def test_a_tie_is_rejected_by_every_rule() -> None:
    assert not any(takes(rule, [1.0, -1.0, *[0.0] * 28]) for rule in RULES)


def test_one_win_of_thirty_is_enough_for_the_strict_rule_alone() -> None:
    assert [rule for rule in RULES if takes(rule, [1.0, *[0.0] * 29])] == ["strict"]


def test_five_wins_of_five_pass_a_sign_test_and_four_do_not() -> None:
    assert takes("McNemar", [1.0] * 5)
    assert not takes("McNemar", [1.0] * 4)
    assert not takes("McNemar", [*[1.0] * 5, -1.0])


def test_the_strict_rule_takes_what_does_nothing_and_what_harms() -> None:
    world, random = World(), np.random.default_rng(5)
    tasks = world.tasks("validation")
    for rules, expected in ((["N0"], 0.44), (["B0"], 0.18)):
        before, after = ([world.chance(task, skill) for task in tasks] for skill in ("", skill_of(rules)))
        taken = RULES["strict"](paired(random, (np.tile(before, (400, 1)), np.tile(after, (400, 1))))).sum()
        assert stats.binom.ppf(1e-4, 400, expected) <= taken <= stats.binom.isf(1e-4, 400, expected)


@pytest.mark.parametrize(
    ("rule", "at_none", "at_ten_points"),
    [
        ("strict", 0.420, 0.806),
        ("1·SE", 0.141, 0.478),
        ("t-interval", 0.019, 0.144),
        ("bootstrap", 0.043, 0.228),
        ("McNemar", 0.021, 0.151),
    ],
)
def test_rules_take_as_often_as_the_reference_says(rule: str, at_none: float, at_ten_points: float) -> None:
    for lift, expected in ((0.0, at_none), (0.10, at_ten_points)):
        random = np.random.default_rng(6)
        share = RULES[rule](paired(random, population(random, 4000, 30, lift))).mean()
        assert share == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 2000) + 0.002)
