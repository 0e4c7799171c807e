"""Proving tasks: the solution must score 1, doing nothing must not; one that cannot run here is no failure."""

from pathlib import Path

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


async def test_a_good_task_is_proved(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path))
    assert (found.verdict, found.reason) == (TaskVerdict.PROVED, "")
    assert found.solution is not None
    assert found.nothing is not None
    assert (found.solution.value, found.nothing.value) == (1.0, 0.0)


async def test_tests_that_give_nothing_no_reward_still_prove_it(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path, test="test -f done && echo 1 > /logs/verifier/reward.txt\n"))
    assert found.verdict is TaskVerdict.PROVED
    assert found.nothing is not None
    assert found.nothing.value is None


async def test_a_solution_that_fails_is_broken(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path, solution="touch other\n"))
    assert (found.verdict, found.reason) == (
        TaskVerdict.BROKEN,
        "the solution scores 0, expected 1: the tests gave 0",
    )


async def test_the_outputs_of_solution_and_tests_are_told(tmp_path: Path) -> None:
    test = f"echo 'FAIL: done is missing'\n{DONE}"
    found = await checked(task_folder(tmp_path, solution="echo tried >&2\n", test=test))
    assert dict(found.outputs) == {"solve.sh": "tried", "/tests/test.sh": "FAIL: done is missing"}


async def test_a_solution_that_crashes_is_named_as_such(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path, solution="echo uv: not found >&2; exit 127\n"))
    assert (found.verdict, found.reason) == (TaskVerdict.BROKEN, "solve.sh failed with exit code 127: uv: not found")


async def test_tests_that_pass_on_nothing_are_broken(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path, test="echo 1 > /logs/verifier/reward.txt\n"))
    assert (found.verdict, found.reason) == (TaskVerdict.BROKEN, "doing nothing scores 1")


async def test_tests_that_write_nonsense_are_broken(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path, test="echo many > /logs/verifier/reward.txt\n"))
    assert found.verdict is TaskVerdict.BROKEN
    assert found.reason.startswith("the solution could not be scored: reward: reward.txt holds 'many\\n'")


async def test_a_task_without_a_solution_is_only_read(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path, solution=None))
    assert (found.verdict, found.reason) == (TaskVerdict.READ, "ships no solution")


async def test_a_task_that_this_sandbox_cannot_run_is_for_elsewhere(tmp_path: Path) -> None:
    found = await checked(task_folder(tmp_path), sandbox="local")
    assert found.verdict is TaskVerdict.ELSEWHERE
    assert found.reason.endswith("which sandbox 'local' cannot give; use sandbox 'bubblewrap'")


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
