"""A run that is killed or stopped at any moment goes on where it was, and ends as if nothing had happened."""

import json
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from support.waiting import wait_until
from support.whet_program import EXAMPLES, Project, Record, events, new_project, records, slow_examples, until_begun
from whet.runs.store.store import Store
from whet.scoring import Cause

TASKS = 7


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """What the examples come to when nobody disturbs the run."""
    folder = tmp_path_factory.mktemp("unbroken")
    with new_project(folder) as project:
        done = project.whet("run", str(EXAMPLES / "tasks"), *loop(project, 0), "--out", "out")
    assert done.returncode == 0, done.stderr
    found = records(folder / "out")
    assert len(found) == TASKS
    return found


def loop(project: Project, delay: float) -> list[str]:
    """Arguments for the loop agent and the script of the examples, with a pause before every reply."""
    project.write("script.toml", slow_examples(delay))
    return ["--agent", "loop", "--model", "scripted:script.toml"]


def kill(whet: subprocess.Popen[str], run: Path, done: int) -> None:
    """Kill whet without a word when so many rollouts are done and another is under way."""
    until_begun(whet, run, done)
    whet.kill()
    whet.communicate()
    assert whet.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("done", "concurrency"), [(0, 4), (3, 2), (6, 1)])
def test_a_run_killed_at_any_moment_ends_as_an_unbroken_one(
    project: Project, unbroken: dict[str, Record], done: int, concurrency: int
) -> None:
    run = project.path / "out"
    options = ["--out", "out", "--concurrency", str(concurrency)]
    command = ["run", str(EXAMPLES / "tasks"), *loop(project, 0.1), *options]
    with project.start(*command) as whet:
        kill(whet, run, done)
    wait_until(lambda: not project.processes())

    with Store.open_read(run) as store:
        finished = {row.rollout.id for row in store.results()}
        broken_off = {
            attempt.id: store.exchanges(attempt.id)
            for _, attempts in store.attempts_by_rollout()
            for attempt in attempts
            if attempt.ended is None
        }
    assert done <= len(finished) < TASKS
    assert any(broken_off.values())

    loop(project, 0)
    resumed = project.whet(*command, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    started, *ended = events(resumed.stdout)
    assert (started["planned"], started["pending"]) == (TASKS, TASKS - len(finished))
    assert finished.isdisjoint(event["rollout"] for event in ended)

    assert records(run) == unbroken
    with Store.open_read(run) as store:
        for rollout, attempts in store.attempts_by_rollout():
            *earlier, last = attempts
            assert last.final
            assert rollout.id not in finished or not earlier
            for attempt in earlier:
                assert attempt.cause is Cause.INTERRUPTED
                kept = store.exchanges(attempt.id)
                assert kept == broken_off.pop(attempt.id)
                made = [(exchange.request, exchange.response) for exchange in kept]
                assert made == list(unbroken[rollout.id].calls[: len(made)])
    assert not broken_off

    left = project.boxes()
    cleaned = project.whet("clean").stdout
    assert cleaned.count("removed /") == len(left)
    assert project.boxes() == []


def test_a_run_killed_again_and_again_is_finished_in_the_end(project: Project) -> None:
    run = project.path / "out"
    command = [*project.writes_42(5, delay=0.3), "--out", "out", "--concurrency", "2"]
    for done, more in ((1, []), (3, ["--resume"])):
        with project.start(*command, *more) as whet:
            kill(whet, run, done)
    assert project.whet(*command, "--resume").returncode == 0
    with Store.open_read(run) as store:
        assert [row.attempt.value for row in store.results()] == [1.0] * 5
        causes = [attempt.cause for _, attempts in store.attempts_by_rollout() for attempt in attempts[:-1]]
    assert set(causes) == {Cause.INTERRUPTED}
    project.whet("clean")


def test_resuming_a_finished_run_does_nothing_and_shows_it(project: Project) -> None:
    command = [*project.writes_42(2), "--out", "out"]
    first = project.whet(*command)
    before = records(project.path / "out")
    again = project.whet(*command, "--resume")
    assert again.returncode == 0
    assert again.stdout.splitlines()[0] == "2 rollouts, 2 are done; sandbox bubblewrap; out"
    assert first.stdout.partition("\n\n")[2] == again.stdout.partition("\n\n")[2]
    assert records(project.path / "out") == before
    assert events(project.whet(*command, "--resume", "--json").stdout) == [
        {"event": "started", "run": "out", "sandbox": "bubblewrap", "planned": 2, "pending": 0, "warnings": []}
    ]


def test_resuming_adds_samples_agents_and_tasks(project: Project) -> None:
    command = [*project.writes_42(2), "--out", "out"]
    assert project.whet(*command).returncode == 0
    assert events(project.whet(*command, "--resume", "--json", "--samples", "2").stdout)[0]["pending"] == 2
    assert events(project.whet(*command, "--resume", "--json", "--agent", "nop").stdout)[0]["pending"] == 2
    command = [*project.writes_42(3), "--out", "out"]
    assert events(project.whet(*command, "--resume", "--json").stdout)[0]["pending"] == 1
    with Store.open_read(project.path / "out") as store:
        assert [len(attempts) for _, attempts in store.attempts_by_rollout()] == [1] * 7


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_continue_and_that_works(project: Project, stop: signal.Signals) -> None:
    # An agent's own brackets and quotes must come out of the printed command as they went in.
    _, tasks, *_ = project.writes_42(6)
    agent = """command:bash -c '[ -n "$HOME" ] && echo "[/a] :dash:"'"""
    with project.start("run", tasks, "--agent", agent, "--model", "scripted:script.toml", "--samples", "10") as whet:
        assert whet.stdout is not None
        folder = whet.stdout.readline().rstrip().rpartition("; ")[2]
        first = whet.stdout.readline()
        whet.send_signal(stop)
        out, err = whet.communicate(timeout=30)
    assert (whet.returncode, err) == (130, "")
    assert project.boxes() == []
    assert project.processes() == []
    lines = (first + out).splitlines()
    *ended, blank, says, command = lines
    assert (blank, says) == ("", "stopped. Resume with:")
    stored = records(project.path / folder)
    assert {line.split()[0] for line in ended} <= stored.keys()
    assert 0 < len(stored) < 60
    program, *words = shlex.split(command)
    assert program == "whet"
    done = project.whet(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"60 rollouts, {len(stored)} ")
    finished = records(project.path / folder)
    assert len(finished) == 60
    assert all(finished[rollout] == record for rollout, record in stored.items())


def test_a_stopped_run_tells_machines_too(project: Project) -> None:
    with project.start(*project.writes_42(2, delay=30), "--out", "out", "--json") as whet:
        until_begun(whet, project.path / "out")
        whet.send_signal(signal.SIGINT)
        out, err = whet.communicate(timeout=30)
    assert (whet.returncode, err) == (130, "")
    last = json.loads(out.splitlines()[-1])
    assert last["event"] == "stopped"
    assert shlex.split(last["resume"])[-3:] == ["out", "--json", "--resume"]
