"""Rollouts run as many at once as they may, in order, are tried again when the machinery fails, and stop when told."""

import asyncio
import sqlite3
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.run_world import fails, most_at_once, perform, questions, scripted, values
from whet.agents import AgentReport, StopReason
from whet.errors import UserError
from whet.exchange import Recorder
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.runs import scheduler
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.run import run
from whet.runs.scheduler import MAX_ATTEMPTS, Ended, Queue
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.testing import Fault, Reply

RIGHT = Reply(text="4")


def row(ordinal: int, model: str = "m") -> RolloutRow:
    return RolloutRow(f"r{ordinal}", ordinal, "t", "a", model, None, ordinal)


@given(st.lists(st.sampled_from("abc"), max_size=30), st.fixed_dictionaries({m: st.integers(1, 3) for m in "abc"}))
def test_rollouts_are_handed_out_once_within_a_models_room(models: list[str], room: dict[str, int]) -> None:
    async def scenario() -> None:
        queue = Queue([row(number, model) for number, model in enumerate(models)], room)
        running: Counter[str] = Counter()
        handed_out: list[int] = []

        async def worker() -> None:
            while (taken := await queue.take()) is not None:
                running[taken.model] += 1
                handed_out.append(taken.ordinal)
                assert running[taken.model] <= room[taken.model]
                await asyncio.sleep(0)
                running[taken.model] -= 1
                await queue.give_back(taken)

        async with asyncio.timeout(30):
            await asyncio.gather(*(worker() for _ in range(5)))
        assert sorted(handed_out) == list(range(len(models)))

    asyncio.run(scenario())


async def test_a_full_model_does_not_hold_up_the_others() -> None:
    queue = Queue([row(0, "slow"), row(1, "slow"), row(2, "quick")], {"slow": 1, "quick": 1})
    first, second = await queue.take(), await queue.take()
    assert first is not None
    assert second is not None
    assert [first.ordinal, second.ordinal] == [0, 2]
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    await queue.give_back(first)
    third = await waiting
    assert third is not None
    assert third.ordinal == 1
    assert await queue.take() is None


async def test_as_many_rollouts_run_at_once_as_asked_for(tmp_path: Path) -> None:
    slow = scripted(tmp_path, {"": Reply(text="4", delay=0.15)})
    await perform(questions(tmp_path, *"abcdefgh"), slow, concurrency=3)
    assert most_at_once(tmp_path / "run") == 3


async def test_a_model_is_given_no_more_rollouts_than_it_can_take(tmp_path: Path) -> None:
    slow = {"": Reply(text="4", delay=0.15)}
    models = scripted(tmp_path, slow, "narrow", concurrency=1) | scripted(tmp_path, slow, "wide")
    await perform(questions(tmp_path, *"abcde"), models, concurrency=4)
    assert most_at_once(tmp_path / "run", "narrow") == 1
    assert most_at_once(tmp_path / "run", "wide") >= 2


async def test_rollouts_run_in_the_order_of_the_plan(tmp_path: Path) -> None:
    seen = await perform(questions(tmp_path, *"cab"), scripted(tmp_path, {"": RIGHT}), samples=2, concurrency=1)
    ended = [(event.row.sample, event.row.task) for event in seen if isinstance(event, Ended)]
    assert ended == [(sample, task) for sample in (0, 1) for task in "cab"]


async def test_a_failure_of_the_machinery_is_tried_again_and_kept(tmp_path: Path) -> None:
    tasks = questions(tmp_path, "flaky", "good")
    seen = await perform(tasks, scripted(tmp_path, {"flaky": fails(Fault.SERVER_ERROR, times=1), "good": RIGHT}))
    flaky = [event for event in seen if isinstance(event, Ended) and event.row.task == "flaky"]
    assert [(event.result.score.cause, event.again) for event in flaky] == [(Cause.MODEL, True), (None, False)]
    with Store.open_read(tmp_path / "run") as store:
        first, second = store.attempts_of(flaky[0].row.id)
        assert [(first.cause, first.final), (second.value, second.final)] == [(Cause.MODEL, False), (1.0, True)]
        (failed,) = store.exchanges(first.id)
        assert failed.status == 500


async def test_after_three_attempts_a_score_stays_missing_until_the_run_is_resumed(tmp_path: Path) -> None:
    tasks = questions(tmp_path, "broken", "good")
    # All that is asked later than the good question fails: an outage.
    await perform(tasks, scripted(tmp_path, {"good": RIGHT, "": fails(Fault.SERVER_ERROR)}))
    assert values(tmp_path / "run") == {"broken": None, "good": 1.0}
    with Store.open_read(tmp_path / "run") as store:
        (pending,) = store.pending()
        assert pending.task == "broken"
        assert [attempt.cause for attempt in store.attempts_of(pending.id)] == [Cause.MODEL] * MAX_ATTEMPTS
    resumed = await perform(tasks, scripted(tmp_path, {"": RIGHT}), resume=True)
    assert [event.row.task for event in resumed if isinstance(event, Ended)] == ["broken"]
    assert values(tmp_path / "run") == {"broken": 1.0, "good": 1.0}
    with Store.open_read(tmp_path / "run") as store:
        assert len(store.attempts_of(pending.id)) == MAX_ATTEMPTS + 1


async def test_a_wrong_answer_is_a_result_and_is_not_tried_again(tmp_path: Path) -> None:
    seen = await perform(questions(tmp_path, "wrong"), scripted(tmp_path, {"": Reply(text="5")}))
    (ended,) = (event for event in seen if isinstance(event, Ended))
    assert (ended.result.score.value, ended.again) == (0.0, False)


async def test_a_refused_key_ends_the_run_at_once(tmp_path: Path) -> None:
    tasks = questions(tmp_path, *(f"q{n}" for n in range(20)))
    with pytest.raises(UserError, match=r"model 'm': http://127\.0\.0\.1:\d+/v1/chat/completions refused the key"):
        await perform(tasks, scripted(tmp_path, {"": fails(Fault.UNAUTHORIZED)}), concurrency=2)
    with Store.open_read(tmp_path / "run") as store:
        assert len(store.pending()) == 20
        attempts = [attempt for _, attempts in store.attempts_by_rollout() for attempt in attempts]
    assert 1 <= len(attempts) <= 2
    assert Cause.AUTH in {attempt.cause for attempt in attempts}


async def test_a_run_that_cannot_be_written_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Store.finish_attempt
    finished: list[int] = []

    def finish_two(store: Store, attempt: int, *arguments: object, **options: object) -> None:
        if len(finished) == 2:
            raise sqlite3.OperationalError("database or disk is full")
        finish(store, attempt, *arguments, **options)  # type: ignore[arg-type]
        finished.append(attempt)

    tasks, model = questions(tmp_path, *"abcdefgh"), scripted(tmp_path, {"": RIGHT})
    with monkeypatch.context() as faulty:
        faulty.setattr(Store, "finish_attempt", finish_two)
        with pytest.raises(
            UserError, match=r"run: cannot be written: database or disk is full; what was stored is kept"
        ):
            await perform(tasks, model, concurrency=1)
    with Store.open_read(tmp_path / "run") as store:
        assert [result.rollout.task for result in store.results()] == ["a", "b"]
    await perform(tasks, model, resume=True)
    assert values(tmp_path / "run") == dict.fromkeys("abcdefgh", 1.0)


async def test_memory_does_not_grow_with_the_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wordy(rollout: Rollout, resources: RunResources, *_: Recorder) -> Result:
        words = rollout.id * 20_000
        report = AgentReport(stop=StopReason.FINISHED, exit_code=0, text="4", stdout=words, seconds=0)
        return Result(score=Score.of(1), report=report)

    ended = 0

    def count(event: object) -> None:
        nonlocal ended
        ended += isinstance(event, Ended)

    monkeypatch.setattr(scheduler, "attempt", wordy)
    tasks, model = questions(tmp_path, *(f"q{n}" for n in range(200))), scripted(tmp_path, {"": RIGHT})
    tracemalloc.start()
    try:
        await run(
            RunOptions(tasks=tasks, out=tmp_path / "run", agents=("chat",), models=("m",)), Config(models=model), count
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ended == 200
    assert peak < 12_000_000, "200 reports of 240 kB each are 48 MB"
