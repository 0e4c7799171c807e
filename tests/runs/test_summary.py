"""What a run says in sum: means over what was measured, causes of what was not, costs only where they are known."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.run_world import fails, outage, perform, questions, scripted
from whet.rollout.result import Result, Spending
from whet.runs.config import ModelConfig
from whet.runs.run import Event, Started
from whet.runs.scheduler import Ended
from whet.runs.stats.summary import Arm, Tally, arm_of, skill_names, tally, total
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.testing import Fault, Reply, Scene, Script, ScriptedModel, say

RIGHT, WRONG = Reply(text="4"), Reply(text="5")


def only(arms: dict[Arm, Tally]) -> Tally:
    (arm,) = arms.values()
    return arm


def stored_tally(run: Path) -> Tally:
    with Store.open_read(run) as store:
        return only(tally(store))


async def test_missing_scores_are_counted_and_never_averaged(tmp_path: Path) -> None:
    replies = {"right": RIGHT, "wrong": WRONG, "broken": fails(Fault.SERVER_ERROR), "cut": fails(Fault.CUT, times=1)}
    seen = await perform(questions(tmp_path, *replies), scripted(tmp_path, replies | outage()))
    arm = stored_tally(tmp_path / "run")
    assert (arm.planned, arm.measured, arm.not_run) == (4, 3, 0)
    assert arm.missing == {Cause.MODEL: 1}
    mean = arm.mean()
    assert mean is not None
    assert mean.mean == pytest.approx(2 / 3)
    assert arm.values == {"right": [1.0], "wrong": [0.0], "cut": [1.0]}
    on_the_way = counted_on_the_way(seen)
    assert on_the_way.seconds == pytest.approx(arm.seconds)
    assert (arm.rescued, arm.sent) == (1, 7), "cut was tried twice, broken three times"
    in_the_store = replace(on_the_way, rescued=arm.rescued, sent=arm.sent, resent=arm.resent)
    assert replace(in_the_store, seconds=arm.seconds) == arm


def counted_on_the_way(seen: list[Event]) -> Tally:
    """What a display that saw every event has counted."""
    started, *ended = seen
    assert isinstance(started, Started)
    for event in (event for event in ended if isinstance(event, Ended)):
        started.arms[arm_of(event.row)].spend(event.result)
        if not event.again:
            started.arms[arm_of(event.row)].conclude(event.row.task, event.result)
    return only(started.arms)


async def test_what_was_not_run_is_neither_measured_nor_missing(tmp_path: Path) -> None:
    seen = await perform(questions(tmp_path, "a"), scripted(tmp_path, {"": RIGHT}), samples=2)
    assert isinstance(seen[0], Started)
    with Store.open_write(tmp_path / "run") as store:
        first, second = store.rollouts()
        store.add_rollouts([type(first)("new", 9, first.task, first.agent, first.model, None, 2)])
        store.start_attempt("new", 1.0)
    arm = stored_tally(tmp_path / "run")
    assert (arm.planned, arm.measured, arm.not_run, arm.missing.total()) == (3, 2, 1, 0)
    assert second.sample == 1


@pytest.mark.parametrize(
    ("prices", "cost"),
    [({"price_input": 10.0, "price_output": 1000.0}, True), ({}, False), ({"price_input": 10.0}, False)],
)
async def test_a_cost_is_known_only_when_both_prices_are(tmp_path: Path, prices: dict[str, float], cost: bool) -> None:
    async with ScriptedModel(Script(scenes=(Scene(replies=(say("4"),)),))) as model:
        config = {"m": ModelConfig(url=model.url, **prices)}
        await perform(questions(tmp_path, "a", "b"), config)
    arm = stored_tally(tmp_path / "run")
    assert arm.input_tokens > 0
    expected = (arm.input_tokens * 10 + arm.output_tokens * 1000) / 1e6
    assert arm.cost == (pytest.approx(expected) if cost else None)


def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    arm = Tally()
    arm.spend(result(None))
    assert arm.cost == 0
    arm.spend(result(None, calls=1, cost=0.5))
    assert arm.cost == 0.5
    arm.spend(result(None, calls=1, cost=None))
    arm.spend(result(None, calls=1, cost=0.5))
    assert arm.cost is None


async def test_each_agent_model_and_skill_is_an_arm_of_its_own(tmp_path: Path) -> None:
    skill = tmp_path / "careful"
    skill.mkdir()
    (skill / "SKILL.md").write_text("Take care.")
    models = scripted(tmp_path, {"": RIGHT}, "one") | scripted(tmp_path, {"": WRONG}, "two")
    await perform(questions(tmp_path, "a"), models, agents=("chat", "nop"), skills=(None, skill))
    with Store.open_read(tmp_path / "run") as store:
        arms, names = tally(store), skill_names(store)
    assert len(arms) == 8
    for (agent, model, used), arm in arms.items():
        assert arm.values == {"a": [1.0 if (agent, model) == ("chat", "one") else 0.0]}
        assert names[used] == (f"careful@{used[:6]}" if used else "-")


def result(value: float | None, **spending: object) -> Result:
    score = Score.missing(Cause.SETUP, "") if value is None else Score.of(value)
    return Result(score=score, spending=Spending.model_validate(spending), seconds={"agent": 1.0}, flags=("f",))


outcomes = st.tuples(st.sampled_from("ab"), st.none() | st.sampled_from([0.0, 0.5, 1.0]))


@given(st.lists(st.lists(outcomes, max_size=6), max_size=4))
def test_arms_together_say_what_one_arm_of_all_would(arms: list[list[tuple[str, float | None]]]) -> None:
    def fill(arm: Tally, results: list[tuple[str, float | None]]) -> Tally:
        for task, value in results:
            arm.planned += 1
            arm.spend(result(value, calls=1, input_tokens=3, output_tokens=2, cost=0.25))
            arm.conclude(task, result(value))
        return arm

    whole = total(fill(Tally(), results) for results in arms)
    assert whole == fill(Tally(), [one for results in arms for one in results])
    assert whole.planned == whole.measured + whole.missing.total()
    assert whole.missing.total() == sum(value is None for results in arms for _, value in results)
    assert (whole.mean() is None) == (whole.measured == 0)
