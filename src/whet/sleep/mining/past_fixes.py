"""Faults that a repository really had: a past fix is taken back in the last commit, and the tests that fail judge."""

import asyncio
import re
from collections.abc import Collection
from functools import partial

from whet.box import Sandbox
from whet.sleep.mining.faults import Baseline, Fault, draft_repair
from whet.sleep.mining.options import MineKind
from whet.sleep.mining.packages import Dropped
from whet.sleep.mining.project import Candidate, Project, place_files
from whet.sleep.mining.proof import Loss
from whet.tasks.git import Tree, TreeFile, git, read_patch
from whet.tasks.skeleton import TaskParts, belongs_to_tests
from whet.tasks.task import TaskLimits

MOST = 20
"""Past fixes of one repository that are tried, the newest first."""
_FIX = re.compile(
    r"\b(?:fix(?:e[sd]|ing)?|bugs?|bugfix(?:es)?|repairs?|corrects?|wrong(?:ly)?|broken|crash(?:es)?)\b", re.IGNORECASE
)


def list_past_fixes(project: Project, baseline: Baseline, without: Collection[str]) -> list[Candidate]:
    """The commits that say that they repair something, and change code which the last commit still has, newest first.

    `without` are names of tasks: a commit that is a task already is not taken back too.
    """
    chosen = ("--no-merges", "--no-renames", "--min-parents=1", baseline.commit)
    listed = git(project.repository, "log", "--name-only", "--format=%x01%H%x00%s", *chosen)
    found = []
    for entry in listed.decode(errors="replace").split("\x01")[1:]:
        head, *names = entry.splitlines()
        sha, _, subject = head.partition("\0")
        code = sorted(name for name in names if name.endswith(".py") and not belongs_to_tests(name))
        known = bool(code) and all(name in baseline.tree for name in code)
        if known and _FIX.search(subject) and f"{project.slug}-{sha[:10]}" not in without:
            draft = partial(draft_past_fix, project, baseline, sha, code)
            found.append(Candidate(f"{project.slug}-fault-{sha[:10]}", MineKind.FAULT, f"taken back: {subject}", draft))
    return found[:MOST]


async def draft_past_fix(project: Project, baseline: Baseline, sha: str, code: Collection[str]) -> TaskParts:
    """A task that asks to repair what a commit once repaired."""
    undo = await asyncio.to_thread(read_patch, project.repository, sha, f"{sha}^1", code)
    broken = await _apply(undo, {name: baseline.tree[name] for name in code}, project.sandbox)
    changed = {name: file for name, file in broken.items() if file != baseline.tree[name]}
    if not changed:
        raise Dropped(Loss.PASSES_UNTOUCHED, "nothing is left of the fix")
    if not all(project.is_safe(file.content) for file in changed.values()):
        raise Dropped(Loss.SECRET, "the code before the fix")
    tests = sorted({test for test, sources in baseline.run.covered.items() if not changed.keys().isdisjoint(sources)})
    return await draft_repair(project, baseline, Fault(changed, tuple(tests)))


async def _apply(patch: bytes, tree: Tree, sandbox: Sandbox) -> dict[str, TreeFile]:
    """Files after a patch. It is applied in a box, so that nothing of this machine can be changed by it."""
    async with place_files(tree) as (folder,), sandbox.open(TaskLimits()) as box:
        await box.upload(folder, box.workdir)
        applied = await box.exec(["git", "apply", "--whitespace=nowarn", "-"], stdin=patch, timeout=60)
        if applied.exit_code:
            raise Dropped(Loss.OVERTAKEN, "later changes touch the same lines")
        found = await box.exec(["ls", "-d", "--", *tree], timeout=60)
        if found.exit_code:
            raise Dropped(Loss.OVERTAKEN, "the fix added a file")
        return {name: TreeFile(await box.read_file(f"{box.workdir}/{name}"), file.mode) for name, file in tree.items()}
