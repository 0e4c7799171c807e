"""The summary of a run: means with intervals, pass rates, and missing scores by cause, never counted as zero."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from whet.exchange import Usage
from whet.gateway import Spent
from whet.rollout.result import Result, Spending
from whet.runs.index import IndexRow, Spend
from whet.runs.results import ResultReader
from whet.runs.stats.losses import MANY, UNEVEN, uneven
from whet.runs.stats.means import Interval, PassPoint, is_pass, mean_interval, pass_curve
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.scoring.score import ROUNDING

Arm = tuple[str, str, str | None]
"""Agent, model and digest of the skill, if there is one: what is compared with what."""


@dataclass(slots=True)
class Tally:
    """Counts one arm of a run, rollout by rollout."""

    planned: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)
    """Scores by task."""
    judges: set[str] = field(default_factory=set)
    """Who gave these scores."""
    missing: Counter[Cause] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    """Missing scores by task."""
    rescued: int = 0
    """Rollouts that were scored only after a try that lost its score. What was interrupted does not count. This and
    the calls below are counted where a stored run is read."""
    retried: int = 0
    """Rollouts that were run again although they had a score. Only the last score counts."""
    sent: int = 0
    resent: int = 0
    """Calls of agents that went to a model, and those among them that were sent again after a failure."""
    captured: bool = True
    """Whether all calls were counted."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    """Dollars; None as soon as one part is not known."""
    seconds: float = 0.0
    flags: Counter[str] = field(default_factory=Counter)
    skill_reads: Counter[bool] = field(default_factory=Counter)
    """Rollouts in which the agent read its skill, and rollouts in which it did not, where that is known."""

    def spend(self, result: Result) -> None:
        """Count what an attempt cost; failed attempts cost too."""
        for spending in (result.spending, result.judging):
            if spending is not None:
                self._spend(spending)
        self.seconds += sum(result.seconds.values())

    def _spend(self, spending: Spending | Spend) -> None:
        self.calls += spending.calls
        self.input_tokens += spending.input_tokens
        self.output_tokens += spending.output_tokens
        self.captured = self.captured and spending.captured
        free = spending.captured and spending.calls == 0
        known = self.cost is not None and (spending.cost is not None or free)
        self.cost = (self.cost or 0.0) + (spending.cost or 0.0) if known else None

    def conclude(self, task: str, result: Result) -> None:
        """Count what came of a rollout in the end."""
        if result.score.value is not None:
            self.values.setdefault(task, []).append(result.score.value)
            self.judges.update(result.judgements)
        elif result.score.cause is not None:
            self.missing[result.score.cause] += 1
            self.lost[task] += 1
        self.flags.update(result.flags)
        if result.skill is not None and result.skill.read is not None:
            self.skill_reads[result.skill.read] += 1

    def count_row(self, row: IndexRow, *, running: bool) -> None:
        """Count a rollout by its row in the index of a run."""
        self.planned += 1
        self._spend(row.spent)
        if not running:
            self._spend(row.spent_since)
        self.seconds += row.all_seconds
        self.retried += row.was_retried
        if row.attempt is None:
            return
        if row.value is not None:
            self.values.setdefault(row.rollout.task, []).append(row.value)
            self.judges.update(row.judges or ())
            self.rescued += row.was_lost
        elif row.cause is not None:
            self.missing[row.cause] += 1
            self.lost[row.rollout.task] += 1
        self.flags.update(row.flags)
        if row.skill_read is not None:
            self.skill_reads[row.skill_read] += 1

    def format_skill_reads(self) -> str:
        """How often the skill was read; empty without a skill, or when it is not known."""
        known = self.skill_reads.total()
        return f"read its skill in {self.skill_reads[True]} of {known} rollouts" if known else ""

    @property
    def measured(self) -> int:
        return sum(map(len, self.values.values()))

    @property
    def solved(self) -> int:
        """Rollouts that passed."""
        return sum(is_pass(value) for values in self.values.values() for value in values)

    @property
    def not_run(self) -> int:
        return self.planned - self.measured - self.missing.total()

    def mean(self) -> Interval | None:
        return mean_interval(self.values)

    def bounds(self) -> tuple[float, float] | None:
        """The mean if all missing scores were 0, and if all were 1; None where at most 2 % are missing."""
        ended = self.measured + self.missing.total()
        if self.missing.total() <= MANY * ended:
            return None
        low, high = (
            mean_interval({task: [*self.values.get(task, ()), *[value] * self.lost[task]] for task in self._tasks()})
            for value in (0.0, 1.0)
        )
        return (low.mean, high.mean) if low and high else (0.0, 1.0)

    def reaches(self, least: float) -> bool:
        """Whether the mean is at least this, also if more than 2 % of the scores are missing and were 0."""
        mean, bounds = self.mean(), self.bounds()
        if mean is None or self.not_run:
            return False
        return min(mean.mean, bounds[0] if bounds else 1.0) >= least - ROUNDING

    def _tasks(self) -> list[str]:
        return [*self.values, *(task for task in self.lost if task not in self.values)]

    def pass_rate(self) -> Interval | None:
        return mean_interval({task: [float(is_pass(v)) for v in values] for task, values in self.values.items()})

    def passes(self) -> list[PassPoint]:
        return pass_curve({task: [is_pass(v) for v in values] for task, values in self.values.items()})


def arm_of(row: RolloutRow) -> Arm:
    return row.agent, row.model, row.skill


def tally(store: Store) -> dict[Arm, Tally]:
    """Every arm of a stored run."""
    return {arm: total(tasks.values()) for arm, tasks in cells(store).items()}


def cells(store: Store, rollouts: Collection[str] | None = None) -> dict[Arm, dict[str, Tally]]:
    """Every arm of a stored run, task by task; of all rollouts, or of those with these ids."""
    arms: dict[Arm, dict[str, Tally]] = {}
    calls = store.count_sent_calls()
    for rollout in ResultReader(store):
        row = rollout.row
        if rollouts is not None and row.id not in rollouts:
            continue
        cell = arms.setdefault(arm_of(row), {}).setdefault(row.task, Tally())
        cell.planned += 1
        results = [result for attempt in rollout.attempts if (result := attempt.result) is not None]
        unfinished = [_make_interrupted(*attempt.usage()) for attempt in rollout.attempts if not attempt.has_result]
        for result in (*results, *unfinished):
            cell.spend(result)
        if (result := rollout.result) is not None:
            cell.conclude(row.task, result)
            cell.rescued += result.score.value is not None and any(map(_is_lost, results[:-1]))
        cell.retried += any(attempt.is_superseded for attempt in rollout.attempts)
        sent, resent = calls.get(row.id, (0, 0))
        cell.sent, cell.resent = cell.sent + sent, cell.resent + resent
    return arms


def tally_rows(rows: Iterable[IndexRow], *, running: bool = False) -> dict[Arm, Tally]:
    """Every arm of a run, from its index: as `tally` counts it, but for the calls that were sent. While the run is
    running, what running attempts have used up to now is left out, because its cost is not known yet."""
    return {arm: total(tasks.values()) for arm, tasks in cells_of_rows(rows, running=running).items()}


def cells_of_rows(rows: Iterable[IndexRow], *, running: bool = False) -> dict[Arm, dict[str, Tally]]:
    """The same, task by task."""
    arms: dict[Arm, dict[str, Tally]] = {}
    for row in rows:
        tasks = arms.setdefault(arm_of(row.rollout), {})
        # Most rows have a tally already, and an empty one takes longer to make than a row to count.
        if (cell := tasks.get(row.rollout.task)) is None:
            cell = tasks[row.rollout.task] = Tally()
        cell.count_row(row, running=running)
    return arms


def _is_lost(result: Result) -> bool:
    return result.score.cause not in (None, Cause.INTERRUPTED)


def _make_interrupted(calls: int, usage: Usage) -> Result:
    """What an attempt cost that never came to a result."""
    spending = Spending(calls=calls, input_tokens=usage.input, output_tokens=usage.output)
    return Result(score=Score.missing(Cause.INTERRUPTED, ""), spending=spending)


def total(parts: Iterable[Tally]) -> Tally:
    """Arms of a run, or tasks of an arm, as one."""
    whole = Tally()
    for part in parts:
        whole.planned += part.planned
        for task, values in part.values.items():
            whole.values.setdefault(task, []).extend(values)
        whole.judges |= part.judges
        whole.missing.update(part.missing)
        whole.lost.update(part.lost)
        whole.rescued += part.rescued
        whole.retried += part.retried
        whole.sent += part.sent
        whole.resent += part.resent
        whole.captured = whole.captured and part.captured
        whole.calls += part.calls
        whole.input_tokens += part.input_tokens
        whole.output_tokens += part.output_tokens
        whole.cost = None if whole.cost is None or part.cost is None else whole.cost + part.cost
        whole.seconds += part.seconds
        whole.flags.update(part.flags)
        whole.skill_reads.update(part.skill_reads)
    return whole


@dataclass(frozen=True, slots=True)
class UnevenArms:
    """Two arms of which one loses more scores than chance explains."""

    more: Arm
    less: Arm
    p: float
    """Of Fisher's exact test."""


def uneven_losses(arms: Mapping[Arm, Tally]) -> list[UnevenArms]:
    """Every two arms that lose scores unevenly: what is left of them may be biased."""
    found = []
    for (one, mine), (other, theirs) in combinations(arms.items(), 2):
        counts = [(arm.missing.total(), arm.measured + arm.missing.total()) for arm in (mine, theirs)]
        if all(of for _, of in counts) and (p := uneven(*counts[0], *counts[1])) <= UNEVEN:
            shares = [lost / of for lost, of in counts]
            more, less = (one, other) if shares[0] > shares[1] else (other, one)
            found.append(UnevenArms(more, less, p))
    return found


def sum_spent(arms: Iterable[Tally]) -> Spent:
    """What the attempts so far have used of the limits of their run."""
    whole = total(arms)
    tokens = {"input_tokens": whole.input_tokens, "output_tokens": whole.output_tokens}
    return Spending(calls=whole.calls, cost=whole.cost, **tokens).as_spent()


def skill_names(store: Store) -> Mapping[str | None, str]:
    """Digest of a skill -> what people call it."""
    return {None: "-", **{skill.digest: f"{skill.name}@{skill.digest[:6]}" for skill in store.skills()}}
