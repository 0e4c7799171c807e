"""Proving tasks: the solution must score 1, doing nothing must not; one that cannot run here is no failure."""

from pathlib import Path
from typing import Any

import pytest

from support.run_world import scripted
from whet.errors import UserError
from whet.runs.checks.tasks import TaskCheck, TaskVerdict, check
from whet.runs.config import Config
from whet.sandbox import sandbox_named
from whet.tasks import read_tasks
from whet.testing import Reply

DONE = "if [ -f done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


def task_folder(folder: Path, *, solution: str | None = "touch done\n", test: str = DONE, toml: str = "") -> Path:
    task = folder / "task"
    for name, text in {"task.toml": toml, "instruction.md": "Touch done.", "tests/test.sh": test}.items():
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
    if solution is not None:
        (task / "solution").mkdir()
        (task / "solution/solve.sh").write_text(solution)
    return task


async def checked(path: Path, sandbox: str = "bubblewrap", **env: str) -> TaskCheck:
    (found,) = [found async for found in check(read_tasks(path), sandbox_named(sandbox), env)]
    return found


REWARD = "/logs/verifier/reward.txt\n"
NO_ROOT = "its tests need /tests and /logs, which sandbox 'local' cannot give; use sandbox 'bubblewrap'"


@pytest.mark.parametrize(
    ("parts", "sandbox", "verdict", "reason"),
    [
        ({}, "bubblewrap", TaskVerdict.PROVED, ""),
        ({"test": f"test -f done && echo 1 > {REWARD}"}, "bubblewrap", TaskVerdict.PROVED, ""),
        (
            {"solution": "touch other\n"},
            "bubblewrap",
            TaskVerdict.BROKEN,
            "the solution scores 0, expected 1: the tests gave 0",
        ),
        ({"test": f"echo 1 > {REWARD}"}, "bubblewrap", TaskVerdict.BROKEN, "doing nothing scores 1"),
        (
            {"test": f"echo many > {REWARD}"},
            "bubblewrap",
            TaskVerdict.BROKEN,
            "the solution could not be scored: reward: reward.txt holds 'many\\n'",
        ),
        ({"solution": None}, "bubblewrap", TaskVerdict.READ, "ships no solution"),
        ({}, "local", TaskVerdict.ELSEWHERE, NO_ROOT),
    ],
    ids=["good", "no reward for nothing", "wrong solution", "passes anything", "nonsense", "no solution", "local"],
)
async def test_what_a_task_proves_of_itself(
    tmp_path: Path, parts: dict[str, Any], sandbox: str, verdict: TaskVerdict, reason: str
) -> None:
    found = await checked(task_folder(tmp_path, **parts), sandbox)
    assert found.verdict is verdict
    assert reason in found.reason
    if verdict is TaskVerdict.PROVED:
        assert found.reason == ""
        assert found.solution is not None
        assert found.nothing is not None
        assert (found.solution.value, found.nothing.value) == (1.0, None if parts else 0.0)


async def test_the_outputs_of_solution_and_tests_are_told(tmp_path: Path) -> None:
    test = f"echo 'FAIL: done is missing'\n{DONE}"
    found = await checked(task_folder(tmp_path, solution="echo tried >&2\n", test=test))
    assert dict(found.outputs) == {"solve.sh": "tried", "/tests/test.sh": "FAIL: done is missing"}


async def test_a_solution_that_crashes_is_named_as_such(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path, solution="echo uv: not found >&2; exit 127\n"))
    assert (found.verdict, found.reason) == (TaskVerdict.BROKEN, "solve.sh failed with exit code 127: uv: not found")


async def test_variables_of_a_task_come_from_the_environment(tmp_path: Path) -> None:
    task = task_folder(tmp_path, solution='touch "$WHAT"\n', toml='[environment.env]\nWHAT = "${WHAT}"\n')
    missing = await checked(task)
    assert missing.verdict is TaskVerdict.ELSEWHERE
    assert "WHAT is not set" in missing.reason
    assert (await checked(task, WHAT="done")).verdict is TaskVerdict.PROVED


async def test_a_judge_that_asks_a_model_asks_the_one_that_is_named(tmp_path: Path) -> None:
    rubric = '{kind = "rubric", rubric = "A file was made.", votes = 1, shows = ["changes"]}'
    path = task_folder(tmp_path, toml=f"[metadata.whet]\njudge = {rubric}\n")
    replies = {"added done": Reply(text='{"reason": "it is there", "score": 1}'), "": Reply(text='{"score": 0}')}
    config = Config(models=scripted(tmp_path, replies, "referee"))
    proofs = check(read_tasks(path), sandbox_named("bubblewrap"), {}, config, "referee")
    (found,) = [found async for found in proofs]
    assert (found.verdict, found.reason) == (TaskVerdict.PROVED, "")
    with pytest.raises(UserError, match="a judge asks a model and names none; name one with `judge_model`"):
        await checked(path)
