"""A run whose agent or model cannot work at all ends early, with one line, and can be resumed."""

import json

from support.whet_program import Project
from whet.runs.store.store import Store

MODEL = "[models.nowhere]\nurl = 'http://127.0.0.1:9'\nattempts = 1\n"


def rows(project: Project, count: int) -> str:
    tasks = [{"id": f"t{n}", "instruction": "Do it.", "verify": ["true"]} for n in range(count)]
    return project.rows("tasks.jsonl", *tasks)


def test_a_model_that_is_not_there_ends_the_run_after_three_rollouts(project: Project) -> None:
    project.write("whet.toml", MODEL)
    words = ["run", rows(project, 8), "--agent", "loop", "--model", "nowhere", "--concurrency", "1", "--out", "run"]
    done = project.whet(*words)
    assert done.returncode == 2
    assert done.stderr == (
        "whet: agent 'loop' on model 'nowhere': 3 rollouts failed and none was scored; "
        "the last: no connection to http://127.0.0.1:9/v1/chat/completions; "
        "nothing more was run\n"
    )
    with Store.open_read(project.path / "run") as store:
        assert [len(attempts) for _, attempts in store.attempts_by_rollout()] == [3, 3, 3, 0, 0, 0, 0, 0]
        assert len(store.pending()) == 8


def test_an_agent_that_does_not_start_ends_the_run(project: Project) -> None:
    words = f"run {rows(project, 8)} --agent command:/no/such --model scripted:s.toml --concurrency 2 --out run"
    project.write("s.toml", "[[scene]]\n[[scene.reply]]\ntext = 'Hello.'\n")
    done = project.whet(*words.split())
    assert done.returncode == 2
    assert (
        "3 rollouts failed and none was scored; the last: the agent ended before any model call was seen" in done.stderr
    )


def test_failures_after_a_score_do_not_end_the_run(project: Project) -> None:
    fails = "fault = 'refuse'\n"
    scenes = [
        "[[scene]]\nwhen = { user = 'good' }\n[[scene.reply]]\ntext = 'Yes.'\n",
        f"[[scene]]\n[[scene.reply]]\n{fails}",
    ]
    project.write("s.toml", "".join(scenes))
    project.write("whet.toml", "[models.flaky]\nscript = 's.toml'\nattempts = 1\n")
    tasks = [{"id": f"t{n}", "instruction": "good" if n == 0 else "bad", "answer": "Yes"} for n in range(5)]
    name = project.rows("tasks.jsonl", *tasks)
    done = project.whet(
        "run", name, "--agent", "chat", "--model", "flaky", "--concurrency", "1", "--out", "run", "--json"
    )
    assert done.returncode == 0
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(event.get("cause") == "model" and not event.get("again") for event in ended) == 4


def test_a_run_in_which_nothing_was_scored_fails(project: Project) -> None:
    project.write("s.toml", "[[scene]]\n[[scene.reply]]\nfault = '500'\n")
    project.write("whet.toml", "[models.down]\nscript = 's.toml'\nattempts = 1\n")
    task = {"id": "a", "instruction": "Do it.", "answer": "4"}
    done = project.whet("run", project.rows("t.jsonl", task), "--agent", "chat", "--model", "down", "--out", "run")
    assert (done.returncode, done.stderr) == (2, "whet: nothing was scored; missing: model 1\n")
    assert "status 500 from http://127.0.0.1:" in done.stdout
    assert "Scripted fault 500" in done.stdout


def test_a_mean_below_fail_under_has_an_exit_code_of_its_own(project: Project) -> None:
    project.write("s.toml", "[[scene]]\n[[scene.reply]]\ntext = '4'\n")
    tasks = [{"id": name, "instruction": "Do it.", "verify": [name]} for name in ("true", "false")]
    name = project.rows("t.jsonl", *tasks)
    words = ["run", name, "--agent", "command:true", "--model", "scripted:s.toml", "--out", "run"]
    below = project.whet(*words, "--fail-under", "0.6")
    assert below.returncode == 1
    assert below.stderr == (
        "whet: --fail-under 0.6 is not reached: command:true, scripted:s.toml, skill -: mean 0.500\n"
    )
    assert project.whet(*words, "--resume", "--fail-under", "0.5").returncode == 0
