"""How far a run is: the terminal, which is told what happens, and the index, which reads it, say the same."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from support.run_world import fails, outage, questions, scripted
from whet.cli.progress import ProgressDisplay
from whet.cli.tables import Terminal
from whet.gateway import Limits
from whet.runs.config import Config
from whet.runs.index import IndexRow, RolloutState, RunIndex
from whet.runs.options import RunOptions
from whet.runs.progress import LIMITS, OPENED, LimitUse, Progress, count_ends, progress_of, uses_of_limits
from whet.runs.run import Event, Started, run
from whet.runs.scheduler import Ended
from whet.runs.stats.summary import Tally, tally_rows, total
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.testing import Fault, Reply

RIGHT = Reply(text="4")


def row(number: int, state: RolloutState = RolloutState.ENDED, **known: float | Cause | None) -> IndexRow:
    rollout = RolloutRow(f"r{number}", number, "t", "agent", "m", None, number)
    return IndexRow(rollout, 1, state, **known)  # type: ignore[arg-type] # fields by their names


def scored(number: int, ended: float) -> IndexRow:
    return row(number, attempt=number, value=1.0, started=ended - 5, ended=ended)


def missing(number: int, ended: float) -> IndexRow:
    return row(number, attempt=number, cause=Cause.MODEL, started=ended - 5, ended=ended)


def test_rate_and_time_left_are_those_since_the_run_was_resumed() -> None:
    waiting = [row(number, RolloutState.NOT_RUN) for number in range(4)]
    rows = [scored(1, 50.0), scored(2, 1010.0), scored(3, 1060.0), row(4, RolloutState.RUNNING, started=1050.0)]
    found = progress_of([*rows, *waiting], opened=1000.0, now=1120.0)
    assert found == Progress(planned=8, done=3, running=1, ended=2, seconds=120.0)
    assert (found.left, found.per_minute, found.seconds_left) == (5, 1.0, 300.0)
    assert str(found) == "about 5 min 0 s left"


def test_what_was_missing_before_the_run_was_resumed_is_left_to_do() -> None:
    assert progress_of([missing(1, 50.0), missing(2, 1010.0)], opened=1000.0, now=1100.0).done == 1
    reopened = row(3, RolloutState.REOPENED, started=50.0)
    assert progress_of([reopened], opened=1000.0, now=1100.0).left == 1


def test_nothing_is_said_before_a_rollout_has_ended_and_after_the_last_one() -> None:
    began = progress_of([row(1, RolloutState.RUNNING, started=9.0)], opened=None, now=19.0)
    assert (began.seconds, began.per_minute, began.seconds_left, str(began)) == (10.0, None, None, "")
    done = progress_of([scored(1, 15.0)], opened=None, now=20.0)
    assert (done.per_minute, done.seconds_left, str(done)) == (6.0, None, "")
    assert progress_of([], opened=None, now=1.0) == Progress(0, 0, 0, 0, 0.0)


def test_ends_are_counted_by_slices_of_time() -> None:
    rows = [scored(number, ended) for number, ended in enumerate([10.0, 11.0, 19.0, 20.0, 5.0])]
    assert count_ends(rows, since=10.0, now=20.0, slices=2) == [2, 2]
    assert count_ends(rows, since=10.0, now=10.0, slices=2) == [0, 0]


def test_only_limits_that_are_set_are_reported_and_an_unknown_cost_stays_unknown() -> None:
    whole = Tally(calls=3, input_tokens=10, output_tokens=5, cost=None)
    uses = uses_of_limits({"cost": 2.0, "total_tokens": 100, "concurrency": 4}, whole, seconds=9.0)
    assert uses == [LimitUse("cost", None, 2.0), LimitUse("total_tokens", 15, 100)]


@pytest.mark.parametrize("resume", [False, True])
async def test_the_terminal_and_the_index_say_the_same(tmp_path: Path, resume: bool) -> None:
    """At every end of a rollout, of a new run and of one that is resumed because scores are missing."""
    folder, index = tmp_path / "run", RunIndex()
    console = Console(width=200)
    seen: list[tuple[int, int, int]] = []

    def watch(event: Event) -> None:
        display.on(event)
        if isinstance(event, Started) or (isinstance(event, Ended) and not event.again):
            with Store.open_read(folder) as store:
                index.update(store)
                opened = store.get(OPENED)
            found = progress_of(index.rows, opened, now=opened + 60)
            shown = "".join(segment.text for segment in console.render(display))
            assert f"{found.done}/{found.planned} " in shown
            assert ("left" in shown) is (found.seconds_left is not None)
            seen.append((found.done, found.ended, found.left))

    tasks = questions(tmp_path, *"abcd")
    options = RunOptions(
        tasks=tasks, out=folder, agents=("chat",), models=("m",), concurrency=1, limits=Limits(cost=9.0)
    )
    broken = scripted(tmp_path, {"c:": fails(Fault.SERVER_ERROR), **outage(), "": RIGHT})
    display = ProgressDisplay(Terminal(file=StringIO()), "")
    await run(options, Config(models=broken), watch if not resume else lambda _: None, {})
    if resume:
        await run(
            options.model_copy(update={"resume": True}), Config(models=scripted(tmp_path, {"": RIGHT})), watch, {}
        )
    assert seen == ([(3, 0, 1), (4, 1, 0)] if resume else [(0, 0, 4), (1, 1, 3), (2, 2, 2), (3, 3, 1), (4, 4, 0)])
    with Store.open_read(folder) as store:
        assert store.get(LIMITS) == {"cost": 9.0}
    assert total(tally_rows(index.rows).values()).planned == 4
