"""Tasks judged by a command: the verification that fails on the files before a session and passes on its work."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from whet.sleep.session import Session, Speaker
from whet.sleep.shell import read_commands, unwrap, writes_files

_CHECKING = {
    "make": {"test", "tests", "lint", "check", "build", "typecheck", "verify", "ci", "unit"},
    "just": {"test", "tests", "lint", "check", "build", "ci"},
    "npm": {"test", "t", "lint", "build", "check", "typecheck"},
    "pnpm": {"test", "t", "lint", "build", "check", "typecheck"},
    "yarn": {"test", "lint", "build", "check", "typecheck"},
    "bun": {"test"},
    "cargo": {"test", "check", "clippy", "build", "nextest", "fmt"},
    "go": {"test", "vet", "build"},
    "dotnet": {"test", "build"},
    "mvn": {"test", "verify", "package"},
    "mvnw": {"test", "verify", "package"},
    "gradle": {"test", "check", "build"},
    "gradlew": {"test", "check", "build"},
    "ruff": {"check", "format"},
    "mix": {"test"},
    "swift": {"test", "build"},
    "bazel": {"test", "build"},
}
"""Programs that verify work when one of these words follows."""
_ALWAYS_CHECKING = frozenset(
    {"pytest", "py.test", "unittest", "tsc", "mypy", "pyright", "eslint", "ctest", "phpunit", "rspec", "tox", "nox"}
) | {"jest", "vitest", "mocha", "flake8", "pylint", "shellcheck", "golangci-lint", "rubocop", "phpstan", "ava"}
_TESTS = re.compile(r"\b(?:tests?|py\.?test|unittest|jest|vitest|mocha|rspec|phpunit|ctest|tox|nox|nextest)\b")
MOST = 3
"""Verifications of a session that are tried."""
_RUN_WORDS = frozenset({"run", "run-script", "-s", "--silent"})


@dataclass(frozen=True, slots=True)
class _Ran:
    command: str
    passed: bool | None
    """None when the transcript does not say."""
    edits: int
    """Changes of files before it."""


def find_verifications(session: Session) -> list[str]:
    """The verifications of a session that passed after a change, or may have passed, most telling first.

    Those that the transcript shows failing before come first, then tests, then the others; of equal ones the latest.
    The proof decides in any case.
    """
    ran = list(_list_verifications(session))
    failed = {one.command for one in ran if one.passed is False}
    good = [one for one in reversed(ran) if one.edits and one.passed is not False]
    ordered = sorted(good, key=lambda one: (one.command not in failed, not _TESTS.search(one.command), not one.passed))
    return list(dict.fromkeys(one.command for one in ordered))[:MOST]


def _list_verifications(session: Session) -> Iterator[_Ran]:
    named = {code.strip() for turn in session.turns if turn.said_by is Speaker.PERSON for code in _codes(turn.text)}
    edits = 0
    for step in (step for turn in session.turns for step in turn.steps):
        if step.is_edit:
            edits += 1
        elif step.command is not None:
            edits += writes_files(step.command)
            for command in read_verifications(step.command, named):
                known = step.exit is not None and _tells_exit(step.command, command)
                yield _Ran(command, step.exit == 0 if known else None, edits)


def _codes(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def read_verifications(line: str, named: set[str]) -> list[str]:
    """The verification commands of a line, each as it can be run by itself. `named` are commands that a person named.

    >>> read_verifications("cd app && npm test 2>&1 | tail -5; git commit -am done", set())
    ['cd app && npm test']
    """
    folder, found = "", []
    for command in read_commands(line):
        if command[0] == "cd" and len(command) == 2:
            folder = f"cd {shlex.quote(command[1])} && "
        elif is_verification(command) or shlex.join(command) in named:
            found.append(folder + shlex.join(command))
    return found


def is_verification(command: tuple[str, ...]) -> bool:
    """Whether a simple command tests, checks or builds.

    >>> is_verification(("python3", "-m", "unittest", "-q")), is_verification(("npm", "run", "dev"))
    (True, False)
    """
    bare = unwrap(command)
    program = bare[0].rpartition("/")[2]
    words = [word for word in bare[1:] if word not in _RUN_WORDS and not word.startswith("-")]
    targets = {word.split(":")[0] for word in words[:2]}
    return program in _ALWAYS_CHECKING or not targets.isdisjoint(_CHECKING.get(program, set()))


def _tells_exit(line: str, verification: str) -> bool:
    """Whether the exit code of a line is that of its verification: it comes last, and no pager or `|| true` follows."""
    last = read_commands(line)[-1]
    return verification.endswith(shlex.join(last)) and not re.search(r"\|", re.sub(r"'[^']*'|\"[^\"]*\"", "", line))
