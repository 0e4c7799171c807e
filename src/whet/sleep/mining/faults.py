"""Tasks from faults: a change breaks code that tests cover, and the tests that fail are the judge."""

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whet.ids import digest
from whet.sleep.mining.instruction import NAMED, ask_for_repair, hide_names
from whet.sleep.mining.mutations import Mutation, list_mutations
from whet.sleep.mining.options import MineKind
from whet.sleep.mining.packages import Dropped
from whet.sleep.mining.project import Candidate, Project, place_files
from whet.sleep.mining.proof import Loss
from whet.sleep.mining.suite import SECONDS, Suite, SuiteRun, choose_suite, read_tests, run_suite
from whet.tasks.git import Tree, TreeFile, find_commit
from whet.tasks.skeleton import TaskParts, belongs_to_tests

MOST = 60
"""Faults that are tried in one repository."""
SHORTEST_SEC = 20.0
"""How long the tests of a fault may take at least."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The last commit of a repository, and what its tests do there."""

    commit: str
    tree: Tree
    suite: Suite
    run: SuiteRun

    def tests_of(self, source: str, line: int) -> tuple[str, ...]:
        """The test files that run a line."""
        return tuple(
            sorted(test for test, sources in self.run.covered.items() if line in sources.get(source, frozenset()))
        )


async def measure_baseline(project: Project) -> Baseline:
    """Run all tests of the last commit, and note which lines they run. Dropped if none of them passes."""
    commit = find_commit(project.repository, "HEAD")
    tree = await project.read_tree(commit)
    suite = choose_suite(read_tests(tree), tree)
    tree = await project.add_packages(tree, suite)
    if not suite.files:
        raise Dropped(Loss.NO_TESTS, "no Python test file")
    async with place_files(tree) as (workspace,):
        run = await run_suite(suite, project.sandbox, workspace, trace=True)
    if not run.passed:
        raise Dropped(*run.explain())
    return Baseline(commit, tree, suite, run)


def list_faults(project: Project, baseline: Baseline, seed: int) -> list[Candidate]:
    """Faults in code that passing tests run: one for each function, in an order that the seed decides."""
    chance = random.Random(f"{seed} {baseline.commit}")  # noqa: S311 - reproducible, no secret
    found = []
    for source, lines in sorted(_covered_lines(baseline.run).items()):
        if source not in baseline.tree or belongs_to_tests(source):
            continue
        functions = defaultdict(list)
        for one in list_mutations(baseline.tree[source].content, lines):
            functions[one.function].append(one)
        found += [(source, chance.choice(choices)) for _, choices in sorted(functions.items())]
    chance.shuffle(found)
    return [_candidate(project, baseline, source, mutation) for source, mutation in found[:MOST]]


def _covered_lines(run: SuiteRun) -> Mapping[str, set[int]]:
    lines: defaultdict[str, set[int]] = defaultdict(set)
    for sources in run.covered.values():
        for source, covered in sources.items():
            lines[source] |= covered
    return lines


def _candidate(project: Project, baseline: Baseline, source: str, mutation: Mutation) -> Candidate:
    place = f"{baseline.commit} {source} {mutation.start} {mutation.end}"
    name = f"{project.slug}-fault-{digest(place.encode(), mutation.text)[:10]}"
    title = f"{mutation.operator} in {source}, {mutation.function}"
    return Candidate(name, MineKind.FAULT, title, partial(draft_fault, project, baseline, source, mutation))


async def draft_fault(project: Project, baseline: Baseline, source: str, mutation: Mutation) -> TaskParts:
    """A task that asks to repair a small fault."""
    original = baseline.tree[source]
    broken = {source: TreeFile(mutation.apply(original.content), original.mode)}
    return await draft_repair(project, baseline, Fault(broken, baseline.tests_of(source, mutation.line)))


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in the code."""

    broken: Tree
    """The files that hold the fault, with it."""
    tests: tuple[str, ...]
    """The test files that may notice it."""


async def draft_repair(project: Project, baseline: Baseline, fault: Fault) -> TaskParts:
    """A task that asks to repair a fault. The tests that it breaks judge, as they are in the repository."""
    tree = {**baseline.tree, **fault.broken}
    suite = Suite(baseline.suite.program, fault.tests, baseline.suite.path)
    failing = await _find_failing(project, baseline, tree, suite)
    if not failing:
        raise Dropped(Loss.PASSES_UNTOUCHED, "no test notices the fault")
    if len(failing) > NAMED:
        raise Dropped(Loss.BREAKS_TOO_MUCH, f"{len(failing)} tests fail")
    tests = {f"tests/files/{name}": file.content for name, file in tree.items() if _is_own_test(name)}
    solution = {f"solution/files/{name}": baseline.tree[name].content for name in fault.broken}
    instruction = ask_for_repair(hide_names(failing, fault.broken))
    manifest = project.manifest(MineKind.FAULT, baseline.commit, min(fault.broken), suite)
    files = {**tests, **solution, **suite.judge_files(failing)}
    solve = "cp -r /solution/files/. ."
    return TaskParts(instruction, suite.judge(), solve, tree, files, manifest, workspace="environment")


async def _find_failing(project: Project, baseline: Baseline, tree: Tree, suite: Suite) -> dict[str, str]:
    """The tests that fail with a fault and passed without it, with their errors."""
    if not suite.files:
        return {}
    async with place_files(tree) as (workspace,):
        # The baseline was traced, so it took longer than this run should. Some faults loop for ever.
        seconds = max(SHORTEST_SEC, 3 * baseline.run.seconds)
        run = await run_suite(suite, project.sandbox, workspace, seconds=min(seconds, SECONDS))
    if run.timed_out:
        raise Dropped(*run.explain())
    judging = {test for test in baseline.run.passed if test.partition("::")[0] in suite.files}
    return {test: run.error_of(test) for test in judging - run.passed}


def _is_own_test(name: str) -> bool:
    return belongs_to_tests(name) and not Path(name).parts[0].startswith(".")
