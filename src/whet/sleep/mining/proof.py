"""Proves a task before it is used: the untouched tree must fail and the known solution must pass, several times."""

import asyncio
import re
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.rollout.resources import RunResources
from whet.rollout.result import Result
from whet.runs.checks.tasks import attempt_with, tail_outputs
from whet.runs.plan import check_tasks
from whet.runs.stats.means import is_pass
from whet.scoring import Cause
from whet.tasks import read_tasks

TIMES = 3
"""How often each side is run."""
LONGEST = 200
"""Characters of what is told about a loss."""
_MISSING_MODULE = re.compile(r"(?:No module named|No package metadata was found for) '?([\w.-]+)")
_MISSING_PROGRAM = re.compile(r"(?m)(?:^|: )([\w./-]+): (?:command )?not found$")
_NO_TESTS = re.compile(r"(?m)collected 0 items|^no tests ran|^Ran 0 tests|^NO TESTS RAN|^no tests were collected")
_TIMEOUT = re.compile(r"did not end within|timed out|ran out of time")


class Loss(StrEnum):
    """Why a candidate did not become a task."""

    THIN_MESSAGE = "message says nothing"
    """No instruction can be made of the commit message."""
    NO_TESTS = "no tests collected"
    """The test program ran no test."""
    PASSES_UNTOUCHED = "passes untouched"
    """The judge accepts the tree as the agent would get it."""
    BREAKS_TOO_MUCH = "breaks too much"
    """A fault that so many tests notice gives itself away."""
    OVERTAKEN = "overtaken"
    """A past fix cannot be taken back, because the code has changed since."""
    SOLUTION_FAILS = "solution fails"
    """The judge does not accept the known solution."""
    FLAKY = "flaky"
    """The same tree was judged differently."""
    ENVIRONMENT = "environment"
    """The box lacks a module or a program that the tests need."""
    TIMEOUT = "timeout"
    """The tests did not end in time."""
    SECRET = "secret"  # noqa: S105 - a cause, no password
    """A file that the task needs holds a secret."""
    UNREADABLE = "not runnable"
    """The task cannot be made of these files, or this sandbox cannot run it."""


class Proof(BaseModel):
    """What came of the attempt to prove a task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cause: Loss | None = None
    """None if the task is proved."""
    detail: str = ""
    nothing: tuple[float | None, ...] = ()
    """Scores of the untouched tree. None is a missing score."""
    solution: tuple[float | None, ...] = ()
    """Scores of the known solution."""

    @property
    def proved(self) -> bool:
        return self.cause is None


async def prove(folder: Path, resources: RunResources, times: int = TIMES) -> Proof:
    """Run the untouched tree and the known solution of a task folder, `times` times each, and compare the scores.

    `resources` come from `whet.runs.checks.tasks.open_resources`. Ends at the first score that disproves the task.
    """
    try:
        (task,) = read_tasks(folder)
        check_tasks([task], resources.sandbox, resources.host_env)
    except UserError as error:
        return Proof(cause=Loss.UNREADABLE, detail=str(error)[:LONGEST])
    nothing: list[float | None] = []
    solution: list[float | None] = []
    for turn in range(times):
        idle, solved = await asyncio.gather(*(attempt_with(agent, task, resources) for agent in ("nop", "oracle")))
        nothing.append(idle.score.value)
        solution.append(solved.score.value)
        if found := _find_loss(idle, solved, first=turn == 0):
            cause, detail = found
            return Proof(cause=cause, detail=detail, nothing=tuple(nothing), solution=tuple(solution))
    return Proof(nothing=tuple(nothing), solution=tuple(solution))


def _find_loss(idle: Result, solved: Result, *, first: bool) -> tuple[Loss, str] | None:
    if idle.score.value is not None and is_pass(idle.score.value):
        return (Loss.PASSES_UNTOUCHED, "") if first else (Loss.FLAKY, "the untouched tree failed and then passed")
    if solved.score.value is None or not is_pass(solved.score.value):
        return _explain(solved) if first else (Loss.FLAKY, "the solution passed and then failed")
    if idle.score.value is None:  # a judge without a verdict on the untouched tree has not failed it
        return _explain(idle)
    return None


def _explain(result: Result) -> tuple[Loss, str]:
    """Why a result is no pass, by what the solution and the tests printed."""
    report = result.report
    reason = report.error if report is not None and report.error else result.score.reason
    printed = "\n".join((*tail_outputs(result).values(), reason or ""))
    if result.score.cause in {Cause.SANDBOX, Cause.SETUP}:
        return Loss.UNREADABLE, (reason or "")[:LONGEST]
    return explain_output(printed) or (Loss.SOLUTION_FAILS, (reason or "")[:LONGEST])


def explain_output(printed: str) -> tuple[Loss, str] | None:
    """The cause that the output of a test program gives away; None if it only says that tests failed.

    >>> explain_output("E   ModuleNotFoundError: No module named 'yaml'")
    (<Loss.ENVIRONMENT: 'environment'>, 'yaml')
    """
    if missing := _MISSING_MODULE.search(printed) or _MISSING_PROGRAM.search(printed):
        return Loss.ENVIRONMENT, missing[1]
    if _NO_TESTS.search(printed):
        return Loss.NO_TESTS, ""
    if late := _TIMEOUT.search(printed):
        return Loss.TIMEOUT, late[0]
    return None
