"""Exams do not outlive a day, and what was decided once stays decided."""

from pathlib import Path

import pytest
from sharpen_world import HELPFUL, USELESS, Adds, World

from whet.errors import UserError
from whet.runs.config import Config, ModelConfig
from whet.skills.attempt import Outcome
from whet.skills.certificate import Certificate, problems, record_of
from whet.skills.engine import Sharpened, sharpen
from whet.skills.exam import Purse
from whet.skills.exam_times import DAY, WrittenTimes
from whet.skills.gate import Follow, Gate, Held
from whet.skills.plan import Plan
from whet.testing.world import World as KnownWorld
from whet.testing.world import skill_of

GOOD = skill_of(f"H{n}" for n in range(6))
WORLD = KnownWorld(4)
TASKS = WORLD.tasks("validation")


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


async def rollouts(task: str, skill: str, key: str) -> Outcome:
    return float(WORLD.succeeds(task, skill, key))


def gate_of(file: Path, clock: Clock) -> Gate:
    return Gate("", TASKS, Purse(100_000), Plan(100_000, 4), rollouts, WrittenTimes(file, clock))


async def held(gate: Gate, *skills: str) -> list[tuple[int, float]]:
    found = [await gate.hold(skill, Follow.PERHAPS) for skill in skills]
    return [(one.exam.number, one.level) for one in found if one]


NULLS = [skill_of([f"N{n}"]) for n in range(4)]


async def test_after_a_day_the_next_candidate_meets_a_new_exam_at_the_next_levels(tmp_path: Path) -> None:
    clock = Clock()
    gate = gate_of(tmp_path / "times.json", clock)
    assert await held(gate, *NULLS[:2]) == [(1, 0.0125)] * 2
    clock.now += DAY - 1
    assert await held(gate, NULLS[2]) == [(1, 0.0125)]
    clock.now += 2
    assert await held(gate, NULLS[3], GOOD) == [(2, 0.00625)] * 2
    assert gate.number == 3, "the good one is the incumbent of the next"


async def test_a_run_that_is_resumed_later_repeats_what_it_decided_and_goes_on_with_a_new_exam(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "times.json"
    first = gate_of(file, clock)
    before = [await first.hold(skill, Follow.PERHAPS) for skill in NULLS[:2]]
    clock.now += 3 * DAY
    again = gate_of(file, clock)
    assert [await again.hold(skill, Follow.PERHAPS) for skill in NULLS[:2]] == before
    assert await held(again, NULLS[2]) == [(2, 0.00625)]
    clock.now += 0.5 * DAY
    third = gate_of(file, clock)
    assert [await third.hold(skill, Follow.PERHAPS) for skill in NULLS[:2]] == before
    assert await held(third, *NULLS[2:]) == [(2, 0.00625)] * 2, "the exam that was left is not taken up again"
    clock.now -= 3 * DAY
    fourth = gate_of(file, clock)
    assert await held(fourth, *NULLS[:3]) == [(1, 0.0125), (1, 0.0125), (2, 0.00625)], "though the clock is set back"


async def test_an_attempt_that_was_broken_off_is_not_completed_after_a_day(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "times.json"
    gate_of(file, clock)._series.renew_if_stale()
    clock.now += 2 * DAY
    assert await held(gate_of(file, clock), GOOD) == [(2, 0.00625)]


class Once:
    def __init__(self, *skills: str) -> None:
        self._left = list(skills)

    async def propose(self, parent: str, steps: object, pay: object, section: object = None) -> str | None:
        return self._left.pop(0) if self._left else None


async def test_a_certificate_with_an_exam_that_was_left_holds(tmp_path: Path) -> None:
    clock = Clock()

    def a_day_passes(event: object) -> None:
        clock.now += DAY + 1 if isinstance(event, Held) else 0

    async def run(plan: Plan) -> Sharpened:
        proposer = Once(skill_of(["G0"]), skill_of(["G0", "G1"]), GOOD)
        times = WrittenTimes(tmp_path / f"{plan.seed}.json", clock)
        tasks = WORLD.tasks("train"), TASKS
        return await sharpen("", *tasks, plan, proposer, rollouts, a_day_passes, times=times)

    runs = [await run(Plan(5000, seed, accepted_before_attempt=1)) for seed in range(4)]
    done = next(one for one in runs if len({held.exam.incumbent for held in one.held}) < len(one.held))
    assert len({one.exam.number for one in done.held}) == len(done.held) > 1, "each attempt has an exam of its own"
    exams = max(one.exam.number for one in done.held)
    certificate = Certificate(
        whet="0",
        start="",
        certified=done.certified,
        alpha=0.10,
        levels=tuple((0.10 / 2**n / 4,) * 4 for n in range(1, exams + 1)),
        seed=done.plan.seed,
        made_with={},
        tasks=dict.fromkeys(TASKS, "digest"),
        records=tuple(map(record_of, done.held)),
    )
    assert problems(certificate) == []


async def test_a_run_is_not_gone_on_with_under_other_settings_of_its_model(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.sharpen(Adds(HELPFUL), 130)
    other = Config(models={"m": ModelConfig(script=tmp_path / "script.toml", attempts=1, max_tokens=5)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "config", property(lambda _: other))
        with pytest.raises(UserError, match=r"made_with.json: the run was begun with other terms \(model\)"):
            await world.sharpen(Adds(USELESS), 130, resume=True)
