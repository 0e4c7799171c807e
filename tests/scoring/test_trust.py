"""What `whet tasks check` warns of: tests that let the agent's work into the judge's own process."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.runs.checks.tasks import TaskCheck, TaskVerdict
from whet.scoring.trust import trust_warnings
from whet.tasks import Task, read_tasks

EXAMPLES = Path(__file__).parents[2] / "examples"


def task_with(folder: Path, tests: dict[str, str], **keys: Any) -> Task:
    """A task whose agent is given solver.py and the package invoice, and told to write report.py and run.sh."""
    for name, text in {"tests/test.sh": "", **{f"tests/{name}": text for name, text in tests.items()}}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    files = {"solver.py": "", "invoice/__init__.py": "", "json.py": "", "data.csv": ""}
    return Task(id="t", instruction="Write `report.py` and run.sh.", tests=folder / "tests", files=files, **keys)


SHELL = {
    "python3 -m pytest": "runs pytest over",
    "cd /workspace && pytest -q": "runs pytest over",
    "if python3.12 -B -m unittest; then reward=1; fi": "runs unittest over",
    "python3 solver.py < /tests/in > out": "runs 'solver.py'",
    "PYTHONPATH=. python3 -u ./report.py": "runs './report.py'",
    "timeout=3; bash run.sh 1 2": "runs 'run.sh'",
    "./run.sh || reward=0": "runs './run.sh'",
    "./built-by-the-agent": "runs './built-by-the-agent'",
    "python3 -m invoice --help": "runs the module 'invoice'",
    ". ./run.sh": "runs './run.sh'",
    "python3 -c 'import solver; assert solver.f() == 1'": "imports 'solver'",
    "make test": "runs make over",
    "git -C repo status": "runs git",
}


@pytest.mark.parametrize(("line", "said"), SHELL.items())
def test_a_script_that_runs_the_work_itself_is_warned_of(tmp_path: Path, line: str, said: str) -> None:
    (warning,) = trust_warnings(task_with(tmp_path, {"test.sh": f"#!/bin/bash\n# python3 solver.py\n{line}\n"}))
    assert warning.startswith(f"tests/test.sh:3 {said}")
    assert "whet-untrusted" in warning


PYTHON = {
    "import solver": "imports 'solver'",
    "from invoice.text import render": "imports 'invoice.text'",
    "def f():\n    import report as r": "imports 'report'",
    "importlib.import_module('solver')": "loads 'solver'",
    "runpy.run_path('/workspace/report.py')": "loads '/workspace/report.py'",
    "exec(open('solver.py').read())": "loads 'solver.py'",
    "subprocess.run(['python3', '-B', 'report.py', path], timeout=3)": "runs 'report.py'",
    "os.system('python3 solver.py')": "runs 'solver.py'",
    "subprocess.check_output(['git', 'log'])": "runs git",
}


@pytest.mark.parametrize(("code", "said"), PYTHON.items())
def test_a_test_that_loads_or_runs_the_work_itself_is_warned_of(tmp_path: Path, code: str, said: str) -> None:
    (warning,) = trust_warnings(task_with(tmp_path, {"check.py": code}))
    assert warning.startswith(f"tests/check.py:{1 + code.count(chr(10))} {said}")


HARMLESS = {
    "test.sh": "cd /workspace\nwhet-untrusted python3 solver.py\npython3 -I /tests/check.py\npytest /tests/test_a.py\n",
    "check.py": "import json, helper\nsubprocess.run(['whet-untrusted', 'python3', 'report.py'])\nopen('data.csv')",
    "more.py": "def run(*argv): return helper.apart(argv)\nrun('python3', 'report.py')",
    "helper.py": "import re\nCOMMAND = ['whet-untrusted', 'python3', 'driver.py']",
    "driver.py": "import solver",
    "broken.py": "import solver (",
}


def test_nothing_is_said_of_tests_that_run_the_work_apart(tmp_path: Path) -> None:
    assert trust_warnings(task_with(tmp_path, HARMLESS)) == []


def test_nothing_is_said_of_the_examples() -> None:
    assert [trust_warnings(task) for task in read_tasks(EXAMPLES / "tasks")] == [[]] * 7
    assert not any(trust_warnings(task) for task in read_tasks(EXAMPLES / "questions.jsonl"))


def test_verify_commands_are_looked_at_too() -> None:
    task = Task(
        id="t", instruction="-", files={"test_it.py": ""}, verify=("true", "python3 test_it.py"), origin="a: row 1"
    )
    assert trust_warnings(task)[0].startswith("verify[1] runs 'test_it.py'")
    assert TaskCheck(task, TaskVerdict.READ).warnings[0].startswith("a: row 1: verify[1] runs")


def test_tests_that_name_the_agents_logs_need_the_key(tmp_path: Path) -> None:
    tests = {"test.sh": "grep x /logs/agent/trajectory.json"}
    (warning,) = trust_warnings(task_with(tmp_path, tests))
    assert "names /logs/agent" in warning
    assert "agent_logs = true" in warning
    assert trust_warnings(task_with(tmp_path, tests, agent_logs=True)) == []


def test_only_the_first_ones_are_named(tmp_path: Path) -> None:
    assert len(trust_warnings(task_with(tmp_path, {"check.py": "import solver\n" * 50}))) == 5


@given(st.text())
def test_no_text_breaks_the_look(text: str) -> None:
    trust_warnings(Task(id="t", instruction=text.replace("\0", "") or "-", verify=(text.replace("\0", "") or "-",)))
