"""The world of known truth is the one that the reference figures come from."""

import pytest

from known_world import World, WorldProposer, skill_of

ALL_LOCAL = [f"H{n}" for n in range(6)]


@pytest.mark.parametrize(
    ("rules", "lift"),
    [
        (["H0"], 0.0446),
        (["H1"], 0.0463),
        (["H2"], 0.0472),
        (["H3"], 0.0471),
        (["H4"], 0.0462),
        (["H5"], 0.0447),
        (["G0"], 0.0914),
        (["G0", "G1"], 0.1773),
        (["B0"], -0.0764),
        (["C0"], 0.0),
        (["N0"], 0.0),
        (["H0", "H1"], 0.0494),
        (["H2", "H3"], 0.1124),
        (["H0", "H2", "H3"], 0.1570),
        (ALL_LOCAL, 0.2528),
        ([*ALL_LOCAL, "G0", "G1"], 0.3641),
        ([f"N{n}" for n in range(20)], -0.0460),
    ],
)
def test_every_lift_is_what_the_reference_says(rules: list[str], lift: float) -> None:
    assert World().lift(skill_of(rules)) == pytest.approx(lift, abs=6e-5)


def test_the_noise_is_what_the_reference_says() -> None:
    world = World()
    chances = [world.chance(task, "") for task in world.tasks("validation")]
    assert sum(chances) / 30 == pytest.approx(0.5)
    assert sum(p * (1 - p) for p in chances) / 30 == pytest.approx(0.1539, abs=6e-5)


def test_rollouts_are_fresh_by_their_ids_and_repeat_under_the_same() -> None:
    world, other = World(), World(seed=1)
    throws = [world.succeeds("validation-15", "", f"{n}") for n in range(400)]
    assert throws == [world.succeeds("validation-15", "", f"{n}") for n in range(400)]
    assert 150 < sum(throws) < 250
    assert throws != [other.succeeds("validation-15", "", f"{n}") for n in range(400)]


def test_a_proposer_of_nulls_adds_only_nulls_and_never_the_same_twice() -> None:
    proposer, skill = WorldProposer("null", 0), ""
    for n in range(12):
        skill = proposer.propose(skill)
        assert skill.count("Follow practice N") == n + 1
    assert World().lift(skill_of(["N0"])) == 0
