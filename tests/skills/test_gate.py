"""Which level a candidate is held at, and how much of the purse it may use."""

from whet.skills.attempt import Outcome, Verdict
from whet.skills.exam import Purse
from whet.skills.exam_times import Timeless
from whet.skills.gate import Follow, Gate, Held
from whet.skills.plan import Plan

TASKS = tuple(f"task-{number}" for number in range(10))


class Asked:
    """Good skills do every task, all others none. What is asked for is kept."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    async def __call__(self, task: str, skill: str, key: str) -> Outcome:
        self.keys.add(key)
        return float(skill.startswith("good"))


def gate(purse: int = 10_000) -> tuple[Gate, Asked]:
    asked = Asked()
    return Gate("start", TASKS, Purse(purse), Plan(0), asked, Timeless()), asked


def told(held: Held | None) -> tuple[int, float, int] | None:
    """Number of the exam, level, and rollouts of the incumbent at each position."""
    return (held.exam.number, held.level, held.attempt.terms.repeats) if held else None


async def test_those_that_others_follow_leave_the_last_level_of_their_exam() -> None:
    held, _ = gate()
    for number in range(3):
        assert told(await held.hold(f"null {number}", Follow.SURELY)) == (1, 0.0125, 2)
    assert await held.hold("null 3", Follow.SURELY) is None
    assert told(await held.hold("null 3", Follow.NEVER)) == (1, 0.0125, 2)
    assert held.levels == [(0.0125,) * 4]


async def test_those_that_others_may_follow_use_all_levels_of_their_exam() -> None:
    held, _ = gate()
    for number in range(4):
        assert told(await held.hold(f"null {number}", Follow.PERHAPS)) == (1, 0.0125, 2)
    assert await held.hold("null 4", Follow.PERHAPS) is None


async def test_the_only_one_of_an_exam_has_the_level_of_all() -> None:
    held, _ = gate()
    assert told(await held.hold("null", Follow.NEVER)) == (1, 0.05, 1)
    held, _ = gate()
    assert told(await held.hold("good", Follow.SURELY)) == (1, 0.0125, 2)
    assert told(await held.hold("good again", Follow.NEVER)) == (2, 0.025, 1)
    assert held.levels == [(0.0125,) * 4, (0.025,)]


async def test_those_that_others_follow_use_half_of_the_purse_at_most() -> None:
    held, _ = gate(purse=126)
    early = await held.hold("null", Follow.SURELY)
    assert early is not None
    assert early.attempt.terms.positions == 21, "63 rollouts, 3 at each position"
    assert held.purse.left == 63
    # The incumbent's are paid for.
    last = await held.hold("other null", Follow.NEVER)
    assert last is not None
    assert last.attempt.verdict is Verdict.FUTILE
    assert last.attempt.decided_at == 24
    assert held.purse.left == 63 - 21 - 3 * 3


async def test_a_purse_that_is_too_small_uses_no_level() -> None:
    held, asked = gate(purse=119)
    assert await held.hold("null", Follow.SURELY) is None
    assert not asked.keys
    held, _ = gate(purse=40)
    assert told(await held.hold("null", Follow.NEVER)) == (1, 0.05, 1)
    held, _ = gate(purse=39)
    assert await held.hold("null", Follow.NEVER) is None


async def test_what_is_certified_is_met_by_others_in_a_new_exam_with_rollouts_of_its_own() -> None:
    held, asked = gate()
    first = await held.hold("good", Follow.SURELY)
    assert first is not None
    assert first.attempt.verdict is Verdict.CERTIFIED
    assert (held.incumbent, held.number) == ("good", 2)
    before = set(asked.keys)
    second = await held.hold("null", Follow.SURELY)
    assert told(second) == (2, 0.00625, 2)
    assert second is not None
    assert second.exam.incumbent == "good"
    assert not {key for key in asked.keys - before if key.startswith(first.exam.id)}


async def test_nothing_is_held_twice_before_one_exam() -> None:
    held, asked = gate()
    await held.hold("null", Follow.SURELY)
    before = set(asked.keys)
    assert await held.hold("null", Follow.NEVER) is None
    assert await held.hold("start", Follow.NEVER) is None
    assert asked.keys == before
