"""Judging a stored run again: no agent runs, what was said before is kept, and who needs the box is left alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.run_world import fails, outage, perform, read_results, scripted, values, write_rows
from whet.agents import AgentReport
from whet.agents.tools import LoggedUse
from whet.errors import UserError
from whet.rollout.result import Result, Spending
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RejudgeOptions
from whet.runs.plan import public
from whet.runs.rejudge import Judged, rejudge
from whet.runs.scheduler import Ended
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.tasks import read_tasks
from whet.testing import Fault, Reply
from whet.workspace import Change

RUBRIC = {"kind": "rubric", "rubric": "It is polite.", "votes": 1}


async def again(
    folder: Path, models: dict[str, ModelConfig] | None = None, env: dict[str, str] | None = None, **request: Any
) -> dict[str, Judged]:
    seen: list[Judged] = []
    await rejudge(
        RejudgeOptions(run=folder / "run", **request), Config(models=models or {}), seen.append, env=env or {}
    )
    return {judged.row.task: judged for judged in seen}


def results(folder: Path) -> dict[str, Result]:
    return {row.task: result for row, result in read_results(folder / "run")}


def logs(folder: Path) -> dict[str, bytes]:
    with Store.open_read(folder / "run") as store:
        return {name: data for row in store.results() for name, data in store.logs(row.attempt.id).items()}


async def test_a_judge_that_was_too_strict_is_mended(tmp_path: Path) -> None:
    row = {"id": "q", "instruction": "q: 2 + 2?", "answer": "4"}
    tasks = write_rows(tmp_path, row)
    model = scripted(tmp_path, {"q:": Reply(text="It is 4.")})
    await perform(tasks, model)
    assert values(tmp_path / "run") == {"q": 0}
    write_rows(tmp_path, {**row, "judge": "number"})
    told = await again(tmp_path)
    assert (told["q"].before.value, told["q"].after.value, told["q"].kept) == (0, 1, ())
    assert values(tmp_path / "run") == {"q": 1}
    assert results(tmp_path)["q"].judgements.keys() == {"number"}
    earlier = Result.model_validate_json(logs(tmp_path)["result 1"])
    assert earlier.score.value == 0
    assert earlier.judgements.keys() == {"exact"}
    write_rows(tmp_path, {**row, "judge": {"kind": "contains", "text": ["4", "four"]}})
    await again(tmp_path)
    assert values(tmp_path / "run") == {"q": 0.5}
    assert {"result 1", "result 2"} <= logs(tmp_path).keys()


async def test_judges_that_need_the_box_keep_their_scores(tmp_path: Path) -> None:
    file_check = {"kind": "rules", "checks": [{"op": "file_exists", "arg": "a"}]}
    rows: list[dict[str, Any]] = [
        {"id": "old", "instruction": "old", "verify": ["true"], "answer": "4"},
        {"id": "new", "instruction": "new", "answer": "4"},
    ]
    tasks = write_rows(tmp_path, *rows)
    await perform(tasks, scripted(tmp_path, {"old": Reply(text="4"), "new": Reply(text="4")}))
    write_rows(tmp_path, {**rows[0], "judge": "number"}, {**rows[1], "judge": file_check})
    told = await again(tmp_path)
    assert (told["old"].kept, told["old"].after.value) == (("verify",), 1)
    assert (told["new"].kept, told["new"].rerun, told["new"].after.cause) == ((), True, Cause.JUDGE)
    assert "no longer exists" in told["new"].after.reason


async def test_a_function_that_needs_no_files_judges_again_in_an_empty_box(tmp_path: Path) -> None:
    row = {"id": "q", "instruction": "q: 2 + 2?", "answer": "4"}
    await perform(write_rows(tmp_path, row), scripted(tmp_path, {"q:": Reply(text="It is 4.")}))
    (tmp_path / "mine.py").write_text(
        "import os\ndef of(work): return 0.25 * (work['answer'] == 'It is 4.' and os.path.isdir('/logs/verifier'))"
    )
    write_rows(tmp_path, {**row, "judge": {"kind": "python", "function": "mine:of"}})
    told = await again(tmp_path)
    assert (told["q"].after.value, told["q"].kept) == (0.25, ())
    write_rows(tmp_path, {**row, "judge": {"kind": "python", "function": "mine:of", "workspace": True}})
    assert (await again(tmp_path))["q"].rerun


async def test_a_file_names_other_judges_which_ask_their_own_model(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "q", "instruction": "q: greet", "answer": "4"})
    await perform(tasks, scripted(tmp_path, {"q:": Reply(text="Good day")}))
    file = tmp_path / "judges.json"
    file.write_text(json.dumps({"judge": [RUBRIC]}))
    referee = scripted(tmp_path, {"": Reply(text='{"reason": "kind", "score": 0.9}')}, name="referee")
    with pytest.raises(UserError, match="names none; name one with `judge_model`"):
        await again(tmp_path, referee, judge=file)
    told = await again(tmp_path, referee, judge=file, judge_model="referee")
    assert told["q"].after.value == 0.9
    (asked,) = [json.loads(data) for name, data in logs(tmp_path).items() if name.startswith("judge call ")]
    assert "Good day" in asked["request"]
    for times in (1, 2):
        judging = results(tmp_path)["q"].judging
        assert judging is not None
        assert judging.calls == times
        await again(tmp_path, referee, judge=file, judge_model="referee")
    assert sum(name.startswith("judge call ") for name in logs(tmp_path)) == 3


async def test_samples_of_a_task_are_ranked_together(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "q", "instruction": "q: greet", "answer": "4"})
    await perform(tasks, scripted(tmp_path, {"q:": Reply(text="Good day")}), samples=3)
    file = tmp_path / "judges.toml"
    file.write_text(
        '[[rank]]\nrubric = "The best one."\nvotes = 1\n[[judge]]\nkind = "outcome"\nweight = 0\nname = "how"\n'
    )
    with pytest.raises(UserError, match="weight 0 only"):
        await again(tmp_path, judge=file)
    file.write_text('[[rank]]\nrubric = "The best one."\nvotes = 1\nweight = 3\n')
    referee = scripted(tmp_path, {"": Reply(text='{"reason": "-", "ranking": [2, 3, 1]}')}, name="referee")
    await again(tmp_path, referee, judge=file, judge_model="referee")
    found = [result for _, result in read_results(tmp_path / "run")]
    assert [result.judgements["rank"].value for result in found] == [0, 1, 0.5]
    assert [result.score.value for result in found] == [0, 0.75, 0.375], "beside an answer that is wrong"


def record(folder: Path, tasks: Path, *attempts: Result) -> None:
    """A run of one rollout with these attempts, as it would be stored."""
    (task,) = read_tasks(tasks)
    with Store.create(folder / "run") as store:
        store.set("tasks", str(tasks))
        store.add_tasks([TaskRow(task.id, task.digest, task.origin, public(task))])
        store.add_rollouts([RolloutRow("r", 0, task.id, "loop", "m", None, 0)])
        for result in attempts:
            value, cause, final = result.score.value, result.score.cause, result is attempts[-1]
            body = result.model_dump_json().encode()
            store.finish_attempt(store.start_attempt("r", 0.0), body, value=value, cause=cause, final=final, ended=1.0)


async def test_judges_are_told_all_that_is_on_record_of_the_last_attempt(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\ndef f(work): return {'score': 1, 'reason': os.environ['TOLD']}\n")
    judges = [
        {"kind": "json", "expected": {"n": 4}},
        {"kind": "diff", "changed": "a.py"},
        {"kind": "outcome"},
        {"kind": "python", "function": "mine:f"},
        {"kind": "rules", "name": "called", "checks": [{"op": "tool_called", "arg": "lookup"}]},
        {"kind": "rules", "name": "ran", "weight": 0, "checks": [{"op": "command_ran", "arg": "make"}]},
    ]
    row = {"id": "q", "instruction": "q", "judge": judges, "env": {"TOLD": "${SOME_API_KEY}"}}
    failed = Result(score=Score.missing(Cause.MODEL, "502"))
    last = Result(
        score=Score.of(0),
        report=AgentReport(stop="timeout", exit_code=None, text="see the file", seconds=1, answer={"n": 4}),
        changes=(Change(path="a.py", kind="added"),),
        tool_uses=(LoggedUse(name="lookup", argv=(), stdin="", started=0, exit_code=0),),
        spending=Spending(captured=False),
    )
    record(tmp_path, write_rows(tmp_path, row), failed, last)
    await again(tmp_path, env={"SOME_API_KEY": "sk-0123456789abcdef"})
    said = results(tmp_path)["q"].judgements
    values = {name: score.value for name, score in said.items()}
    assert values == {"json": 1, "diff": 1, "outcome": pytest.approx(2 / 3), "python": 1, "called": 1, "ran": None}
    assert "were not captured" in said["ran"].reason
    assert "sk-0123456789abcdef" not in said["python"].reason


async def test_a_rollout_is_flagged_as_long_as_its_own_model_judges_it(tmp_path: Path) -> None:
    report = AgentReport(stop="finished", exit_code=None, text="Hi", seconds=1)
    tasks = write_rows(tmp_path, {"id": "q", "instruction": "q", "judge": RUBRIC})
    record(tmp_path, tasks, Result(score=Score.of(0), report=report, flags=("canary",)))
    for name, flags in (("m", ("canary", "self-judged")), ("referee", ("canary",))):
        judge = scripted(tmp_path, {"": Reply(text='{"reason": "-", "score": 1}')}, name=name)
        await again(tmp_path, judge, judge_model=name)
        assert results(tmp_path)["q"].flags == flags


async def test_what_never_came_to_work_is_not_judged(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "q", "instruction": "q: 2 + 2?", "answer": "4"})
    await perform(tasks, scripted(tmp_path, {"q:": fails(Fault.SERVER_ERROR), **outage()}))
    told = await again(tmp_path)
    assert "there is no work to judge" in told["q"].skipped
    assert values(tmp_path / "run") == {"q": None}


async def test_a_judge_that_failed_before_can_score_now(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "q", "instruction": "q: greet", "judge": RUBRIC})
    models = scripted(tmp_path, {"q:": Reply(text="Hi")})
    replies = {"Reply with the word OK": Reply(text="OK"), "": Reply(fault=Fault.SERVER_ERROR)}
    broken = scripted(tmp_path, replies, name="referee")
    await perform(tasks, {**models, **broken}, models=("m",), judge_model="referee")
    assert values(tmp_path / "run") == {"q": None}
    with Store.open_read(tmp_path / "run") as store:
        assert len(store.attempts_by_rollout()[0][1]) == 1, "the work is not done again for a judge's sake"
    mended = scripted(tmp_path, {"": Reply(text='{"reason": "-", "score": 1}')}, name="referee")
    await again(tmp_path, mended, judge_model="referee")
    with Store.open_read(tmp_path / "run") as store:
        assert store.pending() == []
    assert values(tmp_path / "run") == {"q": 1}


async def test_another_task_under_the_same_name_is_refused(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "q", "instruction": "q: 2 + 2?", "answer": "4"})
    await perform(tasks, scripted(tmp_path, {"q:": Reply(text="4")}))
    write_rows(tmp_path, {"id": "q", "instruction": "q: 2 + 3?", "answer": "5"})
    with pytest.raises(UserError, match="'instruction' of task 'q' is not what it was"):
        await again(tmp_path)
    write_rows(tmp_path, {"id": "p", "instruction": "q: 2 + 2?", "answer": "4"})
    with pytest.raises(UserError, match="has no task 'q'"):
        await again(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no judge"),
        ("[[judge]]\nkind = 'exat'", "did you mean 'exact'"),
        ("[[judges]]\n", "did you mean 'judge'"),
        ("x", "expected TOML"),
        ("[[rank]]\nrubrik = 'x'", "did you mean 'rubric'"),
    ],
)
async def test_a_wrong_file_of_judges_is_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "judges.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=said):
        await again(tmp_path, judge=file)


def write_tested(folder: Path, name: str, test: str) -> Path:
    """A task folder with these tests; the folder that it is in."""
    task = folder / "tasks" / name
    for file, text in {"task.toml": "", "instruction.md": f"{name}: greet.", "tests/test.sh": test}.items():
        (task / file).parent.mkdir(parents=True, exist_ok=True)
        (task / file).write_text(text)
    return folder / "tasks"


async def test_after_tests_are_mended_only_what_they_judged_is_run_again(tmp_path: Path) -> None:
    good, broken = "echo 1 > /logs/verifier/reward.txt\n", "echo many > /logs/verifier/reward.txt\n"
    tasks, models = write_tested(tmp_path, "a", good), scripted(tmp_path, {"": Reply(text="Hi")})
    write_tested(tmp_path, "b", broken)
    run = tmp_path / "run"
    arms: dict[str, Any] = {"agents": ("command:true",), "out": run}
    await perform(tasks, models, **arms)
    assert values(run) == {"a": 1, "b": None}
    write_tested(tmp_path, "b", good)
    with pytest.raises(UserError, match=r"task 'b' is judged otherwise .* run whet rejudge"):
        await perform(tasks, models, resume=True, **arms)
    seen = await again(tmp_path)
    assert {name: (one.after.value, one.kept) for name, one in seen.items()} == {"a": (1, ("reward",)), "b": (None, ())}
    ended = [event for event in await perform(tasks, models, resume=True, **arms) if isinstance(event, Ended)]
    assert [(event.row.task, event.result.score.value) for event in ended] == [("b", 1)]
    with Store.open_read(run) as store:
        assert (len(store.rollouts()), store.pending()) == (2, [])
    write_tested(tmp_path, "a", "echo 0 > /logs/verifier/reward.txt\n")
    (tmp_path / "tasks" / "a" / "environment").mkdir()
    (tmp_path / "tasks" / "a" / "environment" / "hint.txt").write_text("new")
    with pytest.raises(UserError, match="task 'a' has changed"):
        await perform(tasks, models, resume=True, **arms)


async def test_a_new_answer_is_applied_without_running_anything_and_the_run_goes_on_with_it(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "q", "instruction": "q: 2 + 2?", "answer": "5"})
    models = scripted(tmp_path, {"": Reply(text="4")})
    await perform(tasks, models)
    write_rows(tmp_path, {"id": "q", "instruction": "q: 2 + 2?", "answer": "4"})
    await again(tmp_path)
    assert values(tmp_path / "run") == {"q": 1}
    assert not any(isinstance(event, Ended) for event in await perform(tasks, models, resume=True))
    added = await perform(tasks, models, resume=True, samples=2)
    assert sum(isinstance(event, Ended) for event in added) == 1
