"""A small run with every kind of rollout, for the tests of the pages about rollouts: two agents with and without a
skill, scores, flags, several attempts, a missing score, one that was killed, one that waits."""

from pathlib import Path
from typing import Any

from support.view_worlds import EPOCH, long_trace
from whet.agents import AgentReport, StopReason
from whet.agents.skill_delivery import Delivered
from whet.rollout.result import Flag, Result, SkillSeen, Spending, encode_result
from whet.runs.store.schema import RolloutRow, SkillRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score

SKILL = "3320cd9d5aa0f1e2aa00bb11cc22dd33"
TASKS = ("parser", "clock", "hostile <script>alert(1)</script>")
ARMS = (("codex", None), ("codex", SKILL), ("pi", None))
SAMPLES = 2


def rollout_name(task: int, arm: int, sample: int) -> str:
    """The id of a rollout. All tasks have ids that begin differently."""
    return f"{'abc'[task]}{arm}{sample}00000000"


def write_rollouts(folder: Path) -> None:
    """Write the run."""
    plan = [(task, arm, sample) for task in range(len(TASKS)) for arm in range(len(ARMS)) for sample in range(SAMPLES)]
    with Store.create(folder) as store, store.atomic():
        store.add_tasks(TaskRow(task, f"{place:016x}", "tests", "{}") for place, task in enumerate(TASKS))
        store.add_skills([SkillRow(SKILL, "be-brief", b"---\nname: be-brief\n---\n")])
        store.add_rollouts(
            RolloutRow(rollout_name(task, arm, sample), place, TASKS[task], ARMS[arm][0], "m", ARMS[arm][1], sample)
            for place, (task, arm, sample) in enumerate(plan)
        )
        for place, (task, arm, sample) in enumerate(plan[:-2]):
            name = rollout_name(task, arm, sample)
            if place == 1:
                _attempt(store, name, place, None, Cause.MODEL, "502 after 5 tries", calls=1)
            value = (0.0, 0.5, 1.0)[place % 3]
            if place == 4:
                _attempt(store, name, place, None, Cause.JUDGE, "the tests wrote no reward file", calls=4)
            else:
                flags = (Flag.CANARY,) if place == 5 else ()
                _attempt(store, name, place, value, None, f"{round(24 * value)} of 24 tests passed", 3 + place, flags)
        store.start_attempt(rollout_name(*plan[-2]), EPOCH + 900)  # killed: no process writes this run


def _attempt(
    store: Store,
    name: str,
    place: int,
    value: float | None,
    cause: Cause | None,
    reason: str,
    calls: int,
    flags: tuple[str, ...] = (),
) -> None:
    attempt = store.start_attempt(name, EPOCH + place)
    for exchange in long_trace(2, 200, seed=place):
        store.add_exchange(attempt, exchange)
    score = Score(value=value, cause=cause, reason=reason)
    result = make_result(score, calls, flags, has_skill=store.rollout(name).skill is not None)
    store.finish_attempt(
        attempt, encode_result(result), value=value, cause=cause, final=value is not None, ended=EPOCH + place + 60
    )
    store.add_log(attempt, "agent stdout", b"\x1b[32mgreen\x1b[0m \x1b[2Jcleared\n" * 3)
    store.add_log(attempt, "file tests/hidden_test.py", b"assert answer == 42\n")


def make_result(score: Score, calls: int, flags: tuple[str, ...] = (), *, has_skill: bool = False) -> Result:
    """The result of an attempt with two judges."""
    report: dict[str, Any] = {"skill": Delivered(way="skill", place="skills/be-brief/SKILL.md")} if has_skill else {}
    return Result(
        score=score,
        judgements={"reward": score, "style": Score.of(0.5, "polite, but too long")},
        report=AgentReport(
            stop=StopReason.FINISHED, exit_code=0, text=f"Done with {calls}.", seconds=9.0, version="1.2", **report
        ),
        skill=SkillSeen(shown=True, read=False) if has_skill else None,
        spending=Spending(
            calls=calls,
            speakers={"main": calls - 1, "explore": 1},
            input_tokens=1000 * calls,
            output_tokens=10,
            cost=0.5,
        ),
        flags=flags,
        seconds={"agent": 125.0, "judge": 2.5},
    )
