"""Looks for tests that let the agent's work into the judge's own process, where it can decide the score.

A static check that can miss much and is sometimes wrong: it only warns.
"""

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from whet.box import SCRATCH, UNTRUSTED
from whet.tasks.task import Task

MOST = 5
"""Warnings for one task."""
MOST_FILES = 500
LARGEST = 1 << 20
INTERPRETERS = re.compile(r"(python|pypy)[0-9.]*|bash|sh|dash|zsh|node|ruby|perl|exec|time|env|source|\.")
TEST_RUNNERS = frozenset({"pytest", "unittest", "nose2", "tox"})
BUILDERS = frozenset({"make", "cmake", "ctest", "cargo", "npm", "npx", "yarn", "go", "mvn", "gradle"})
STARTERS = frozenset({"run", "Popen", "call", "check_call", "check_output", "getoutput", "system", "popen"})
LOADERS = frozenset({"import_module", "__import__", "spec_from_file_location", "SourceFileLoader", "run_path", "exec"})
ADVICE = f"in the judge's own process, where it can decide the score; run it with {UNTRUSTED} (docs/judges.md)"


@dataclass(frozen=True, slots=True)
class _Work:
    """The files that the agent gets or must make."""

    files: frozenset[str]
    """Names of files, without folders."""
    modules: frozenset[str]
    """Names that Python would import from the working directory."""

    @classmethod
    def of(cls, task: Task) -> "_Work":
        named = re.findall(r"[\w./-]+\.(?:py|sh|js|ts|rb|pl|go|rs|c|cpp|java)\b", task.instruction)
        given = [*map(str, task.files), *named]
        if task.workspace is not None:
            given += [str(file.relative_to(task.workspace)) for file in _files(task.workspace)]
        paths = [PurePosixPath(name) for name in given]
        modules = {path.parts[0].removesuffix(".py") for path in paths if path.suffix == ".py" and path.parts}
        return cls(frozenset(path.name for path in paths), frozenset(modules - sys.stdlib_module_names))

    def holds(self, word: str) -> bool:
        return not word.startswith("/tests") and PurePosixPath(word).name in self.files


def trust_warnings(task: Task) -> list[str]:
    """Warnings about tests that run or load the agent's work themselves."""
    work = _Work.of(task)
    found = [*_test_warnings(task, work)]
    for index, command in enumerate(task.verify):
        found += [f"verify[{index}] {what} {ADVICE}" for _, what in _shell_runs(command, work)]
    return found[:MOST]


def _test_warnings(task: Task, work: _Work) -> Iterator[str]:
    if task.tests is None:
        return
    texts = {
        str(file.relative_to(task.tests)): file.read_text(errors="replace")
        for file in _files(task.tests)
        if str(file.relative_to(task.tests)) not in task.omissions_in("tests")
    }
    own = {PurePosixPath(name).parts[0].removesuffix(".py") for name in texts}
    work = _Work(work.files - {PurePosixPath(name).name for name in texts}, work.modules - own)
    for name, text in texts.items():
        if not task.agent_logs and (place := re.search(r"/logs/(agent|artifacts)\b", text)):
            yield f"tests/{name} names {place[0]}, which judges do not see; set agent_logs = true in [metadata.whet]"
        if _is_driver(name, texts):
            continue
        looks = {".sh": _shell_runs, ".py": _python_runs}
        look = looks.get(PurePosixPath(name).suffix)
        for line, what in look(text, work) if look else ():
            yield f"tests/{name}:{line} {what} {ADVICE}"


def _is_driver(name: str, texts: dict[str, str]) -> bool:
    """Whether other tests name this file where they run something apart."""
    base = PurePosixPath(name).name
    lines = (line for other, text in texts.items() if other != name for line in text.splitlines())
    return any(base in line and (UNTRUSTED in line or SCRATCH in line) for line in lines)


def _files(folder: Path) -> list[Path]:
    found = (file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink())
    return [file for _, file in zip(range(MOST_FILES), found, strict=False) if file.stat().st_size <= LARGEST]


def _shell_runs(text: str, work: _Work) -> Iterator[tuple[int, str]]:
    """The lines of a script that run the work, and how."""
    for number, line in enumerate(text.split("\n"), start=1):
        if UNTRUSTED in line or line.lstrip().startswith("#"):
            continue
        for command in _commands(line):
            if what := _run_by(command, work):
                yield number, what
                break


def _commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line, as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = [*lexer]
    except ValueError:  # a quote that ends in another line
        words = line.split()
    command: list[str] = []
    for word in [*words, ";"]:
        if word and set(word) <= set("();<>|&"):
            yield command
            command = []
        else:
            command.append(word)


def _run_by(words: list[str], work: _Work) -> str:
    """How a command runs the work; empty when it does not, as far as can be seen."""
    keywords = {"if", "then", "else", "elif", "while", "until", "do", "!", "{"}
    while words and (words[0] in keywords or re.match(r"\w+=", words[0])):
        words = words[1:]
    if not words:
        return ""
    program, *rest = words
    named = {word for word in words if word in TEST_RUNNERS}
    if named and (program in TEST_RUNNERS or "-m" in rest) and not any("/tests" in word for word in words):
        return f"runs {min(named)} over the agent's work"
    if program in BUILDERS:
        return f"runs {program} over the agent's work"
    if program == "git" and not {"init", "clone", "config", "--version"} & {*rest}:
        return "runs git, and with it what the repository's configuration names,"
    if program.startswith("./") or work.holds(program):
        return f"runs '{program}'"
    if INTERPRETERS.fullmatch(program):
        ran = next((word for word in rest if not word.startswith("-")), "")
        if work.holds(ran):
            return f"runs '{ran}'"
        if "-c" in rest[:-1] and program.startswith("py"):
            return next((what for _, what in _python_runs(rest[rest.index("-c") + 1], work)), "")
        if "-m" in rest[:-1] and (module := rest[rest.index("-m") + 1]).partition(".")[0] in work.modules:
            return f"runs the module '{module}'"
    return ""


def _python_runs(text: str, work: _Work) -> Iterator[tuple[int, str]]:
    """The lines of a Python file that load or run the work, and how."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        for name in _imports(node):
            if name.partition(".")[0] in work.modules:
                yield node.lineno, f"imports '{name}'"  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in own):
            words = [leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
            texts = [word for word in words if isinstance(word, str)]
            if what := _run_by_call(_name(node.func), texts, work):
                yield node.lineno, what


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _run_by_call(name: str, words: list[str], work: _Work) -> str:
    if name in LOADERS:
        loaded = next((word for word in words if work.holds(word) or word.partition(".")[0] in work.modules), "")
        return f"loads '{loaded}'" if loaded else ""
    if name in STARTERS and words and not any(UNTRUSTED in word for word in words):
        return _run_by(words if len(words) > 1 else words[0].split(), work)
    return ""
