"""The tasks of a comparison: the samples of both arms, their difference, and how to find the tasks that matter."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum, sqrt

from whet.look.numbers import score
from whet.runs.index import IndexRow
from whet.runs.stats.compare import TIE, ComparedArm, sample_variance, why_unpaired
from whet.runs.stats.means import is_pass
from whet.runs.stats.summary import arm_of
from whet.view import addresses
from whet.view.comparisons import Comparisons, PairOfArms
from whet.view.library import Library
from whet.view.pages.common import missing_cause, outcome_of, state_words

ROWS = 100
"""Tasks on a page."""


class Only(StrEnum):
    """Which tasks are shown."""

    WINS = "wins"
    LOSSES = "losses"
    TIES = "ties"
    FLIPPED = "flipped"
    """Most samples pass in one arm, and not in the other."""
    UNPAIRED = "unpaired"


ONLY_WORDS = {
    Only.WINS: "only wins",
    Only.LOSSES: "only losses",
    Only.TIES: "only ties",
    Only.FLIPPED: "only flipped",
    Only.UNPAIRED: "only not compared",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout as a dot."""

    rollout: str
    value: float | None
    outcome: str
    title: str
    address: str
    here: bool = False


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in both arms."""

    task: str
    means: tuple[float | None, float | None]
    difference: float | None
    """None when it is not compared."""
    reason: str
    """Why it is not compared."""
    digests: tuple[str, str] | None
    """Of a task that was changed in between."""
    noise: float | None
    """The standard error of the difference; None when an arm has fewer than two samples."""
    cost: float | None
    """Of both arms; None when it is not known."""
    flipped: bool

    def is_one_of(self, only: Only | None) -> bool:
        """Whether a filter lets it through."""
        match only:
            case None:
                return True
            case Only.UNPAIRED:
                return self.difference is None
            case Only.FLIPPED:
                return self.flipped
        if self.difference is None:
            return False
        sign = (self.difference > TIE) - (self.difference < -TIE)
        return sign == {Only.WINS: 1, Only.LOSSES: -1, Only.TIES: 0}[only]


SORTS: dict[str, tuple[str, Callable[[TaskRow], float | None]]] = {
    "size": ("largest difference", lambda row: None if row.difference is None else -abs(row.difference)),
    "gains": ("gains first", lambda row: None if row.difference is None else -row.difference),
    "losses": ("losses first", lambda row: row.difference),
    "noise": ("noisiest", lambda row: None if row.noise is None else -row.noise),
    "cost": ("most expensive", lambda row: None if row.cost is None else -row.cost),
}


@dataclass(frozen=True, slots=True)
class ShownTask:
    """A task with its samples."""

    row: TaskRow
    first: Sequence[Sample]
    second: Sequence[Sample]
    traces: str | None
    """The address of the two traces that show the difference best."""


def list_tasks(comparisons: Comparisons, pair: PairOfArms) -> Sequence[TaskRow]:
    """Every task of both arms, in the order of the plan. Kept, because there may be thousands."""
    sides = [(side.run, side.arm, side.name) for side in pair.sides]
    tasks = dict.fromkeys([*pair.first.tasks, *pair.second.tasks])
    return comparisons.keep(
        ("tasks", *sides), [run for run, *_ in sides], lambda: [_make_row(pair, task) for task in tasks]
    )


def choose_tasks(rows: Sequence[TaskRow], text: str, only: Only | None, sort: str) -> list[TaskRow]:
    """The rows that a filter lets through, sorted. Rows that a sort knows nothing of are last."""
    words = text.casefold().split()
    found = [row for row in rows if row.is_one_of(only) and all(word in row.task.casefold() for word in words)]
    read = SORTS[sort][1]

    def key(row: TaskRow) -> tuple[bool, float]:
        value = read(row)
        return value is None, value or 0.0

    return sorted(found, key=key)


def show_tasks(library: Library, pair: PairOfArms, rows: Sequence[TaskRow]) -> list[ShownTask]:
    """The rows of one page with their samples."""
    tasks = {row.task for row in rows}
    first, second = (_read_samples(library, side, tasks) for side in pair.sides)
    return [_show_task(pair, row, first.get(row.task, ()), second.get(row.task, ())) for row in rows]


def _show_task(pair: PairOfArms, row: TaskRow, first: Sequence[Sample], second: Sequence[Sample]) -> ShownTask:
    return ShownTask(row, first, second, _find_traces(pair, first, second, row.difference or 0.0))


def _read_samples(library: Library, side: ComparedArm, tasks: Collection[str]) -> Mapping[str, list[Sample]]:
    snapshot = library.snapshot(side.run)
    samples: dict[str, list[Sample]] = {}
    for row in snapshot.rows:
        if row.rollout.task in tasks and arm_of(row.rollout) == side.arm:
            made = _make_sample(side.run, row, running=snapshot.running)
            samples.setdefault(row.rollout.task, []).append(made)
    return samples


def _make_sample(run: str, row: IndexRow, *, running: bool) -> Sample:
    cause = missing_cause(row, running=running)
    outcome = outcome_of(row)
    how = f"missing: {cause}" if cause else state_words(row, running=running) or f"{outcome}, {score(row.value)}"
    title = f"sample {row.rollout.sample}: {how}"
    return Sample(row.rollout.id, row.value, outcome, title, addresses.rollout(run, row.rollout.id))


def _make_row(pair: PairOfArms, task: str) -> TaskRow:
    reason = why_unpaired(*pair.sides, task)
    values = [side.tasks[task].values.get(task, []) if task in side.tasks else [] for side in pair.sides]
    old, new = (fsum(one) / len(one) if one else None for one in values)
    difference = None if reason is not None or old is None or new is None else new - old
    passing = [sum(map(is_pass, one)) / len(one) > 0.5 for one in values if one]
    return TaskRow(
        task=task,
        means=(old, new),
        difference=difference,
        reason=reason or "",
        digests=_changed_digests(pair, task),
        noise=sqrt(sample_variance(*values)) if difference is not None and min(map(len, values)) > 1 else None,
        cost=_sum_costs(pair, task),
        flipped=difference is not None and passing[0] != passing[1],
    )


def _changed_digests(pair: PairOfArms, task: str) -> tuple[str, str] | None:
    if not all(task in side.tasks for side in pair.sides):
        return None
    old, new = (side.digests[task] for side in pair.sides)
    return None if old == new else (old, new)


def _sum_costs(pair: PairOfArms, task: str) -> float | None:
    costs = [side.tasks[task].cost for side in pair.sides if task in side.tasks]
    known = [cost for cost in costs if cost is not None]
    return fsum(known) if len(known) == len(costs) else None


def _find_traces(pair: PairOfArms, first: Sequence[Sample], second: Sequence[Sample], difference: float) -> str | None:
    """The two rollouts that differ most in the direction of the task's difference; the first ones if all are alike."""
    if not first or not second:
        return None
    first, second = (list(_with_score(side)) or side for side in (first, second))

    def order(one: Sample) -> float:
        return (one.value or 0.0) * (1 if difference > 0 else -1 if difference < 0 else 0)

    old, new = min(first, key=order), max(second, key=order)
    return addresses.compare_traces((pair.first.run, old.rollout), (pair.second.run, new.rollout))


def _with_score(samples: Sequence[Sample]) -> Iterator[Sample]:
    return (one for one in samples if one.value is not None)
