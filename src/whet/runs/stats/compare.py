"""Two arms on the tasks that both did: what differs, how sure that is, and what is missing on which side."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from statistics import variance

from whet.errors import UserError
from whet.runs.stats.losses import UNEVEN, uneven
from whet.runs.stats.means import LEVEL, is_pass, pass_at_k, pass_hat_k
from whet.runs.stats.paired import (
    Difference,
    detectable,
    difference_interval,
    holm,
    samples_needed,
    sign_flip_test,
    tasks_needed,
)
from whet.runs.stats.summary import Arm, Tally, cells, skill_names, total
from whet.runs.store.store import Store

NOT_RUN = "not run"
TIE = 1e-9
"""Means of a task that are closer than this tie."""


class Key(StrEnum):
    """In what two arms differ; in the order of an arm."""

    AGENT = "agent"
    MODEL = "model"
    SKILL = "skill"


class Verdict(StrEnum):
    """What may be said of the second arm, on the paired tasks."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"
    """The test does not tell the arms apart."""
    WITHHELD = "withheld"
    """The arms lost scores unevenly, so that what is left may be biased."""


@dataclass(frozen=True, slots=True)
class ComparedArm:
    """One arm of one run, task by task."""

    name: str
    tasks: Mapping[str, Tally]
    digests: Mapping[str, str]
    """Of the tasks: one that has been changed is another task."""
    arm: Arm | None = None
    """None when it does not come from a run."""
    run: str = ""
    """What the run is called."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What an arm spent on the paired tasks, all attempts included, for each rollout that passed."""

    solved: int
    cost: float | None
    """Dollars; None when they are not known or nothing was solved."""
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Missing:
    """What an arm lacks of the tasks that both arms plan."""

    planned: int
    causes: Mapping[str, int]
    rescued: int
    """Rollouts that were scored only after a try that lost its score."""
    retried: int
    """Rollouts that were run again although they had a score."""
    sent: int
    resent: int
    """Calls that went to the model, and those among them that were sent again after a failure."""

    @property
    def lost(self) -> int:
        return sum(self.causes.values())


@dataclass(frozen=True, slots=True)
class Uneven:
    """What one arm lost more of than the other, by Fisher's exact test."""

    what: str
    first: tuple[int, int]
    second: tuple[int, int]
    """How many, of how many."""
    p: float


@dataclass(frozen=True, slots=True)
class PassDifference:
    """By how much the chances differ that one, or all, of k samples pass."""

    k: int
    any_of_k: Difference
    all_of_k: Difference


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second arm held against the first. Differences are positive where the second is better."""

    first: str
    second: str
    difference: Difference | None
    """None when no task has scores in both arms. Its interval is for the mean over all tasks of this kind."""
    p: float
    """Of the sign-flip test, which decides."""
    corrected_p: float
    """Corrected for the number of comparisons that were made together (Holm)."""
    comparisons: int
    """So many were made together. The intervals of all of them hold together in 95 % of cases (Bonferroni)."""
    wins: int
    ties: int
    losses: int
    passes: tuple[PassDifference, ...]
    samples: int
    """The fewest samples that a paired task has in either arm."""
    detectable: float | None
    """The smallest true difference that these tasks and samples show in 80 % of cases."""
    tasks_needed: int | None
    """Tasks that would show a difference of this size; None when that is known to be no use."""
    samples_needed: int | None
    unpaired: Mapping[str, int]
    """Tasks without a partner, by reason."""
    judged_otherwise: int
    """Paired tasks whose scores come from other judges in one arm than in the other."""
    missing: tuple[Missing, Missing]
    uneven: tuple[Uneven, ...]
    """Where the arms lost scores, tries or calls to a different extent, which biases the comparison."""
    extremes: tuple[float, float]
    """The difference if all missing scores were the worst for the second arm, or the best."""
    effort: tuple[Effort, Effort]
    skill_reads: tuple[str, str] = ("", "")
    """How often each arm read its skill, in words; empty without a skill."""

    @property
    def verdict(self) -> Verdict:
        """The test decides, unless the arms lost scores unevenly, or rollouts with a score were run again."""
        if self.uneven or any(side.retried for side in self.missing):
            return Verdict.WITHHELD
        if self.difference is None or self.corrected_p > 1 - LEVEL:
            return Verdict.UNDECIDED
        return Verdict.BETTER if self.difference.mean > 0 else Verdict.WORSE

    @property
    def disagrees(self) -> bool:
        """Whether the test tells the arms apart where the interval does not, or the other way round."""
        return self.difference is not None and self.difference.excludes_zero != (self.corrected_p <= 1 - LEVEL)


@dataclass(frozen=True, slots=True)
class RunPart:
    """Some rollouts of a run, and what they are called in place of the folder."""

    folder: Path
    name: str
    rollouts: Collection[str] | None = None
    """Ids of the rollouts that count; None for all."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ReadRun:
    """What a stored run holds, arm by arm and task by task."""

    name: str
    """What it is called in place of the folder."""
    arms: Mapping[Arm, Mapping[str, Tally]]
    digests: Mapping[str, str]
    """Of the tasks."""
    skills: Mapping[str | None, str]
    """Names of skills by their digests."""

    def __str__(self) -> str:
        return self.name

    def words(self, arm: Arm) -> tuple[str, str, str]:
        """What people call the parts of an arm."""
        agent, model, skill = arm
        return agent, model, self.skills[skill] if skill else "no skill"

    def sides(self, name: Callable[[Arm], str]) -> dict[Arm, ComparedArm]:
        """All arms, with these names."""
        return {arm: ComparedArm(name(arm), tasks, self.digests, arm, self.name) for arm, tasks in self.arms.items()}


Run = Path | RunPart | ReadRun


def compare_arms(run: Run, by: Key | None = None) -> list[Comparison]:
    """The arms of one run, each with each; with `by`, those that differ in that alone."""
    sides = _sides_of_one_run(run)
    pairs = [(sides[a], sides[b]) for a, b in combinations(sides, 2) if by is None or _differ_only_in(by, a, b)]
    if not pairs:
        found = f"no two arms that differ in {by} alone" if by else "only one arm; name a second run"
        raise UserError(f"{run}: has {found}")
    return _compare_all(pairs)


def compare_runs(first: Run, second: Run, by: Key | None = None) -> list[Comparison]:
    """The arms of two runs: those that are the same, or the only ones; with `by`, those that differ in that alone."""
    left, right = (_sides_of_run(run) for run in (first, second))
    only = len(left) == len(right) == 1
    pairs = [(left[a], right[b]) for a in left for b in right if (_differ_only_in(by, a, b) if by else a == b or only)]
    if not pairs:
        wanted = f"arms that differ in {by} alone" if by else "an arm that is in both, or --by agent, model or skill"
        raise UserError(f"{first} and {second}: nothing to compare; expected {wanted}")
    return _compare_all(pairs)


def compare_skills(run: Run, old: str | None, new: str) -> dict[tuple[str, str], Comparison]:
    """For each agent and model of a run, compare one skill with another, or with none, by their digests."""
    read = _read(run)
    sides = read.sides(lambda arm: " / ".join(read.words(arm)))
    pairs = {
        (agent, model): (sides[agent, model, old], side)
        for (agent, model, skill), side in sides.items()
        if skill == new
    }
    return dict(zip(pairs, _compare_all(list(pairs.values())), strict=True))


def arms_compared(run: Run, other: Run | None, comparisons: Sequence[Comparison]) -> dict[str, ComparedArm]:
    """The arms of comparisons that were made of one run or of two, by name."""
    sides = [_sides_of_one_run(run)] if other is None else [_sides_of_run(run), _sides_of_run(other)]
    by_name = {side.name: side for arms in sides for side in arms.values()}
    return {name: by_name[name] for one in comparisons for name in (one.first, one.second)}


def _sides_of_one_run(run: Run) -> dict[Arm, ComparedArm]:
    read = _read(run)
    return read.sides(lambda arm: " / ".join(read.words(arm)[index] for index in _find_varying(read.arms)))


def _sides_of_run(run: Run) -> dict[Arm, ComparedArm]:
    read = _read(run)
    return read.sides(lambda arm: str(run) if len(read.arms) == 1 else f"{run} {' / '.join(read.words(arm))}")


def _differ_only_in(key: Key, a: Arm, b: Arm) -> bool:
    return [k for k, mine, other in zip(Key, a, b, strict=True) if mine != other] == [key]


def _find_varying(arms: Iterable[Arm]) -> list[int]:
    """The places in the tuples of arms at which they differ."""
    return [index for index, values in enumerate(zip(*arms, strict=True)) if len(set(values)) > 1]


def _read(run: Run) -> ReadRun:
    if isinstance(run, ReadRun):
        return run
    part = run if isinstance(run, RunPart) else RunPart(run, str(run))
    with Store.open_read(part.folder) as store:
        digests = {task.id: task.digest for task in store.tasks()}
        return ReadRun(part.name, cells(store, part.rollouts), digests, skill_names(store))


def _compare_all(pairs: Sequence[tuple[ComparedArm, ComparedArm]]) -> list[Comparison]:
    found = [compare(first, second, comparisons=len(pairs)) for first, second in pairs]
    corrected = holm([one.p for one in found])
    return [replace(one, corrected_p=p) for one, p in zip(found, corrected, strict=True)]


def compare(first: ComparedArm, second: ComparedArm, *, comparisons: int = 1) -> Comparison:
    """Compare the second arm with the first, on the tasks that have scores in both. It is one of `comparisons`."""
    shared = [task for task in first.tasks if task in second.tasks and first.digests[task] == second.digests[task]]
    pairs = {
        task: (first.tasks[task].values[task], second.tasks[task].values[task])
        for task in shared
        if first.tasks[task].measured and second.tasks[task].measured
    }
    differences = [_mean(b) - _mean(a) for a, b in pairs.values()]
    level = 1 - (1 - LEVEL) / comparisons
    p = _p_value(list(pairs.values()), differences) if pairs else 1.0
    samples = min((min(len(a), len(b)) for a, b in pairs.values()), default=0)
    missing = (_count_missing(first, shared), _count_missing(second, shared))
    return Comparison(
        first=first.name,
        second=second.name,
        difference=difference_interval(differences, level),
        p=p,
        corrected_p=p,
        comparisons=comparisons,
        wins=sum(difference > TIE for difference in differences),
        ties=sum(abs(difference) <= TIE for difference in differences),
        losses=sum(difference < -TIE for difference in differences),
        passes=_passes(list(pairs.values()), samples, level),
        samples=samples,
        detectable=detectable(differences),
        tasks_needed=tasks_needed(differences),
        samples_needed=samples_needed(differences, _noise(list(pairs.values())), samples) if samples > 1 else None,
        unpaired=_count_unpaired(first, second),
        judged_otherwise=sum(first.tasks[task].judges != second.tasks[task].judges for task in pairs),
        missing=missing,
        uneven=tuple(_uneven(*missing)),
        extremes=_extremes(first, second, shared),
        effort=(_effort(first, pairs), _effort(second, pairs)),
        skill_reads=(_format_reads(first, pairs), _format_reads(second, pairs)),
    )


def _p_value(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], differences: Sequence[float]) -> float:
    """Of the sign-flip test, on as many samples of a task as both arms have. If they point the other way than all
    samples do, nothing is claimed."""
    tested = [_mean(b[: len(a)]) - _mean(a[: len(b)]) for a, b in pairs]
    return 1.0 if math.fsum(tested) * math.fsum(differences) < 0 else sign_flip_test(tested)


def _uneven(first: Missing, second: Missing) -> Iterator[Uneven]:
    """Final losses; those and the ones that a later try hid; calls that the gateway sent again."""
    counts = {
        "scores were lost": [(side.lost, side.planned) for side in (first, second)],
        "rollouts lost a score in some try": [(side.lost + side.rescued, side.planned) for side in (first, second)],
        "calls were sent again after a failure": [(side.resent, side.sent) for side in (first, second)],
    }
    for what, (mine, other) in counts.items():
        if (p := uneven(*mine, *other)) <= UNEVEN:
            yield Uneven(what, mine, other, p)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def sample_variance(first: Sequence[float], second: Sequence[float]) -> float:
    """The variance that the difference of a task has because its samples are few. Each arm needs two."""
    return variance(first) / len(first) + variance(second) / len(second)


def _noise(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    return _mean([sample_variance(a, b) for a, b in pairs])


def _passes(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], fewest: int, level: float
) -> tuple[PassDifference, ...]:
    """For 1, 2, 4, 8 ... samples and the fewest that a paired task has: all paired tasks are in all of them."""
    counts = [((len(a), sum(map(is_pass, a))), (len(b), sum(map(is_pass, b)))) for a, b in pairs]
    found = []
    for k in range(1, fewest + 1):
        if k & (k - 1) and k != fewest:
            continue
        any_of_k = difference_interval([pass_at_k(*b, k) - pass_at_k(*a, k) for a, b in counts], level)
        all_of_k = difference_interval([pass_hat_k(*b, k) - pass_hat_k(*a, k) for a, b in counts], level)
        assert any_of_k is not None
        assert all_of_k is not None
        found.append(PassDifference(k, any_of_k, all_of_k))
    return tuple(found)


def why_unpaired(first: ComparedArm, second: ComparedArm, task: str) -> str | None:
    """Why a task of one of the arms is not compared; None when it is."""
    if task not in second.tasks:
        return f"only in {first.name}"
    if task not in first.tasks:
        return f"only in {second.name}"
    if first.digests[task] != second.digests[task]:
        return "changed in between"
    lost = next((side for side in (first, second) if not side.tasks[task].measured), None)
    return None if lost is None else f"no score in {lost.name}: {_main_cause(lost.tasks[task])}"


def _count_unpaired(first: ComparedArm, second: ComparedArm) -> dict[str, int]:
    tasks = dict.fromkeys([*first.tasks, *second.tasks])
    return dict(Counter(reason for task in tasks if (reason := why_unpaired(first, second, task)) is not None))


def _main_cause(cell: Tally) -> str:
    return str(cell.missing.most_common(1)[0][0]) if cell.missing else NOT_RUN


def _count_missing(side: ComparedArm, shared: Iterable[str]) -> Missing:
    whole = total(side.tasks[task] for task in shared)
    causes: dict[str, int] = {str(cause): count for cause, count in sorted(whole.missing.items())}
    causes |= {NOT_RUN: whole.not_run} if whole.not_run else {}
    return Missing(whole.planned, causes, whole.rescued, whole.retried, whole.sent, whole.resent)


def _extremes(first: ComparedArm, second: ComparedArm, shared: Sequence[str]) -> tuple[float, float]:
    def mean(side: ComparedArm, assumed: float) -> float:
        cells = [(side.tasks[task], task) for task in shared]
        return _mean(
            [
                (math.fsum(cell.values.get(task, ())) + assumed * (cell.planned - cell.measured)) / cell.planned
                for cell, task in cells
            ]
        )

    if not shared:
        return -1.0, 1.0
    return mean(second, 0.0) - mean(first, 1.0), mean(second, 1.0) - mean(first, 0.0)


def _format_reads(side: ComparedArm, paired: Iterable[str]) -> str:
    return total(side.tasks[task] for task in paired).format_skill_reads()


def _effort(side: ComparedArm, paired: Iterable[str]) -> Effort:
    whole = total(side.tasks[task] for task in paired)
    solved = whole.solved
    if not solved:
        return Effort(0, None, None)
    return Effort(solved, None if whole.cost is None else whole.cost / solved, whole.seconds / solved)
