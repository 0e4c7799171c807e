"""whet from Python: runs, stored runs, data frames, notebooks."""

import asyncio
import math
import signal
import threading
from pathlib import Path

import pytest

import whet
from support.run_world import fails, outage, questions, scripted, write_rows
from whet.runs.config import Config
from whet.runs.scheduler import Ended
from whet.testing import Fault, Reply, Scene, Script, ScriptedModel, call, say


def quiz(folder: Path) -> tuple[Path, Config]:
    """Two tasks: one is solved, the other has no score because its model fails."""
    models = scripted(folder, {"bad:": fails(Fault.SERVER_ERROR), **outage(), "": Reply(text="4")})
    return questions(folder, "good", "bad"), Config(models=models)


def test_a_run_is_given_back_as_plain_objects(tmp_path: Path) -> None:
    tasks, config = quiz(tmp_path)
    events: list[object] = []
    run = whet.run(tasks, agent="chat", model="m", samples=2, out=tmp_path / "run", config=config, watch=events.append)
    assert len({event.row.id for event in events if isinstance(event, Ended)}) == 4
    good = [rollout for rollout in run.rollouts if rollout.task == "good"]
    assert [rollout.score.value for rollout in good if rollout.score] == [1, 1]
    assert [rollout.sample for rollout in good] == [0, 1]
    assert b"2 + 2?" in good[0].exchanges()[0].request
    trace = good[0].trace()
    (turn,) = trace.turns
    assert [message.role for message in good[0].messages()][-2:] == ["user", "assistant"]
    assert [node.message.role for node in trace.conversation(turn)][-2:] == ["user", "assistant"]
    assert run[good[1].id] == good[1]
    (arm,) = run.arms.values()
    assert (arm.measured, arm.missing.total()) == (2, 2)


def test_missing_scores_are_nan_in_data_frames_and_null_in_tables(tmp_path: Path) -> None:
    tasks, config = quiz(tmp_path)
    run = whet.run(tasks, agent="chat", model="m", out=tmp_path / "run", config=config)
    frame = run.frame().set_index("task")
    assert frame.score["good"] == frame["judge exact"]["good"] == 1
    assert math.isnan(frame.score["bad"])
    assert frame.cause["bad"] == "model"
    tables = run.tables()
    scores = dict(zip(tables["rollouts"]["task"].to_pylist(), tables["rollouts"]["score"].to_pylist(), strict=True))
    assert scores == {"good": 1.0, "bad": None}
    assert tables["exchanges"]["reply"].to_pylist()[0] == "4"


def test_a_run_is_shown_as_a_table_in_terminals_and_notebooks(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "a", "instruction": "?", "answer": "4"})
    config = Config(models=scripted(tmp_path, {"": Reply(text="4")}))
    run = whet.run(tasks, agent=["command:echo <4>", "chat"], model="m", out=tmp_path / "run", config=config)
    heading, names, *lines = repr(run).splitlines()
    assert heading == f"{tmp_path / 'run'}: 2 rollouts"
    assert names.split()[:3] == ["agent", "model", "skill"]
    assert [line.split("  ")[0] for line in lines] == ["command:echo <4>", "chat"]
    assert "100.0% [2.5, 100.0]" in lines[1]
    page = run._repr_html_()
    assert "<td>command:echo &lt;4&gt;</td>" in page
    assert page.count("<tr>") == 3


async def test_it_runs_where_an_event_loop_is_running(tmp_path: Path) -> None:
    tasks, config = quiz(tmp_path)
    run = whet.run(tasks, agent="chat", model="m", out=tmp_path / "run", config=config)
    assert len(run.rollouts) == 2


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    tasks = questions(tmp_path, *"abcdef")
    config = Config(models=scripted(tmp_path, {"": Reply(text="4")}))
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(event: object) -> None:
        if isinstance(event, Ended):
            signal.pthread_kill(main, signal.SIGINT)

    def start(**options: object) -> whet.StoredRun:
        return whet.run(tasks, agent="chat", model="m", out=tmp_path / "run", concurrency=1, config=config, **options)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        start(watch=interrupt)
    before = {rollout.id for rollout in whet.load(tmp_path / "run").rollouts if rollout.result}
    assert 1 <= len(before) < 6
    after = start(resume=True).rollouts
    assert all(rollout.score and rollout.score.value == 1 for rollout in after)
    assert {rollout.id for rollout in after if rollout.attempts == 1} >= before


def test_what_is_not_given_is_as_whet_toml_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions(tmp_path, "a")
    (tmp_path / "script.toml").write_text('[[scene]]\n[[scene.reply]]\ntext = "4"\n')
    settings = '[defaults]\nagent = "chat"\nmodel = "m"\nsamples = 3\n[models.m]\nscript = "script.toml"\n'
    (tmp_path / "whet.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    run = whet.run("tasks.jsonl")
    assert [rollout.agent for rollout in run.rollouts] == ["chat"] * 3
    assert run.folder.parent == Path("runs")


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda folder: whet.load(folder / "none"), r"none: .*"),
        (lambda folder: whet.run(folder / "none.jsonl", agent="chat", model="m"), r".*none\.jsonl.*"),
        (lambda folder: whet.run(folder, model="m"), r"`agent` is missing; .*"),
    ],
)
def test_mistakes_are_told_in_one_line(
    mistake: object, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(whet.UserError, match=says) as told:
        mistake(tmp_path)  # type: ignore[operator]
    assert "\n" not in str(told.value)


WHOLE = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""The settings with which a captured model gives training rows."""


def test_one_call_runs_one_rollout_with_a_model_and_a_key_that_no_file_names(tmp_path: Path) -> None:
    key = "sk-inline-0123456789abcdef"
    script = Script(scenes=(Scene(replies=(call("bash", command="cat seed > answer"), say("done"))),))

    async def rehearse() -> whet.StoredRollout:
        async with ScriptedModel(script, key=key) as model:
            endpoint = whet.Model(url=model.url, name="tiny", key=key)
            return await asyncio.to_thread(
                whet.run_task,
                "Copy the seed to answer.",
                agent="loop",
                model=endpoint,
                setup=["echo 4 > seed"],
                verify=["grep -qx 4 answer", "false"],
                out=tmp_path / "run",
            )

    done = asyncio.run(rehearse())
    assert done.score is not None
    assert done.score.value == 0.5
    assert len(done.exchanges()) == 2
    assert all(key.encode() not in file.read_bytes() for file in (tmp_path / "run").iterdir())
    with pytest.raises(whet.UserError, match="expected `setup`, `verify` and `answer` in it"):
        whet.run_task(whet.Task(id="t", instruction="?"), agent="chat", answer="4")


async def test_groups_are_given_as_they_end(tmp_path: Path) -> None:
    tasks = questions(tmp_path, "a", "b")
    model = scripted(tmp_path, {"": Reply(text="4")}, capture="vllm", set=WHOLE)["m"]
    (tmp_path / "m.toml").write_text("tokens = true\n" + (tmp_path / "m.toml").read_text())
    seen = []
    async for group in whet.groups(
        tasks, agent="chat", model=model, samples=2, concurrency=1, out=tmp_path / "run", weight_version="step-7"
    ):
        versions = {span["weight_version"] for row in group.rows() for span in row["spans"] if span["trained"]}
        seen.append(([rollout.task for rollout in group.rollouts], versions, len(whet.load(tmp_path / "run").frame())))
        finished = sum(rollout.score is not None for rollout in whet.load(tmp_path / "run").rollouts)
        assert finished >= 2 * len(seen)
    assert [tasks for tasks, _, _ in seen] == [["a", "a"], ["b", "b"]]
    assert all(versions == {"step-7"} for _, versions, _ in seen)
    with pytest.raises(whet.UserError, match="`weight_version` is 'step-8'"):
        await whet.run_async(
            tasks, agent="chat", model=model, samples=2, out=tmp_path / "run", resume=True, weight_version="step-8"
        )


def test_a_rollout_is_forked_and_a_run_judged_again_from_python(tmp_path: Path) -> None:
    tasks = questions(tmp_path, "a")
    config = Config(models=scripted(tmp_path, {"": Reply(text="4")}))
    run = whet.run(tasks, agent="chat", model="m", out=tmp_path / "run", config=config)
    options = whet.ForkOptions(run=run.folder, rollout="", at=1, out=tmp_path / "fork")
    forked = whet.fork(run, "a", at=2, options=options, config=config)
    (rollout,) = forked.rollouts
    assert rollout.result is not None
    assert rollout.result.replay is not None
    assert (rollout.result.replay.given, rollout.result.replay.live_from) == (1, None)
    judges = tmp_path / "judges.toml"
    judges.write_text('[[judge]]\nkind = "contains"\ntext = "five"\n')
    again = whet.rejudge(run, judge=judges, config=config)
    assert [one.score.value for one in again.rollouts if one.score] == [0.0]
    objects = whet.run(
        [whet.Task(id="t", instruction="2 + 2?", answer="4")],
        agent="chat",
        model="m",
        config=config,
        out=tmp_path / "objects",
    )
    changed = whet.Task(id="t", instruction="2 + 2?", answer="4", judge=({"kind": "contains", "text": "5"},))
    again = whet.rejudge(objects, tasks=[changed], config=config)
    assert [one.score.value for one in again.rollouts if one.score] == [0.0]
