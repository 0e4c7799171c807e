"""Tasks, agents, judges and models that are Python objects, and runs in the caller's own event loop."""

import asyncio
import inspect
from pathlib import Path

import pytest

import whet
from support.run_world import questions, scripted
from whet import api
from whet.runs.config import Config
from whet.runs.options import RolloutOptions, RunOptions
from whet.testing import Reply

TASKS = [whet.Task(id=name, instruction="What is 2 + 2?", answer="4") for name in ("a", "b")]


async def answer(assignment: whet.Assignment) -> str:
    return "4" if assignment.task.id == "a" else "5"


class Answers:
    """An agent as an object."""

    name = "answers"
    in_box = False
    needs_model = False

    async def run(self, assignment: whet.Assignment) -> whet.AgentReport:
        stop = whet.StopReason.FINISHED
        return whet.AgentReport(stop=stop, exit_code=None, text=f"{assignment.task.id} 4", seconds=0.0)


class Half:
    async def judge(self, work: whet.Work) -> whet.Score:
        return whet.Score.of(0.5, f"{work.task.id} is half right")


def model(folder: Path) -> whet.Model:
    return scripted(folder, {"": Reply(text="4")})["m"]


def scores(run: whet.StoredRun) -> dict[tuple[str, str], float | None]:
    return {(one.agent, one.task): one.score.value if one.score else None for one in run.rollouts}


def test_tasks_agents_and_models_can_be_objects(tmp_path: Path) -> None:
    agents: list[api.AgentLike] = [answer, Answers(), "chat"]
    run = whet.run(TASKS, agent=agents, model=model(tmp_path), out=str(tmp_path / "run"), config=Config())
    assert scores(run) == {
        ("answer", "a"): 1.0,
        ("answer", "b"): 0.0,
        ("answers", "a"): 0.0,
        ("answers", "b"): 0.0,
        ("chat", "a"): 1.0,
        ("chat", "b"): 1.0,
    }
    again = whet.run(TASKS, agent=agents, model=model(tmp_path), out=tmp_path / "run", config=Config(), resume=True)
    assert scores(again) == scores(run)


def test_judges_can_be_objects_and_replace_those_of_the_tasks(tmp_path: Path) -> None:
    def failing(_: whet.Work) -> float:
        raise ValueError("no idea")

    run = whet.run(TASKS[:1], agent=answer, model=model(tmp_path), judges=[Half()], out=tmp_path / "run")
    (rollout,) = run.rollouts
    assert rollout.result is not None
    assert {name: one.value for name, one in rollout.result.judgements.items()} == {"half": 0.5}
    run = whet.run(TASKS[:1], agent=answer, model=model(tmp_path), judges=[failing], out=tmp_path / "failed")
    (rollout,) = run.rollouts
    assert rollout.score is not None
    assert rollout.score.cause is whet.Cause.JUDGE
    assert "no idea" in rollout.score.reason


def test_an_agent_that_raises_has_no_score(tmp_path: Path) -> None:
    async def broken(_: whet.Assignment) -> str:
        raise RuntimeError("out of order")

    run = whet.run(TASKS[:1], agent=broken, model=model(tmp_path), out=tmp_path / "run")
    (rollout,) = run.rollouts
    assert rollout.score is not None
    assert rollout.score.cause is whet.Cause.AGENT
    assert "out of order" in rollout.score.reason


async def test_runs_share_the_callers_loop_and_can_be_cancelled(tmp_path: Path) -> None:
    under_way = asyncio.Event()

    async def waits(_: whet.Assignment) -> str:
        under_way.set()
        await asyncio.Event().wait()
        return "never"

    runs = [whet.run_async(TASKS, agent=answer, model=model(tmp_path), out=tmp_path / name) for name in ("one", "two")]
    stuck = asyncio.create_task(whet.run_async(TASKS, agent=waits, model=model(tmp_path), out=tmp_path / "stuck"))
    first, second = await asyncio.gather(*runs)
    assert [one.verdict for one in whet.compare(first, str(second.folder))] == ["undecided"]
    await under_way.wait()
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert all(one.score is None or one.score.value is None for one in whet.load(tmp_path / "stuck").rollouts)


def test_options_are_an_object_or_keywords(tmp_path: Path) -> None:
    options = RunOptions(samples=2, out=tmp_path / "run", agents=("nop",))
    run = whet.run(questions(tmp_path, "a"), model=model(tmp_path), options=options, sandbox="local")
    assert len(run.rollouts) == 2
    named = set(RunOptions.model_fields) - {"tasks", "agents", "models", "skills"}
    assert api.RunFields.__annotations__.keys() == named


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"samples": 0}, "`samples` is 0; expected a number of at least 1"),
        ({"resume": True}, "`resume` needs `out`: the folder of the run to continue"),
        ({"sample": 2}, "unknown option 'sample'; did you mean 'samples'?"),
        ({"cache": "on"}, "`cache` is 'on'; expected one of: off, read, write, replay-only"),
    ],
)
def test_a_wrong_option_is_named_in_one_line(wrong: dict[str, object], line: str) -> None:
    with pytest.raises(whet.UserError) as raised:
        RunOptions(**wrong)
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_everything_that_is_named_is_there_and_documented() -> None:
    for name in whet.__all__:
        thing = getattr(whet, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name
    for options in (RunOptions, whet.SharpenOptions, whet.CertifyOptions, whet.TransferOptions, RolloutOptions):
        assert [name for name, field in options.model_fields.items() if not field.description] == []
