"""A judge that came to no verdict counts 0 once it has decided on the task's solution or on another rollout."""

import shlex
from pathlib import Path

import pytest

from support.run_world import perform, read_results, scripted
from whet.rollout.result import Result
from whet.runs.run import Event
from whet.runs.scheduler import Ended
from whet.runs.stats.summary import tally
from whet.runs.store.store import Store
from whet.runs.verdicts import Settled, settle_all
from whet.scoring import Cause
from whet.tasks import read_tasks
from whet.testing import Reply

CHECK = 'if [ "$(head -c 20 answer.txt)" = right ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
"""Tests that read what the agent left, and so hang on a fifo or an endless file."""
STRICT = f"set -e\n[ -f answer.txt ]\n{CHECK}"
"""Tests that write no reward when they fail early."""
SOLVE = "echo right > answer.txt\n"


def write_task(folder: Path, name: str, test: str = CHECK, *, solved: bool = True, seconds: float = 2.0) -> Path:
    task = folder / "tasks" / name
    for part in ("tests", *(["solution"] if solved else [])):
        (task / part).mkdir(parents=True)
    (task / "instruction.md").write_text("Write 'right' into answer.txt.\n")
    (task / "task.toml").write_text(f'schema_version = "1.4"\n[verifier]\ntimeout_sec = {seconds}\n')
    (task / "tests" / "test.sh").write_text(f"#!/bin/bash\n{test}")
    if solved:
        (task / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{SOLVE}")
    return folder / "tasks"


def agent(script: str) -> str:
    return "command:bash -c " + shlex.quote(script)


async def run_agents(tasks: Path, *scripts: str, **request: object) -> list[Event]:
    models = scripted(tasks.parent, {"": Reply(text="4")})
    agents = tuple(map(agent, scripts))
    return await perform(tasks, models, agents=agents, out=tasks.parent / "run", **request)


def results(tasks: Path) -> dict[str, Result]:
    """By agent."""
    return {row.agent: result for row, result in read_results(tasks.parent / "run")}


def assert_settled(tasks: Path, script: str) -> None:
    result = results(tasks)[agent(script)]
    assert (result.score.value, result.score.cause) == (0, None), result.score.reason
    assert "no-verdict" in result.flags
    assert "no verdict" in result.score.reason


BREAKS = {
    "fifo": "mkfifo answer.txt",
    "endless": "ln -s /dev/zero answer.txt",
    "removed": "rm -rf /workspace/* /workspace/.[!.]*; rm -f answer.txt",
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS.keys())
async def test_a_verdict_on_the_solution_settles_it(tmp_path: Path, script: str) -> None:
    tasks = write_task(tmp_path, "t", STRICT)
    await run_agents(tasks, script)
    assert_settled(tasks, script)
    with Store.open_read(tmp_path / "run") as store:
        (arm,) = tally(store).values()
        assert (arm.measured, arm.missing.total()) == (1, 0)
        mean = arm.mean()
        assert mean is not None
        assert mean.mean == 0


async def test_a_verdict_on_another_rollout_settles_it_whichever_ends_first(tmp_path: Path) -> None:
    broken = "mkfifo answer.txt"
    for name, order in (("first", (broken, SOLVE)), ("last", (SOLVE, broken))):
        (tmp_path / name).mkdir()
        tasks = write_task(tmp_path / name, "t", solved=False)
        seen = await run_agents(tasks, *order, concurrency=1)
        assert_settled(tasks, broken)
        assert results(tasks)[agent(SOLVE)].score.value == 1
        late = [event for event in seen if isinstance(event, Settled)]
        assert len(late) == (1 if name == "first" else 0)


async def test_without_any_verdict_it_is_missing_and_tried_again_on_resume(tmp_path: Path) -> None:
    tasks = write_task(tmp_path, "t", "exit 1\n", solved=False)
    await run_agents(tasks, "true", "echo x > y")
    assert {result.score.cause for result in results(tasks).values()} == {Cause.JUDGE}
    again = await run_agents(tasks, "true", "echo x > y", resume=True)
    assert sum(isinstance(event, Ended) for event in again) == 2


async def test_a_judge_that_fails_on_the_solution_too_gives_no_score(tmp_path: Path) -> None:
    tasks = write_task(tmp_path, "t", "exit 1\n")
    await run_agents(tasks, "true")
    (result,) = results(tasks).values()
    assert result.score.cause is Cause.JUDGE


async def test_the_solution_is_judged_once_when_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.runs import verdicts
    from whet.runs.checks.tasks import attempt_with

    judged: list[str] = []

    async def count(agent: str, task: object, *rest: object) -> Result:
        judged.append(agent)
        return await attempt_with(agent, task, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(verdicts, "attempt_with", count)
    tasks = write_task(tmp_path, "t", STRICT)
    await run_agents(tasks, SOLVE)
    assert judged == []
    (tmp_path / "other").mkdir()
    tasks = write_task(tmp_path / "other", "t", STRICT)
    await run_agents(tasks, "true", "false", samples=2, concurrency=4)
    assert judged == ["oracle"]
    await run_agents(tasks, "true", "false", samples=3, resume=True)
    assert judged == ["oracle"]


async def test_a_run_of_before_is_settled_when_it_is_resumed(tmp_path: Path) -> None:
    """The state of a run that was killed between two results, or was made before there was this rule."""
    tasks = write_task(tmp_path, "t", STRICT, solved=False)
    await run_agents(tasks, "true", SOLVE, concurrency=1)
    with Store.open_write(tmp_path / "run") as store:
        db = store._db
        (attempt,) = (one for _, attempts in store.attempts_by_rollout() for one in attempts if one.value == 0)
        (first,) = db.execute("SELECT blob FROM log WHERE attempt = ? AND name = 'result 1'", (attempt.id,)).fetchone()
        db.execute(
            "UPDATE attempt SET result = ?, value = NULL, cause = 'judge', final = 0 WHERE id = ?", (first, attempt.id)
        )
        db.execute("DELETE FROM log WHERE name = 'result 1'")
        db.execute("DELETE FROM run WHERE key LIKE 'verdicts of %'")
    assert results(tasks)[agent("true")].score.cause is Cause.JUDGE
    assert len(await run_agents(tasks, "true", SOLVE, resume=True)) == 1, "nothing is run again"
    assert_settled(tasks, "true")
    with Store.open_write(tmp_path / "run") as store:
        assert settle_all(store, {task.id: task for task in read_tasks(tasks)}) == []


async def test_a_module_that_kills_the_tests_is_settled(tmp_path: Path) -> None:
    program = "import sys; sys.path.insert(0, '/workspace'); import work; print(1)"
    test = f"python3 -c {shlex.quote(program)} > /logs/verifier/reward.txt\n"
    tasks = write_task(tmp_path, "t", f"set -e\n{test}", solved=False, seconds=20)
    kills = "echo 'import os, signal; os.kill(os.getppid(), signal.SIGKILL); os._exit(9)' > work.py"
    await run_agents(tasks, kills, "touch work.py")
    assert_settled(tasks, kills)


async def test_a_closed_workspace_is_judged(tmp_path: Path) -> None:
    tasks = write_task(tmp_path, "t", solved=False, seconds=20)
    closed = "echo wrong > answer.txt; chmod 0 /workspace"
    await run_agents(tasks, closed)
    (result,) = results(tasks).values()
    assert (result.score.value, result.score.cause) == (0, None), result.score.reason
