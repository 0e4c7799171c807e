"""New task folders: a small one to edit, one that counts files of a repository, and one made from a commit."""

import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from whet.errors import UserError
from whet.tasks.git import (
    Tree,
    TreeEntry,
    find_commit,
    git,
    list_changed,
    list_tree,
    read_files,
    read_patch,
    write_tree,
)

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
MEMORY_FILES = ("CLAUDE.md", "AGENTS.md", "GEMINI.md")
"""Documents for agents. A task does not hold them: `--skill` gives them, so that another version can be tried."""
LARGEST_TREE = 100_000_000
"""Bytes of a repository that is copied into a task."""
FILL_IN = "FILL IN"
"""Marks the place of a task that is still to be written."""

_TASK = """schema_version = "1.4"

[agent]
timeout_sec = 1800.0

[verifier]
timeout_sec = 900.0
"""
_README = """# How to edit this task

- `instruction.md` is what the agent is told.
- `workspace/` is what it finds in its working directory.
- `tests/test.sh` judges its work: it writes a number from 0 to 1 to /logs/verifier/reward.txt. It runs the agent's
  work, and reads its files, with `whet-untrusted`.
- `solution/solve.sh` does the task, so that `whet tasks check` can prove the tests.

The agent sees neither this file nor tests and solution.
"""
_COMPARE = """#!/bin/bash
# The work is read with whet-untrusted, which cannot touch this judge.
found=$(whet-untrusted --time 5 cat {file} | tr -d '[:space:]')
echo "{file} holds '$found', expected '{expected}'"
if [ "$found" = "{expected}" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
_RUN_TESTS = """#!/bin/bash
# The tests of commit {commit}, copied over the agent's work. The work runs with whet-untrusted, apart from this judge.
cp -r /tests/files "$WHET_SCRATCH/files"
whet-untrusted --time 800 sh -c 'cp -r "$0/files/." . && {runner}' "$WHET_SCRATCH"
if [ $? = 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
_NO_TESTS = f"""#!/bin/bash
# {FILL_IN}: commit {{commit}} changes no tests. Run the work with whet-untrusted, and write 0 or 1 as the reward:
#   if whet-untrusted python3 -m unittest; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
echo "tests/test.sh is not written yet: see {FILL_IN} in it" >&2
"""
_TEST_FOLDERS = frozenset({"test", "tests"})
_TEST_FILE = re.compile(r"(^|/)(test_[^/]*\.py|[^/]*_test\.(py|go)|[^/]*\.(test|spec)\.[cm]?[jt]sx?)$")
APPLY = "git apply --whitespace=nowarn /solution/change.patch"


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What a task folder is made of."""

    instruction: str
    judge: str
    """tests/test.sh"""
    solve: str
    """What solution/solve.sh does."""
    tree: Tree = field(default_factory=dict)
    """The files of the working directory."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files of the folder, by their paths in it."""
    manifest: str = _TASK
    workspace: str = "workspace"
    """The folder that holds the files of the working directory."""


@dataclass(frozen=True, slots=True)
class CommitChange:
    """What a commit did, with its tests apart from the rest."""

    sha: str
    parent: str
    message: str
    tests: Mapping[str, bytes]
    """Files of tests, and what lies beside them, as the commit left them."""
    patch: bytes
    """The change of everything else."""

    @property
    def solution(self) -> dict[str, bytes]:
        return {"solution/change.patch": self.patch}

    @property
    def hidden(self) -> dict[str, bytes]:
        return {f"tests/files/{name}": content for name, content in self.tests.items()}


def new_tasks(folder: Path, name: str, repository: Path, commits: str | None = None) -> list[Path]:
    """New tasks in this folder: a small one to edit, or those of a commit or a range. What is there stays."""
    if commits is None:
        return [new_task(folder / name)]
    if ".." not in commits:
        return [new_commit_task(folder / name, repository, commits)]
    places = {folder / f"{name}-{sha[:10]}": sha for sha in commits_with_tests(repository, commits)}
    if not places:
        raise UserError(f"no commit of {commits} changes tests; name one commit to write its tests yourself")
    return [new_commit_task(place, repository, sha) for place, sha in places.items() if not place.exists()]


def new_task(folder: Path) -> Path:
    """A small task that is whole and to be edited."""
    instruction = "Write a file `greeting.txt`. It holds one word: hello\n"
    judge = _COMPARE.format(file="greeting.txt", expected="hello")
    return write_task(folder, TaskParts(instruction, judge, "echo hello > greeting.txt"))


def new_repository_task(folder: Path, repository: Path) -> Path:
    """A task about the files of a repository, as its last commit has them."""
    tree = read_tree(repository, "HEAD")
    endings = Counter(PurePosixPath(name).suffix for name in tree)
    # The answer itself is a text file.
    usual = [ending for ending, _ in endings.most_common() if re.fullmatch(r"\.\w+", ending) and ending != ".txt"]
    if not usual:
        raise UserError(f"{repository}: no file has a name with an ending, such as .py")
    pattern = f"*{usual[0]}"
    instruction = (
        f"Count the files in this folder and all folders below it whose names match `{pattern}`. "
        "Write the number to `count.txt`.\n"
    )
    expected = str(sum(PurePosixPath(name).match(pattern) for name in tree))
    solve = f"find . ! -type d -name {shlex.quote(pattern)} | wc -l > count.txt"
    judge = _COMPARE.format(file="count.txt", expected=expected)
    return write_task(folder, TaskParts(instruction, judge, solve, tree))


def new_commit_task(folder: Path, repository: Path, commit: str) -> Path:
    """A task that asks for what a commit did: the tree before it, its message, its tests, and its change."""
    change = read_change(repository, commit)
    runner = find_runner({name: content for name, content in change.tests.items() if is_test(name)})
    quoted = runner.replace("'", "'\\''")  # it stands between single quotes
    judge = (_RUN_TESTS if runner else _NO_TESTS).format(commit=change.sha[:12], runner=quoted)
    tree = read_tree(repository, change.parent)
    files = {**change.hidden, **change.solution}
    return write_task(folder, TaskParts(f"{change.message}\n", judge, APPLY, tree, files))


def commits_with_tests(repository: Path, commits: str) -> list[str]:
    """The commits of a range that change tests, oldest first, without merges."""
    listed = git(repository, "rev-list", "--no-merges", "--reverse", "--end-of-options", commits).decode().split()
    return [sha for sha in listed if any(map(is_test, list_changed(repository, sha)))]


def read_change(repository: Path, commit: str, leave_out: Collection[str] = ()) -> CommitChange:
    """What a commit did to the files that belong into a task."""
    sha, parent = find_commit(repository, commit), find_commit(repository, f"{commit}^1")
    after = _list_task_files(repository, sha)
    kept = {*after, *_list_task_files(repository, parent)}.difference(leave_out)
    changed = [name for name in list_changed(repository, sha) if name in kept]
    tests = {name: after[name] for name in changed if belongs_to_tests(name) and name in after}
    message = git(repository, "log", "-1", "--format=%B", sha).decode(errors="replace").strip()
    patch = read_patch(repository, parent, sha, [name for name in changed if not belongs_to_tests(name)])
    contents = {name: file.content for name, file in read_files(repository, tests).items()}
    return CommitChange(sha, parent, message, contents, patch)


def read_tree(repository: Path, commit: str, leave_out: Collection[str] = ()) -> Tree:
    """The files of a commit that belong into a task."""
    entries = {name: one for name, one in _list_task_files(repository, commit).items() if name not in leave_out}
    size = sum(entry.size for entry in entries.values())
    if size > LARGEST_TREE:
        most = f"expected at most {LARGEST_TREE / 1e6:.0f} MB, which are copied into every task"
        raise UserError(f"{repository}: its files have {size / 1e6:.0f} MB; {most}")
    return read_files(repository, entries)


def write_task(folder: Path, parts: TaskParts) -> Path:
    """Write a new task folder."""
    if not NAME.fullmatch(folder.name):
        raise UserError(f"'{folder.name}' is no name for a task; expected small letters, digits, '-', '_' and '.'")
    if folder.exists():
        raise UserError(f"{folder}: is there already; expected a new folder")
    texts = {
        "README.md": _README.replace("workspace/", f"{parts.workspace}/"),
        "instruction.md": parts.instruction,
        "task.toml": parts.manifest,
        "tests/test.sh": parts.judge,
        "solution/solve.sh": f"#!/bin/bash\nset -e\n{parts.solve}\n",
    }
    for name, content in {**{name: text.encode() for name, text in texts.items()}, **parts.files}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        if name in texts and file.suffix == ".sh":
            file.chmod(0o755)
    (folder / parts.workspace).mkdir()
    write_tree(parts.tree, folder / parts.workspace)
    return folder


def is_test(name: str) -> bool:
    """Whether a file holds tests, by its name.

    >>> is_test("tests/test_shop.py"), is_test("tests/data.json"), is_test("shop/testing.py")
    (True, False, False)
    """
    return _TEST_FILE.search(name) is not None


def belongs_to_tests(name: str) -> bool:
    """Whether a file holds tests, or data or helpers of tests: it lies in a folder of tests."""
    path = PurePosixPath(name)
    return is_test(name) or path.name == "conftest.py" or not _TEST_FOLDERS.isdisjoint(path.parts[:-1])


def find_runner(tests: Mapping[str, bytes]) -> str:
    """The command that runs these test files, or those of the first language among them; empty without any."""
    python = {name: content for name, content in tests.items() if name.endswith(".py")}
    if python:
        own = all(b"unittest" in content and b"pytest" not in content for content in python.values())
        return f"python3 -m {'unittest' if own else 'pytest -q'} {shlex.join(sorted(python))}"
    if any(name.endswith(".go") for name in tests):
        return "go test ./..."
    return f"npx --no-install jest {shlex.join(sorted(tests))}" if tests else ""


def _list_task_files(repository: Path, commit: str) -> dict[str, TreeEntry]:
    return select_task_files(list_tree(repository, commit))


def select_task_files(entries: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
    """The files that belong into a task: neither documents for agents nor tasks with their tests."""
    paths = {name: PurePosixPath(name) for name in entries}
    tasks = {
        path.parent
        for path in paths.values()
        if path.name == "task.toml" and f"{path.parent / 'instruction.md'}" in paths
    }
    folders = {task if task.parent == PurePosixPath() else task.parent for task in tasks}
    left_out = {*MEMORY_FILES, "whet.toml"}
    return {
        name: entry
        for name, entry in entries.items()
        if name not in left_out and folders.isdisjoint(paths[name].parents)
    }
