"""`whet tasks check`, `whet scripted` and `whet clean`."""

import json
import signal
import socket
import urllib.error
import urllib.request

import pytest

from support.waiting import wait_until
from support.whet_program import EXAMPLES, Project, events, until_begun

TEST = "if [ -f done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


def task(
    project: Project, name: str, *, solution: str | None = "touch done\n", test: str = TEST, toml: str = ""
) -> None:
    project.write(f"tasks/{name}/task.toml", toml)
    project.write(f"tasks/{name}/instruction.md", "Touch done.\n")
    project.write(f"tasks/{name}/tests/test.sh", test)
    if solution is not None:
        project.write(f"tasks/{name}/solution/solve.sh", solution)


def test_tasks_are_proved_by_their_solution_and_by_doing_nothing(project: Project) -> None:
    task(project, "good")
    task(project, "unproved", solution=None)
    task(project, "elsewhere", toml="[environment]\ndocker_image = 'debian'\n")
    done = project.whet("tasks", "check", "tasks")
    assert (done.returncode, done.stderr) == (0, "")
    elsewhere, *rest = done.stdout.splitlines()
    assert elsewhere.startswith("elsewhere  elsewhere    tasks/elsewhere: needs image 'debian' from task.toml ")
    assert elsewhere.endswith("sandbox 'bubblewrap' has no images, a container has")
    assert rest == ["proved     good       solution 1, nothing 0", "read       unproved     ships no solution"]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"solution": "touch dnoe\n"}, "the solution scores 0, expected 1: the tests gave 0"),
        ({"test": "echo 1 > /logs/verifier/reward.txt\n"}, "doing nothing scores 1"),
        ({"test": "true\n"}, "the solution could not be scored: reward: the tests wrote no reward.txt or reward.json"),
    ],
)
def test_a_broken_task_is_found_out(project: Project, broken: dict[str, str], reason: str) -> None:
    task(project, "a-broken", **broken)
    task(project, "good")
    done = project.whet("tasks", "check", "tasks", "--json")
    assert done.returncode == 1
    first, second = events(done.stdout)
    assert (first["verdict"], second["verdict"]) == ("broken", "proved")
    assert reason in first["reason"]
    assert (second["solution"], second["nothing"], second["warnings"]) == (1.0, 0.0, [])
    assert "broken     a-broken  solution " in project.whet("tasks", "check", "tasks").stdout


def test_a_check_whose_reader_has_gone_ends_quietly(project: Project) -> None:
    task(project, "one")
    task(project, "two")
    with project.start("tasks", "check", "tasks") as whet:
        assert whet.stdout is not None
        assert whet.stderr is not None
        assert whet.stdout.readline().startswith("proved")
        whet.stdout.close()
        assert whet.stderr.read() == ""
    assert whet.returncode != 0


def test_warnings_of_a_task_are_shown(project: Project) -> None:
    task(project, "old", solution=None, toml='schema_version = "9.9"\n')
    assert "\n           warning: tasks/old/task.toml: key 'schema_version' is '9.9'" in (
        project.whet("tasks", "check", "tasks").stdout
    )


def test_a_scripted_model_is_served_until_it_is_stopped(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    with project.start("scripted", str(EXAMPLES / "scripted.toml"), "--port", str(port), "--key", "sk-test") as whet:
        wait_until(lambda: answers(port) or whet.poll() is not None)
        said = {"role": "user", "content": "hexadecimal number 2F in decimal?"}
        body = json.dumps({"model": "any", "messages": [said]}).encode()
        headers = {"Authorization": "Bearer sk-test", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as reply:
            assert json.load(reply)["choices"][0]["message"]["role"] == "assistant"
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(urllib.request.Request(url, body), timeout=10)
        refused.value.close()
        whet.send_signal(signal.SIGTERM)
        out, err = whet.communicate(timeout=30)
    assert (whet.returncode, err) == (130, "")
    assert out == f"{EXAMPLES / 'scripted.toml'} answers at http://127.0.0.1:{port}/v1 (Ctrl-C ends it)\n"


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_clean_removes_what_a_killed_run_left_and_nothing_else(project: Project) -> None:
    assert project.whet("clean").stdout == "0 stale boxes removed\n"
    with project.start(*project.writes_42(1, delay=30), "--out", "out") as whet:
        until_begun(whet, project.path / "out")
        assert project.whet("clean").stdout == "0 stale boxes removed\n", "a box in use stays"
        whet.kill()
        whet.communicate()
    (box,) = project.boxes()
    lines = project.whet("clean").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(box)
    assert project.boxes() == []


def test_tasks_check_reports_every_task_whatever_is_wrong_with_others(project: Project) -> None:
    task(project, "good")
    task(project, "wrong", solution="echo I try\n")
    project.write("tasks/bad/task.toml", "[[[")
    project.write("tasks/bad/instruction.md", "Do it.")
    project.rows("tasks/rows.jsonl", {"id": "row", "instruction": "?", "answer": "4"}, {"id": "none"})
    done = project.whet("tasks", "check", "tasks", "--json")
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["verdict"] for line in lines if line["task"] is None] == ["unreadable"] * 2
    found = {line["task"]: line["verdict"] for line in lines if line["task"]}
    assert found == {"good": "proved", "wrong": "broken", "row": "read"}
    chosen = project.whet("tasks", "check", "tasks/wrong", "tasks/good", "--task", "w*")
    assert "solve.sh:\n             I try" in chosen.stdout
    assert "good" not in chosen.stdout


def test_oracle_needs_no_model(project: Project) -> None:
    task(project, "good")
    done = project.whet("run", "tasks/good", "--agent", "oracle", "--out", "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert " 1.00 " in done.stdout


@pytest.mark.parametrize(("typed", "expected"), [("whet ru", "run runs"), ("whet run --mod", "--model")])
def test_the_shell_completes_verbs_and_flags(project: Project, typed: str, expected: str) -> None:
    env = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_WHET_COMPLETE": "complete_bash"}
    assert Project(project.path, project.tmp, env).whet().stdout.split() == expected.split()
