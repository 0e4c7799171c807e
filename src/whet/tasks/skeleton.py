"""New task folders: a small one to edit, one that counts files of a repository, and one made from a commit."""

import io
import re
import shlex
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from whet.errors import UserError

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
_TEST_FILE = re.compile(r"(^|/)(test_[^/]*\.py|[^/]*_test\.(py|go)|[^/]*\.(test|spec)\.[cm]?[jt]sx?)$")


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
    return _write(
        folder, instruction, _COMPARE.format(file="greeting.txt", expected="hello"), "echo hello > greeting.txt"
    )


def new_repository_task(folder: Path, repository: Path) -> Path:
    """A task about the files of a repository, as its last commit has them."""
    tree = _read_tree(repository, "HEAD")
    endings = Counter(PurePosixPath(name).suffix for name in tree.getnames())
    # The answer itself is a text file.
    usual = [ending for ending, _ in endings.most_common() if re.fullmatch(r"\.\w+", ending) and ending != ".txt"]
    if not usual:
        raise UserError(f"{repository}: no file has a name with an ending, such as .py")
    pattern = f"*{usual[0]}"
    instruction = (
        f"Count the files in this folder and all folders below it whose names match `{pattern}`. "
        "Write the number to `count.txt`.\n"
    )
    names = [member.name for member in tree.getmembers() if not member.isdir()]
    expected = str(sum(PurePosixPath(name).match(pattern) for name in names))
    solve = f"find . ! -type d -name {shlex.quote(pattern)} | wc -l > count.txt"
    made = _write(folder, instruction, _COMPARE.format(file="count.txt", expected=expected), solve)
    tree.extractall(made / "workspace", filter="data")
    return made


def new_commit_task(folder: Path, repository: Path, commit: str) -> Path:
    """A task that asks for what a commit did: the tree before it, its message, its tests, and its change."""
    sha, parent = _find_commit(repository, commit), _find_commit(repository, f"{commit}^1")
    tests = {
        name: _git(repository, "show", f"{sha}:{name}") for name in _list_changed(repository, sha) if _is_test(name)
    }
    message = _git(repository, "log", "-1", "--format=%B", sha).decode(errors="replace").strip()
    patch = _git(repository, "diff", "--binary", parent, sha, "--", *_task_files(repository, sha))
    runner = _runner(tests)
    judge = (_RUN_TESTS if runner else _NO_TESTS).format(commit=sha[:12], runner=runner)
    tree = _read_tree(repository, parent)
    made = _write(folder, f"{message}\n", judge, "git apply --whitespace=nowarn /solution/change.patch")
    tree.extractall(made / "workspace", filter="data")
    (made / "solution" / "change.patch").write_bytes(patch)
    for name, content in tests.items():
        file = made / "tests" / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return made


def commits_with_tests(repository: Path, commits: str) -> list[str]:
    """The commits of a range that change tests, oldest first, without merges."""
    listed = _git(repository, "rev-list", "--no-merges", "--reverse", "--end-of-options", commits).decode().split()
    return [sha for sha in listed if any(map(_is_test, _list_changed(repository, sha)))]


def _find_commit(repository: Path, commit: str) -> str:
    _git(repository, "rev-parse", "--git-dir")  # says so if this is no repository
    try:
        return _git(repository, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}").decode().strip()
    except UserError as error:
        raise UserError(f"{repository}: there is no commit '{commit}'") from error


def _list_changed(repository: Path, sha: str) -> list[str]:
    return _git(repository, "diff", "--name-only", "--diff-filter=d", "-z", f"{sha}^1", sha).decode().split("\0")


def _is_test(name: str) -> bool:
    return _TEST_FILE.search(name) is not None


def _runner(tests: Mapping[str, bytes]) -> str:
    """The command that runs these test files, or those of the first language among them; empty without any."""
    python = {name: content for name, content in tests.items() if name.endswith(".py")}
    if python:
        own = all(b"unittest" in content and b"pytest" not in content for content in python.values())
        return f"python3 -m {'unittest' if own else 'pytest -q'} {_quote(python)}"
    if any(name.endswith(".go") for name in tests):
        return "go test ./..."
    return f"npx --no-install jest {_quote(tests)}" if tests else ""


def _quote(names: Iterable[str]) -> str:
    """Names of files as words of a command that stands between single quotes."""
    return shlex.join(sorted(names)).replace("'", "'\\''")


def _write(folder: Path, instruction: str, test: str, solve: str) -> Path:
    if not NAME.fullmatch(folder.name):
        raise UserError(f"'{folder.name}' is no name for a task; expected small letters, digits, '-', '_' and '.'")
    if folder.exists():
        raise UserError(f"{folder}: is there already; expected a new folder")
    files = {
        "README.md": _README,
        "instruction.md": instruction,
        "task.toml": _TASK,
        "tests/test.sh": test,
        "solution/solve.sh": f"#!/bin/bash\nset -e\n{solve}\n",
    }
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if file.suffix == ".sh":
            file.chmod(0o755)
    (folder / "workspace").mkdir()
    return folder


def _read_tree(repository: Path, commit: str) -> tarfile.TarFile:
    """The files of a commit that belong into a task."""
    files = _task_files(repository, commit)
    listed = _git(repository, "ls-tree", "-r", "-l", commit).decode(errors="replace").splitlines()
    size = sum(int(number) for line in listed if (number := line.split()[3]).isdigit())
    if size > LARGEST_TREE:
        most = f"expected at most {LARGEST_TREE / 1e6:.0f} MB, which are copied into every task"
        raise UserError(f"{repository}: its files have {size / 1e6:.0f} MB; {most}")
    return tarfile.open(fileobj=io.BytesIO(_git(repository, "archive", "--format=tar", commit, *files)))


def _task_files(repository: Path, commit: str) -> list[str]:
    """Which files of a commit belong into a task, for git: neither documents for agents nor tasks with their tests."""
    listed = _git(repository, "ls-tree", "-r", "-z", "--name-only", commit).decode(errors="replace")
    names = {PurePosixPath(name) for name in listed.split("\0")}
    tasks = {name.parent for name in names if name.name == "task.toml" and name.with_name("instruction.md") in names}
    folders = {str(task if task.parent == PurePosixPath() else task.parent) for task in tasks}
    return [".", *(f":(exclude,top){name}" for name in sorted({*MEMORY_FILES, "whet.toml", *folders}))]


def _git(repository: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=False)
    except OSError as error:
        raise UserError("git is not installed; tasks of a repository need it") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"git {arguments[0]} in {repository} failed: {said[0] if said else done.returncode}")
    return done.stdout
