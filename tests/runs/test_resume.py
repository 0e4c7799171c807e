"""Resuming through the API: only what has no score is run; what has changed is refused."""

import asyncio
import shutil
from pathlib import Path

import pytest

from support.calls import call
from support.run_world import perform, questions, scripted, values
from whet.errors import UserError
from whet.exchange import Usage
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.run import Event, Started, run
from whet.runs.scheduler import Ended
from whet.runs.stats.compare import Verdict, compare_runs
from whet.runs.stats.compared import in_words
from whet.runs.stats.summary import tally
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import DATABASE, Store
from whet.scoring import Cause
from whet.testing import Fault, Reply

RIGHT = {"": Reply(text="4")}


def pending(events: list[Event]) -> int:
    assert isinstance(events[0], Started)
    return events[0].pending


async def test_a_cancelled_run_goes_on_where_it_was(tmp_path: Path) -> None:
    tasks, model = questions(tmp_path, *"abcdef"), scripted(tmp_path, {"": Reply(text="4", delay=0.1)})
    ended: list[str] = []
    two_done = asyncio.Event()

    def watch(event: Event) -> None:
        if isinstance(event, Ended):
            ended.append(event.row.task)
            if len(ended) == 2:
                two_done.set()

    request = RunOptions(tasks=tasks, out=tmp_path / "run", agents=("chat",), models=("m",), concurrency=2)
    running = asyncio.create_task(run(request, Config(models=model), watch, {}))
    await two_done.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with Store.open_read(tmp_path / "run") as store:
        assert {done.rollout.task for done in store.results()} >= set(ended)
        open_before = [row.task for row in store.pending()]

    resumed = await perform(tasks, model, resume=True)
    assert sorted(event.row.task for event in resumed if isinstance(event, Ended)) == sorted(open_before)
    assert values(tmp_path / "run") == dict.fromkeys("abcdef", 1.0)
    with Store.open_read(tmp_path / "run") as store:
        for row, attempts in store.attempts_by_rollout():
            assert row.task in open_before or len(attempts) == 1
            assert all(attempt.cause is Cause.INTERRUPTED for attempt in attempts[:-1])


async def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    tasks, model = questions(tmp_path, "a"), scripted(tmp_path, RIGHT)
    await perform(tasks, model)
    assert len(await perform(tasks, model, resume=True)) == 1


async def test_more_samples_and_agents_are_added_to_what_is_there(tmp_path: Path) -> None:
    tasks, model = questions(tmp_path, "a"), scripted(tmp_path, RIGHT)
    await perform(tasks, model)
    assert pending(await perform(tasks, model, resume=True, samples=3)) == 2
    assert pending(await perform(tasks, model, resume=True, agents=("nop",), samples=2)) == 2
    with Store.open_read(tmp_path / "run") as store:
        assert len(store.results()) == 5
        assert sorted(store.get("agents")) == ["chat", "nop"]


def retried(run_folder: Path) -> tuple[int, int, float]:
    """How many rollouts were run again, how many are not done, and the sum of the scores."""
    with Store.open_read(run_folder) as store:
        (arm,) = tally(store).values()
    return arm.retried, arm.not_run, sum(value for values in arm.values.values() for value in values)


async def test_failed_rollouts_are_run_again_and_the_run_says_so(tmp_path: Path) -> None:
    tasks, folder = questions(tmp_path, *"abc"), tmp_path / "run"
    await perform(tasks, scripted(tmp_path, {"c:": Reply(text="5"), **RIGHT}))
    assert retried(folder) == (0, 0, 2)
    assert pending(await perform(tasks, scripted(tmp_path, RIGHT), resume=True)) == 0
    again = await perform(tasks, scripted(tmp_path, RIGHT), resume=True, retry="failed")
    assert [event.row.task for event in again if isinstance(event, Ended)] == ["c"]
    assert retried(folder) == (1, 0, 3)
    with Store.open_read(folder) as store:
        attempts = {row.task: [one.value for one in attempts] for row, attempts in store.attempts_by_rollout()}
    assert attempts == {"a": [1], "b": [1], "c": [0, 1]}, "the earlier attempt stays on record"
    shutil.copytree(folder, tmp_path / "other")
    (compared,) = compare_runs(folder, tmp_path / "other")
    assert compared.verdict is Verdict.WITHHELD
    assert "run again" in in_words(compared)
    assert pending(await perform(tasks, scripted(tmp_path, RIGHT), resume=True, retry="all")) == 3


async def test_a_retry_that_fails_leaves_no_earlier_score_in_the_mean(tmp_path: Path) -> None:
    tasks, folder = questions(tmp_path, *"ab"), tmp_path / "run"
    await perform(tasks, scripted(tmp_path, {"b:": Reply(text="5"), **RIGHT}))
    await perform(tasks, scripted(tmp_path, {"": Reply(fault=Fault.SERVER_ERROR)}), resume=True, retry="failed")
    assert retried(folder) == (1, 0, 1), "the last attempt counts, and its score is missing"
    assert pending(await perform(tasks, scripted(tmp_path, RIGHT), resume=True)) == 1


def test_a_retry_needs_a_run_to_resume() -> None:
    with pytest.raises(UserError, match="`retry` is 'failed' and needs `resume`"):
        RunOptions(retry="failed")


async def test_what_is_not_asked_for_again_is_left_alone(tmp_path: Path) -> None:
    model = scripted(tmp_path, RIGHT)
    with pytest.raises(UserError, match="unknown agent"):
        await perform(questions(tmp_path, "a", "b"), model, agents=("chat", "lop"))
    await perform(questions(tmp_path, "a", "b"), model)
    assert pending(await perform(questions(tmp_path, "b", "c"), model, resume=True)) == 1
    assert values(tmp_path / "run") == {"a": 1.0, "b": 1.0, "c": 1.0}


async def test_a_folder_that_holds_something_else_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("Mine.")
    with pytest.raises(UserError, match="exists already; continue it with `resume`"):
        await perform(questions(tmp_path, "a"), scripted(tmp_path, RIGHT))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


async def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    await perform(questions(tmp_path, "a"), scripted(tmp_path, RIGHT))
    assert values(tmp_path / "run") == {"a": 1.0}


def test_a_run_that_was_killed_while_it_was_made_can_be_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / DATABASE).touch()
    with Store.open_write(folder) as store:
        assert store.rollouts() == []


def test_what_an_interrupted_attempt_spent_is_counted(tmp_path: Path) -> None:
    row = RolloutRow("r", 0, "t", "loop", "m", None, 0)
    exchange = call(started=1.0, ended=2.0, usage=Usage(input=9, output=2))
    with Store.create(tmp_path / "run") as store:
        store.add_tasks([TaskRow("t", "d", "", "{}")])
        store.add_rollouts([row])
        store.add_exchange(store.start_attempt("r", 1.0), exchange)
        store.interrupt_open_attempts()
        (arm,) = tally(store).values()
    assert (arm.input_tokens, arm.output_tokens, arm.cost) == (9, 2, None)
    assert arm.not_run == 1
