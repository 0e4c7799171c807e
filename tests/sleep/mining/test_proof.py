"""A task is used only if the untouched tree fails and the solution passes, every time. Real boxes decide."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from whet.rollout.result import Result
from whet.runs.checks.tasks import attempt_with, open_resources
from whet.sandbox import sandbox_named
from whet.sleep.mining import proof
from whet.sleep.mining.proof import Loss, Proof, prove
from whet.tasks.skeleton import new_task

REWARD = "/logs/verifier/reward.txt"
HELD = f"if whet-untrusted cat greeting.txt; then echo 1; else echo 0; fi > {REWARD}\n"


def prove_task(folder: Path) -> Proof:
    async def run() -> Proof:
        async with open_resources(sandbox_named("bubblewrap")) as resources:
            return await prove(folder, resources)

    return asyncio.run(run())


def test_a_task_is_proved_by_three_runs_of_each_side(tmp_path: Path) -> None:
    found = prove_task(new_task(tmp_path / "greet"))
    assert (found.proved, found.nothing, found.solution) == (True, (0, 0, 0), (1, 1, 1))


@pytest.mark.parametrize(
    ("judge", "solve", "cause", "detail"),
    [
        (f"echo 1 > {REWARD}", "true", Loss.PASSES_UNTOUCHED, ""),
        (f"echo 'FAILED test_a.py::test_b'; echo 0 > {REWARD}", "true", Loss.SOLUTION_FAILS, "test_b"),
        (f"python3 -c 'import pyyaml_x'; echo 0 > {REWARD}", "true", Loss.ENVIRONMENT, "pyyaml_x"),
        (f"no-such-program; echo 0 > {REWARD}", "true", Loss.ENVIRONMENT, "no-such-program"),
        (f"echo 'Ran 0 tests in 0.0s'; echo 0 > {REWARD}", "true", Loss.NO_TESTS, ""),
        (HELD, "false", Loss.SOLUTION_FAILS, "exit code 1"),
        ("sleep 60", "true", Loss.TIMEOUT, "did not end within"),
    ],
)
def test_a_task_that_is_not_proved_has_a_cause(
    tmp_path: Path, judge: str, solve: str, cause: Loss, detail: str
) -> None:
    folder = new_task(tmp_path / "task")
    (folder / "tests" / "test.sh").write_text(f"#!/bin/bash\n{judge}\n")
    (folder / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solve}\n")
    if cause is Loss.TIMEOUT:
        manifest = folder / "task.toml"
        manifest.write_text(manifest.read_text().replace("900.0", "1.0"))
    found = prove_task(folder)
    assert (found.cause, found.proved) == (cause, False)
    assert detail in found.detail


def test_a_solution_that_passes_only_sometimes_is_flaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_task(tmp_path / "task")
    attempts: list[str] = []

    async def attempt_and_spoil(agent: str, *rest: Any) -> Result:
        result = await attempt_with(agent, *rest)
        attempts.append(agent)
        if len(attempts) == 2:
            (folder / "solution" / "solve.sh").write_text("#!/bin/bash\ntrue\n")
        return result

    monkeypatch.setattr(proof, "attempt_with", attempt_and_spoil)
    found = prove_task(folder)
    assert (found.cause, found.solution) == (Loss.FLAKY, (1, 0))


def test_a_folder_that_is_no_task_is_not_runnable(tmp_path: Path) -> None:
    assert prove_task(tmp_path).cause is Loss.UNREADABLE
