"""Tasks from the commits of a repository: the tree before a commit, its message, and its tests that fail before."""

import asyncio
import re
from functools import partial

from whet.sleep.mining.instruction import ask_for_change, clean_message
from whet.sleep.mining.options import MineKind
from whet.sleep.mining.packages import Dropped
from whet.sleep.mining.project import IMAGE_FILES, Candidate, Project, place_files
from whet.sleep.mining.proof import Loss
from whet.sleep.mining.suite import choose_suite, run_suite
from whet.tasks.git import TreeFile, git
from whet.tasks.skeleton import APPLY, TaskParts, belongs_to_tests, is_test, read_change


def list_commits(project: Project, since: str | None) -> list[Candidate]:
    """The commits that change code and tests in Python, newest first."""
    chosen = ["--no-merges", "--no-renames", *([f"--since={since}"] if since else []), "HEAD"]
    listed = git(project.repository, "log", "--name-only", "--format=%x01%H %P%x00%s", *chosen)
    found = []
    for entry in listed.decode(errors="replace").split("\x01")[1:]:
        head, *names = entry.splitlines()
        hashes, _, subject = head.partition("\0")
        sha, *parents = hashes.split()
        if parents and _changes_both(names):
            draft = partial(draft_commit, project, sha)
            found.append(Candidate(f"{project.slug}-{sha[:10]}", MineKind.COMMIT, subject, draft))
    return found


def _changes_both(names: list[str]) -> bool:
    """Whether these are files of Python code and of its tests."""
    python = [name for name in names if name.endswith(".py")]
    return any(map(is_test, python)) and not all(map(belongs_to_tests, python))


async def draft_commit(project: Project, sha: str) -> TaskParts:
    """A task that asks for what a commit did. Only its tests that fail before it and pass after it will judge."""
    change = await asyncio.to_thread(read_change, project.repository, sha, IMAGE_FILES)
    message = clean_message(change.message, change.patch)
    if not message:
        raise Dropped(Loss.THIN_MESSAGE)
    for name, content in {"the change": change.patch, **change.tests}.items():
        if not project.is_safe(content):
            raise Dropped(Loss.SECRET, name)
    tree = await project.read_tree(change.parent)
    tests = {name: TreeFile(content) for name, content in change.tests.items()}
    suite = choose_suite(change.tests, tree)
    if not suite.files:
        raise Dropped(Loss.NO_TESTS, "the commit only removes tests")
    placed = await project.add_packages({**tree, **tests}, suite)
    tree |= {name: file for name, file in placed.items() if name not in tests}
    async with place_files(tree, tests) as (workspace, overlay):
        after = await run_suite(suite, project.sandbox, workspace, overlay, change.patch)
        if not after.passed:
            raise Dropped(*after.explain())
        before = await run_suite(suite, project.sandbox, workspace, overlay)
    if before.timed_out:
        raise Dropped(*before.explain())
    failing = {test: before.error_of(test) for test in after.passed - before.passed}
    if not failing:
        raise Dropped(Loss.PASSES_UNTOUCHED, "no test of the commit fails before it")
    files = {**change.hidden, **change.solution, **suite.judge_files(failing)}
    manifest = project.manifest(MineKind.COMMIT, sha, find_main_file(change.patch), suite)
    return TaskParts(
        ask_for_change(message, failing), suite.judge(), APPLY, tree, files, manifest, workspace="environment"
    )


def find_main_file(patch: bytes) -> str:
    """The Python file that a patch changes most.

    >>> find_main_file(b"diff --git a/a.py b/a.py\\n+x\\n+y\\ndiff --git a/b.py b/b.py\\n+x\\n")
    'a.py'
    """
    sizes = {
        part.partition("\n")[0].rpartition(" b/")[2]: len(re.findall(r"(?m)^[+-]", part))
        for part in re.split(r"(?m)^diff --git ", patch.decode(errors="replace"))
    }
    return max((name for name in sizes if name.endswith(".py")), key=lambda name: sizes[name], default="")
