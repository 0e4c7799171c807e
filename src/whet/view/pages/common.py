"""What the pages of runs and rollouts share: finding a rollout, how it went in a word, and paths of links."""

import shlex
from collections.abc import Mapping
from enum import StrEnum

from whet.runs.index import IndexRow, RolloutState
from whet.runs.stats.means import is_pass
from whet.scoring import Cause
from whet.view import addresses
from whet.view.library import RunEntry
from whet.view.page import Crumb, NotFoundError, PageRequest, View
from whet.view.snapshot import Snapshot


class Outcome(StrEnum):
    """How a rollout went. Each rollout has one; what is missing and what has not ended are never counted as failed."""

    PASSED = "passed"
    PARTIAL = "partial"
    FAILED = "failed"
    MISSING = "missing"
    UNFINISHED = "unfinished"
    """No result counts yet: it waits, runs, or was interrupted."""


def outcome_of(row: IndexRow) -> Outcome:
    """How a rollout went."""
    return Outcome.UNFINISHED if row.attempt is None else outcome_of_score(row.value)


def outcome_of_score(value: float | None) -> Outcome:
    """What a score means: of a rollout that has ended, or of one judge."""
    if value is None:
        return Outcome.MISSING
    return Outcome.PASSED if is_pass(value) else Outcome.PARTIAL if value > 0 else Outcome.FAILED


def missing_cause(row: IndexRow, *, running: bool) -> Cause | None:
    """Why a rollout that was run has no score. None for one that has a score, runs, or waits. A process that was killed
    leaves its attempt open."""
    if row.attempt is not None:
        return row.cause
    killed = row.state is RolloutState.RUNNING and not running
    return Cause.INTERRUPTED if killed else row.cause


def state_words(row: IndexRow, *, running: bool) -> str:
    """What a rollout without a score does: "running", "not yet", "not run", "to run again"; empty when it has ended."""
    match row.state:
        case RolloutState.RUNNING:
            return "running" if running else ""
        case RolloutState.NOT_RUN:
            return "not yet" if running else "not run"
        case RolloutState.REOPENED:
            return "to run again"
        case RolloutState.ENDED:
            return ""


def find_rollout(view: View, request: PageRequest) -> tuple[Snapshot, IndexRow]:
    """The rollout that the address names, and its run. NotFoundError when the run does not have it: then the server
    tries whether it is the beginning of an id."""
    run, name = request.path["run"], request.path["id"]
    snapshot = view.library.snapshot(run)
    if (row := snapshot.by_id.get(name)) is None:
        raise NotFoundError(f"The run '{run}' has no rollout '{name[:80]}'.")
    return snapshot, row


def whole_id(view: View, path: Mapping[str, str]) -> str | None:
    """The one id that begins as the address says; None when there is not exactly one."""
    if not path.get("run") or not path.get("id"):
        return None
    found = [name for name in view.library.snapshot(path["run"]).by_id if name.startswith(path["id"])]
    return found[0] if len(found) == 1 else None


def run_crumbs(entry: RunEntry, *more: Crumb) -> tuple[Crumb, ...]:
    """The path of links above a page of a run, or of a part of one."""
    own = Crumb(entry.path.name if entry.parent else entry.name, addresses.run(entry.name))
    parent = [Crumb(entry.parent, addresses.run(entry.parent))] if entry.parent else []
    return (Crumb("Runs", addresses.runs()), *parent, own, *more)


def command_line(*words: object) -> str:
    """A command of whet for the reader's terminal."""
    return shlex.join(["whet", *map(str, words)])


def element_id(kind: str, name: str) -> str:
    """The id of an element that stands for something with any name.

    >>> element_id("run", "a b")
    'run-612062'
    """
    return f"{kind}-{name.encode(errors='surrogatepass').hex()}"
