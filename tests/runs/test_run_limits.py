"""What a run may use in all: at a limit it stops, says so, and can be resumed. What was not begun has not failed."""

from pathlib import Path
from typing import Any

import pytest

from support.run_world import perform, questions, scripted, values
from whet.errors import UserError
from whet.gateway import Limits
from whet.runs.config import Config, ModelConfig, RunLimits
from whet.runs.options import RunOptions
from whet.runs.run import Event, run
from whet.runs.scheduler import STOPPED, Ended, Stopped
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.testing import Reply

RIGHT = {"": Reply(text="4")}


def stops(events: list[Event]) -> list[str]:
    return [event.limit for event in events if isinstance(event, Stopped)]


def told(run_folder: Path) -> Any:
    with Store.open_read(run_folder) as store:
        return store.get(STOPPED)


async def test_at_a_limit_the_run_stops_and_the_rest_stays_pending(tmp_path: Path) -> None:
    tasks, models = questions(tmp_path, *"abcde"), scripted(tmp_path, RIGHT)
    seen = await perform(tasks, models, limits=Limits(turns=2), concurrency=1)
    assert stops(seen) == ["turns: 2 of 2"]
    assert values(tmp_path / "run") == {"a": 1.0, "b": 1.0}
    assert told(tmp_path / "run") == "turns: 2 of 2"
    with Store.open_read(tmp_path / "run") as store:
        assert [row.task for row in store.pending()] == ["c", "d", "e"]
        assert sum(len(attempts) for _, attempts in store.attempts_by_rollout()) == 2

    again = await perform(tasks, models, limits=Limits(turns=2), concurrency=1, resume=True)
    assert stops(again) == ["turns: 2 of 2"], "what was spent before counts"
    await perform(tasks, models, limits=Limits(turns=9), resume=True)
    assert values(tmp_path / "run") == dict.fromkeys("abcde", 1.0)
    assert told(tmp_path / "run") is None


async def test_a_rollout_that_a_limit_cuts_short_is_missing(tmp_path: Path) -> None:
    tasks, models = questions(tmp_path, "a", "b"), scripted(tmp_path, RIGHT)
    seen = await perform(tasks, models, agents=("loop",), limits=Limits(turns=1), concurrency=2)
    ended = [event for event in seen if isinstance(event, Ended)]
    cut = [event for event in ended if event.result.score.cause is not None]
    assert [(event.result.score.cause, event.again) for event in cut] == [(Cause.INTERRUPTED, False)]
    assert len(ended) == 2
    assert stops(seen) == ["turns: 1 of 1"]
    with Store.open_read(tmp_path / "run") as store:
        assert [row.id for row in store.pending()] == [cut[0].row.id]


async def test_a_run_within_its_limits_says_nothing_of_them(tmp_path: Path) -> None:
    seen = await perform(questions(tmp_path, "a"), scripted(tmp_path, RIGHT), limits=Limits(turns=1, wall_sec=60))
    assert stops(seen) == []
    assert told(tmp_path / "run") is None


async def test_a_run_out_of_time_ends_its_agents(tmp_path: Path) -> None:
    tasks, models = questions(tmp_path, "a", "b"), scripted(tmp_path, RIGHT)
    agents = ("command:sh -c 'sleep 30'",)
    seen = await perform(tasks, models, agents=agents, limits=Limits(wall_sec=1), concurrency=1)
    assert [limit.startswith("wall time: 1") for limit in stops(seen)] == [True]
    (ended,) = (event for event in seen if isinstance(event, Ended))
    assert ended.result.score.cause is Cause.INTERRUPTED


async def test_limits_come_from_the_config_unless_the_request_says_otherwise(tmp_path: Path) -> None:
    config = Config(models=scripted(tmp_path, RIGHT), limits=RunLimits(turns=1))
    tasks = questions(tmp_path, *"abc")
    for name, limits, done in (("one", Limits(), 1), ("two", Limits(turns=2), 2)):
        request = RunOptions(
            tasks=tasks, out=tmp_path / name, agents=("chat",), models=("m",), concurrency=1, limits=limits
        )
        await run(request, config, lambda _: None, env={})
        assert len(values(tmp_path / name)) == done


async def test_a_limit_on_cost_needs_a_price(tmp_path: Path) -> None:
    models = {"m": ModelConfig(url="http://127.0.0.1:9", name="unheard-of")}
    with pytest.raises(UserError, match="model 'm': its price is not known, so a limit on cost cannot hold"):
        await perform(questions(tmp_path, "a"), models, limits=Limits(cost=5))
    assert not (tmp_path / "run").exists()


async def test_an_idle_agent_is_ended_when_the_defaults_say_so(tmp_path: Path) -> None:
    settings = {"models": scripted(tmp_path, RIGHT), "defaults": {"idle_sec": 0.3}}
    agents = ("command:sh -c 'sleep 30'",)
    request = RunOptions(tasks=questions(tmp_path, "a"), out=tmp_path / "run", agents=agents, models=("m",))
    seen: list[Event] = []
    await run(request, Config.model_validate(settings), seen.append, env={})
    (ended,) = (event for event in seen if isinstance(event, Ended))
    assert (ended.result.limit or "").startswith("idle time: 0.3")
    assert ended.result.score.value == 0.0
