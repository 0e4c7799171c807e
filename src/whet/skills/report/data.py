"""The data of a report, read from the stores of a run: scores of each version, and costs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path

from whet.runs.results import ResultReader
from whet.runs.stats.means import Interval, mean_interval
from whet.runs.stats.paired import Difference, difference_interval
from whet.runs.stats.summary import Tally, tally
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import DATABASE, Store
from whet.skills.documents.edits import summary
from whet.skills.documents.history import Versions
from whet.skills.measurement import RunPart
from whet.skills.proposers.base import SearchStep
from whet.skills.report.criteria import CheckRate, read_check_rates
from whet.skills.search.two_tiers import SearchResult

PARTS = {RunPart.SEARCH: "search", RunPart.EXAM: "exams", RunPart.TEST: "test", RunPart.PROPOSALS: "proposals"}
"""The stores of a run, and their names in the report."""

Scores = Mapping[str, Sequence[float]]
"""By task."""


@dataclass(frozen=True, slots=True)
class MeasuredProposal:
    """A proposal on the training tasks."""

    step: SearchStep
    interval: Interval | None
    """None when no score is recorded."""
    edits: tuple[str, ...] = ()
    """What it changes, in words."""


@dataclass(frozen=True, slots=True)
class Effect:
    """How the edits of an accepted proposal changed the scores on the train tasks, from all measurements."""

    version: str
    edits: tuple[str, ...]
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one part of a run."""

    part: str
    rollouts: int
    tokens: int | None
    dollars: float | None
    """None when unknown."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """What plots and tables show besides the verdicts."""

    start: Interval | None
    """The first version on the train tasks."""
    proposals: tuple[MeasuredProposal, ...]
    effects: tuple[Effect, ...]
    costs: tuple[Cost, ...]
    check_rates: tuple[CheckRate, ...] = ()
    """In the held-out test, if there was one."""
    skill_reads: Mapping[str, str] = field(default_factory=dict)
    """How often agents read each version in the exams, in words, by its digest."""


def read_report_data(run: Path, done: SearchResult) -> ReportData:
    """Read the data of a report from the stores of a run."""
    scores, versions = _scores(run / RunPart.SEARCH), Versions(run)
    return ReportData(
        start=first_mean(scores.get(done.start, {})),
        proposals=tuple(
            MeasuredProposal(step, first_mean(scores.get(step.candidate, {})), _list_edits(versions, step.candidate))
            for step in done.steps
        ),
        effects=tuple(_effects(versions, done.steps, scores)),
        costs=tuple(read_costs(run)),
        check_rates=tuple(read_check_rates(run / RunPart.TEST, done.start, done.certified))
        if done.certified != done.start
        else (),
        skill_reads=_read_skill_reads(run / RunPart.EXAM),
    )


def _read_skill_reads(exam: Path) -> dict[str, str]:
    with Store.open_read(exam) as store:
        return {skill or "": arm.format_skill_reads() for (_, _, skill), arm in tally(store).items()}


def _scores(search: Path) -> dict[str, Scores]:
    with Store.open_read(search) as store:
        return group_scores((done.rollout, done.attempt.value) for done in store.results())


def group_scores(measured: Iterable[tuple[RolloutRow, float | None]]) -> dict[str, Scores]:
    """The scores of each version on each train task, in the order of measurement."""
    scores: dict[str, dict[str, list[float]]] = {}
    for row, value in sorted(measured, key=lambda one: one[0].sample):
        if value is not None:
            scores.setdefault(row.skill or "", {}).setdefault(row.task, []).append(value)
    return dict(scores)


def first_mean(scores: Scores) -> Interval | None:
    """The first measurement, which the search decided by; only versions that did well have later ones."""
    return mean_interval({task: values[:1] for task, values in scores.items()})


def _effects(versions: Versions, steps: Sequence[SearchStep], scores: Mapping[str, Scores]) -> Iterator[Effect]:
    for step in steps:
        if step.accepted:
            found = measure_effect(scores.get(step.parent, {}), scores.get(step.candidate, {}))
            yield Effect(step.candidate, _list_edits(versions, step.candidate), found)


def measure_effect(before: Scores, after: Scores) -> Difference | None:
    """How scores differ on the tasks that both versions did, from all measurements; None when there is none."""
    return difference_interval([_mean(after[task]) - _mean(before[task]) for task in before if task in after])


def _list_edits(versions: Versions, digest: str) -> tuple[str, ...]:
    return tuple(map(summary, versions.all[digest].edits))


def read_costs(run: Path) -> Iterator[Cost]:
    """The cost of attempts with a result. Attempts during which whet was killed are left out, so that the report does
    not depend on them."""
    for folder, name in PARTS.items():
        if not (run / folder / DATABASE).is_file():
            continue
        whole = Tally()
        with Store.open_read(run / folder) as store:
            for rollout in ResultReader(store):
                whole.planned += 1
                for attempt in rollout.attempts:
                    if (result := attempt.result) is not None:
                        whole.spend(result)
        if whole.planned:
            yield Cost(name, whole.planned, _tokens(whole), whole.cost)


def _tokens(whole: Tally) -> int | None:
    return whole.input_tokens + whole.output_tokens if whole.captured else None


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
