"""A task that nothing judges: it runs, and its score is missing for that reason, never 0."""

from pathlib import Path

import pytest

from support.rollout_world import attempted, scripted_model, shell
from whet.agents.chat import ChatAgent
from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.rollout.observer import Phase
from whet.rollout.resources import RunResources
from whet.runs.options import Retry
from whet.runs.plan import Plan, check_tasks
from whet.runs.scheduler import Ended, Stopped, open_run, run_until_scored
from whet.runs.stats.summary import tally
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.sandbox import sandbox_named
from whet.scoring import Cause
from whet.tasks import Task, TaskLimits
from whet.testing import say
from whet.text.redact import Redactor

TASK = Task(id="t", instruction="Say something.", origin="here")


class Phases:
    def __init__(self) -> None:
        self.seen: list[Phase] = []

    def on_phase(self, phase: Phase) -> None:
        self.seen.append(phase)

    def on_exchange(self, exchange: Exchange) -> None:
        pass


async def test_it_runs_and_its_score_is_missing_for_that_reason() -> None:
    done = await attempted(TASK, ChatAgent(), say("Hello."))
    assert (done.result.score.value, done.result.score.cause) == (None, Cause.UNJUDGED)
    assert done.result.report is not None
    assert done.result.report.text == "Hello."
    assert done.result.judgements == {}


async def test_how_the_agent_ended_is_said_first() -> None:
    late = TASK.model_copy(update={"limits": TaskLimits(agent_sec=0.3)})
    done = await attempted(late, shell("sleep 30"))
    assert done.result.score.cause is Cause.UNJUDGED
    assert done.result.score.reason.startswith("the agent ran out of time after 0 s; the task has nothing that judges")


async def test_what_the_machinery_breaks_keeps_its_own_cause() -> None:
    done = await attempted(TASK, shell("exit 3"))
    assert done.result.score.cause is Cause.AGENT


async def test_it_is_done_at_once_counted_by_its_cause_and_not_run_again(tmp_path: Path) -> None:
    phases = Phases()
    async with scripted_model(say("Hello.")) as scripted, Gateway(Redactor([])) as gateway:
        model = Model(name="m", url=scripted.url, upstream_name="tiny", key=None)
        plan = Plan({"t": TASK}, {"chat": ChatAgent()}, {"m": model}, [None], 1)
        (row,) = open_run(tmp_path / "run", plan, resume=False, about={})
        resources = RunResources(sandbox_named("bubblewrap"), gateway, Redactor([]), {})
        ended: list[Ended | Stopped] = []
        async with StoreWriter(tmp_path / "run") as writer:
            await run_until_scored(row, plan.rollout(row), resources, writer, ended.append, observer=phases)
    assert [(one.result.score.cause, one.again) for one in ended if isinstance(one, Ended)] == [(Cause.UNJUDGED, False)]
    assert phases.seen == ["setup", "agent"]
    for retry in (Retry.MISSING, Retry.FAILED):
        assert open_run(tmp_path / "run", plan, resume=True, about={}, retry=retry) == []
    with Store.open_read(tmp_path / "run") as store:
        (arm,) = tally(store).values()
    assert (arm.measured, arm.missing, arm.mean()) == (0, {Cause.UNJUDGED: 1}, None)


def test_task_files_of_a_run_need_a_judge() -> None:
    with pytest.raises(UserError, match="nothing can judge this task; expected tests, 'verify', 'answer' or 'judge'"):
        check_tasks([TASK], sandbox_named("bubblewrap"), {})
