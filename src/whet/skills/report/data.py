"""The data of a report, read from the stores of a run: scores of each version, and costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path

from whet.runs.results import ResultReader
from whet.runs.stats.means import Interval, mean_interval
from whet.runs.stats.paired import Difference, difference_interval
from whet.runs.stats.summary import Tally, tally
from whet.runs.store.store import DATABASE, Store
from whet.skills.documents.edits import summary
from whet.skills.documents.history import Versions
from whet.skills.gate.eprocess import EProcess, PlannedEProcess
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.sequential_test import SequentialTest
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
    scores = _scores(run / RunPart.SEARCH)
    return ReportData(
        start=_first(scores.get(done.start, {})),
        proposals=tuple(MeasuredProposal(step, _first(scores.get(step.candidate, {}))) for step in done.steps),
        effects=tuple(_effects(Versions(run), done.steps, scores)),
        costs=tuple(_costs(run)),
        check_rates=tuple(read_check_rates(run / RunPart.TEST, done.start, done.certified))
        if done.certified != done.start
        else (),
        skill_reads=_read_skill_reads(run / RunPart.EXAM),
    )


def _read_skill_reads(exam: Path) -> dict[str, str]:
    with Store.open_read(exam) as store:
        return {skill or "": arm.format_skill_reads() for (_, _, skill), arm in tally(store).items()}


def evidence(attempt: SequentialTest) -> list[tuple[float, float]]:
    """Logarithms of both e-values after each pair: that the candidate is better, and that it is not better enough."""
    better, worse = EProcess(-attempt.terms.margin, above=True), EProcess(attempt.terms.minimum_effect, above=False)
    found = [(0.0, 0.0)]
    for pair in attempt.pairs:
        better.add(pair.worst())
        worse.add(pair.best())
        found.append((better.log, worse.log))
    return found


def guard_evidence(attempt: SequentialTest) -> list[float]:
    """The logarithm of the guard's e-value after each pair; empty without a guard."""
    guard = attempt.terms.guard
    if guard is None:
        return []
    kept, found = PlannedEProcess(guard.margin, attempt.terms.level), [0.0]
    for pair in attempt.pairs:
        kept.add(pair.guard.worst())
        found.append(kept.log)
    return found


def by_task(held: ExamResult) -> dict[str, list[float]]:
    """The measured differences of each task of an exam, from the best task to the worst."""
    tasks: dict[str, list[float]] = {}
    for number, pair in enumerate(held.test.pairs):
        if pair.is_measured:
            tasks.setdefault(held.exam.task_at(number), []).append(pair.worst())
    return dict(sorted(tasks.items(), key=lambda pair: (-fsum(pair[1]) / len(pair[1]), pair[0])))


def _scores(search: Path) -> dict[str, Scores]:
    """The scores of each version on each train task, in the order of measurement."""
    scores: dict[str, dict[str, list[float]]] = {}
    with Store.open_read(search) as store:
        for done in sorted(store.results(), key=lambda done: done.rollout.sample):
            row, value = done.rollout, done.attempt.value
            if value is not None:
                scores.setdefault(row.skill or "", {}).setdefault(row.task, []).append(value)
    return dict(scores)


def _first(scores: Scores) -> Interval | None:
    """The first measurement, which the search decided by; only versions that did well have later ones."""
    return mean_interval({task: values[:1] for task, values in scores.items()})


def _effects(versions: Versions, steps: Sequence[SearchStep], scores: Mapping[str, Scores]) -> Iterator[Effect]:
    for step in steps:
        if step.accepted:
            before, after = scores.get(step.parent, {}), scores.get(step.candidate, {})
            differences = [_mean(after[task]) - _mean(before[task]) for task in before if task in after]
            edits = tuple(map(summary, versions.all[step.candidate].edits))
            yield Effect(step.candidate, edits, difference_interval(differences))


def _costs(run: Path) -> Iterator[Cost]:
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
