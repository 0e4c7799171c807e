"""Runs test files of a project and prints what became of each test, as JSON. A part of mined tasks: it runs in a box,
with the box's Python, and imports nothing of whet.

    python3 run_tests.py [--trace] pytest|unittest FILE...
"""

import json
import os
import sys
import threading
import traceback
import unittest
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

LONGEST = 300
"""Characters of an error."""
WORST = ("passed", "skipped", "failed")


class Record:
    """What is known of the tests so far."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, str]] = {}
        self.problems: dict[str, str] = {}
        self.current = ""
        self.lines: dict[str, dict[str, set[int]]] = {}

    def add(self, name: str, outcome: str, error: str = "") -> None:
        """A test counts as its worst part."""
        known = self.tests.get(name)
        if known is None or WORST.index(outcome) > WORST.index(known["outcome"]):
            self.tests[name] = {"outcome": outcome, "error": shorten(error)}

    def as_json(self) -> str:
        covered = {
            test: {source: sorted(lines) for source, lines in sources.items()} for test, sources in self.lines.items()
        }
        return json.dumps({"tests": self.tests, "problems": self.problems, "covered": covered})


def shorten(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[0][:LONGEST] if lines else ""


class Plugin:
    """Tells a record what pytest reports."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            lines = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            self.record.problems[report.nodeid] = shorten("\n".join(lines[-1:]) or str(report.longrepr))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.record.current = nodeid.partition("::")[0]

    def pytest_runtest_logreport(self, report: Any) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash is not None else str(report.longrepr or "")
        if report.when == "call" or report.outcome != "passed":
            self.record.add(report.nodeid, report.outcome, message)


def run_pytest(files: list[str], record: Record) -> None:
    import pytest

    # The project's own options may name plug-ins that are not here. Test files that no longer exist are left out.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-o", "addopts=", "--rootdir", str(Path.cwd())]
    pytest.main([*options, *files], plugins=[Plugin(record)])


class Result(unittest.TestResult):
    """Knows also which tests were started."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[unittest.TestCase] = []

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - the name is of unittest
        super().startTest(test)
        self.started.append(test)


def run_unittest(files: list[str], record: Record) -> None:
    for file in files:
        record.current = file
        result = Result()
        try:
            unittest.defaultTestLoader.loadTestsFromModule(load(file)).run(result)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the file is the project's: anything can happen
            traceback.print_exc()
            record.problems[file] = shorten(f"{type(error).__name__}: {error}")
        add_result(file, result, record)


def add_result(file: str, result: Result, record: Record) -> None:
    for test in result.started:
        record.add(name_test(file, test), "passed")
    for test, reason in (*result.skipped, *result.expectedFailures):
        record.add(name_test(file, test), "skipped", reason)
    for test, told in (*result.failures, *result.errors):
        # The last line that is not indented names the error; what follows are details.
        named = [line for line in told.splitlines() if line and not line.startswith((" ", "Traceback"))]
        record.add(name_test(file, test), "failed", named[0] if named else told)
    for test in result.unexpectedSuccesses:
        record.add(name_test(file, test), "failed", "the test was expected to fail")


def name_test(file: str, test: Any) -> str:
    test = getattr(test, "test_case", test)  # of a subtest
    return "::".join((file, type(test).__name__, getattr(test, "_testMethodName", str(test))))


def load(file: str) -> ModuleType:
    """Import a test file by the name that it has in its package."""
    path = Path.cwd() / file
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(1, str(folder))
    __import__(".".join(parts))
    return sys.modules[".".join(parts)]


def trace(record: Record) -> Any:
    """Notes which lines of the project each test file runs."""
    root = f"{Path.cwd()}{os.sep}"
    known: dict[str, str | None] = {}

    def start(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        name = frame.f_code.co_filename
        if name not in known:
            path = str(Path.cwd() / name)
            # Hidden folders hold packages of others.
            inside = path.startswith(root) and not path.startswith(f"{root}.")
            known[name] = path[len(root) :] if inside else None
        source = known[name]
        if source is None or not record.current:
            return None
        lines = record.lines.setdefault(record.current, {}).setdefault(source, set())

        def line(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
            if event == "line":
                lines.add(frame.f_lineno)
            return line

        return line

    return start


def main(arguments: list[str]) -> None:
    record = Record()
    # What tests print must not get between the lines of the result.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        sys.path.insert(0, str(Path.cwd()))
        if arguments[0] == "--trace":
            arguments = arguments[1:]
            tracer = trace(record)
            threading.settrace(tracer)
            sys.settrace(tracer)
        program, *names = arguments
        files = [name for name in names if Path(name).exists()]
        (run_pytest if program == "pytest" else run_unittest)(files, record)
        sys.settrace(None)
        out.write(record.as_json())
        out.flush()
        os._exit(0)  # threads that the tests left must not keep the process


if __name__ == "__main__":
    main(sys.argv[1:])
