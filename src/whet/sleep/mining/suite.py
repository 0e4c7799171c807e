"""Tests of a project as a mined task runs them: with which program, and which of them fail and pass in a box."""

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from whet.box import Finished, Sandbox
from whet.sleep.mining.proof import LONGEST, Loss, explain_output
from whet.tasks.git import Tree
from whet.tasks.skeleton import is_test
from whet.tasks.task import WORKDIR, TaskLimits

PACKAGES = ".packages"
"""The folder of the working directory with packages that the tests import."""
SECONDS = 300
"""How long the tests of one task may take."""
_OUTPUT = 64 << 20
_JUDGE = """#!/bin/bash
# The tests that decide are copied over the agent's work. The work runs with whet-untrusted, apart from this judge;
# where there is no such program, in a container of Harbor, it runs like any other test.
scratch="${{WHET_SCRATCH:-$(mktemp -d)}}"
results="$(mktemp)"
cp -r /tests/files /tests/run_tests.py "$scratch"
untrusted="$(command -v whet-untrusted)"
${{untrusted:+whet-untrusted --time {seconds}}} \\
  env PYTHONPATH={path} sh -c 'cp -r "$0/files/." . && exec python3 -B "$0/run_tests.py" {arguments}' "$scratch" \\
  > "$results"
python3 -I /tests/decide.py "$results" > /logs/verifier/reward.txt
"""
_DECIDE = '''"""Decides by the tests of ids.json alone: prints 1 if all of them passed, otherwise 0."""

import json
import pathlib
import sys

expected = json.loads(pathlib.Path("/tests/ids.json").read_text())
try:
    found = json.loads(pathlib.Path(sys.argv[1]).read_text())
    tests, problems = found["tests"], found["problems"]
except (ValueError, KeyError, TypeError):
    tests, problems = {}, {}
for file, problem in problems.items():
    print(f"ERROR {file} - {problem}", file=sys.stderr)
failed = [name for name in expected if tests.get(name, {}).get("outcome") != "passed"]
for name in failed:
    print(f"FAILED {name} - {tests.get(name, {}).get('error', 'not run')}", file=sys.stderr)
print(0 if failed else 1)
'''


@dataclass(frozen=True, slots=True)
class Suite:
    """Test files, and how they are run."""

    program: str
    """pytest or unittest."""
    files: tuple[str, ...]
    path: str
    """PYTHONPATH in the box."""

    def arguments(self) -> list[str]:
        return [self.program, *self.files]

    def judge(self) -> str:
        """tests/test.sh of a task that these tests judge."""
        words = shlex.join(self.arguments()).replace("'", "'\\''")
        return _JUDGE.format(seconds=SECONDS, path=shlex.quote(self.path), arguments=words)

    def judge_files(self, ids: Collection[str]) -> dict[str, bytes]:
        """The files beside tests/test.sh. Only the tests with these ids decide."""
        texts = {"run_tests.py": _read_program(), "decide.py": _DECIDE, "ids.json": json.dumps(sorted(ids), indent=1)}
        return {f"tests/{name}": text.encode() for name, text in texts.items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    outcome: str
    """passed, failed or skipped."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """What became of the tests of a suite."""

    tests: Mapping[str, Outcome] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    """Test files that could not be loaded, and why."""
    covered: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    """For each test file, the lines of the project that its tests ran; empty without a trace."""
    printed: str = ""
    timed_out: bool = False
    seconds: float = 0

    @property
    def passed(self) -> frozenset[str]:
        return frozenset(name for name, one in self.tests.items() if one.outcome == "passed")

    def error_of(self, test: str) -> str:
        """What a test that did not pass says, or the reason for which its file could not be loaded."""
        known = self.tests.get(test)
        return known.error if known is not None else self.problems.get(test.partition("::")[0], "")

    def explain(self) -> tuple[Loss, str]:
        """Why no test passed."""
        if self.timed_out:
            return Loss.TIMEOUT, f"no end within {self.seconds:.0f} seconds"
        told = "\n".join((*self.problems.values(), *(one.error for one in self.tests.values()), self.printed))
        if found := explain_output(told):
            return found
        if not self.tests and not self.problems:
            return Loss.NO_TESTS, _last_line(self.printed)
        return Loss.SOLUTION_FAILS, next(iter(self.problems.values()), "") or "no test passes"


def choose_suite(tests: Mapping[str, bytes], tree: Collection[str]) -> Suite:
    """How to run these test files: with unittest if all of them use it and none uses pytest, otherwise with pytest.

    A folder src/ is on the path, so that a package in it is found without being installed.
    """
    python = {name: content for name, content in tests.items() if is_test(name) and name.endswith(".py")}
    own = all(b"unittest" in content and b"pytest" not in content for content in python.values())
    has_source = any(name.startswith("src/") for name in tree)
    path = [f"{WORKDIR}/src", WORKDIR] if has_source else [WORKDIR]
    return Suite("unittest" if own else "pytest", tuple(sorted(python)), ":".join([*path, f"{WORKDIR}/{PACKAGES}"]))


async def run_suite(
    suite: Suite,
    sandbox: Sandbox,
    workspace: Path,
    overlay: Path | None = None,
    patch: bytes = b"",
    *,
    trace: bool = False,
    seconds: float = SECONDS,
) -> SuiteRun:
    """Run a suite in a new box: over these files, with a patch applied and an overlay of files copied on top."""
    async with sandbox.open(TaskLimits()) as box:
        await box.upload(workspace, box.workdir)
        if patch:
            applied = await box.exec(["git", "apply", "--whitespace=nowarn", "-"], stdin=patch, timeout=60)
            if applied.exit_code:
                return SuiteRun(problems={"": f"the change does not apply: {_last_line(applied.stderr.text)}"})
        if overlay is not None:
            await box.upload(overlay, box.workdir)
        await box.write_file("/tmp/run_tests.py", _read_program().encode())  # noqa: S108 - a path in the box
        argv = ["python3", "-B", "/tmp/run_tests.py", *(["--trace"] if trace else []), *suite.arguments()]  # noqa: S108
        done = await box.exec(argv, env={"PYTHONPATH": suite.path}, timeout=seconds, output_limit=_OUTPUT)
    if done.timed_out or done.exit_code:
        return SuiteRun(printed=done.stderr.text, timed_out=done.timed_out, seconds=done.seconds)
    return _read_run(done)


def _read_run(done: Finished) -> SuiteRun:
    try:
        told = json.loads(done.stdout.text)
    except ValueError:  # the tests ended the process
        return SuiteRun(printed=done.stderr.text)
    tests = {name: Outcome(**one) for name, one in told["tests"].items()}
    covered = {
        test: {source: frozenset(lines) for source, lines in sources.items()}
        for test, sources in told["covered"].items()
    }
    return SuiteRun(tests, told["problems"], covered, done.stderr.text, seconds=done.seconds)


@cache
def _read_program() -> str:
    return files("whet.sleep.mining").joinpath("run_tests.py").read_text(encoding="utf-8")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else ""


def read_tests(tree: Tree) -> dict[str, bytes]:
    """The Python test files of a tree."""
    return {name: file.content for name, file in tree.items() if is_test(name) and name.endswith(".py")}
