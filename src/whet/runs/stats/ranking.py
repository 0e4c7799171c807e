"""Arms in the order of their means, and how many of the others each is better or worse than."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.runs.stats.compare import ComparedArm, Comparison, Verdict
from whet.runs.stats.means import Interval, mean_interval


@dataclass(frozen=True, slots=True)
class Ranked:
    """One arm. Its place says nothing about arms that it is neither better nor worse than."""

    name: str
    mean: Interval | None
    compared: int
    """How many others it was compared with."""
    better_than: tuple[str, ...]
    worse_than: tuple[str, ...]


def rank(arms: Mapping[str, ComparedArm], comparisons: Sequence[Comparison]) -> list[Ranked]:
    """The arms that were compared, the highest mean first; those without a score last."""
    decided = [
        (one.second, one.first) if one.verdict is Verdict.BETTER else (one.first, one.second)
        for one in comparisons
        if one.verdict in (Verdict.BETTER, Verdict.WORSE)
    ]
    found = [
        Ranked(
            name,
            mean_interval({task: cell.values[task] for task, cell in arm.tasks.items() if cell.measured}),
            compared=sum(name in (one.first, one.second) for one in comparisons),
            better_than=tuple(worse for better, worse in decided if better == name),
            worse_than=tuple(better for better, worse in decided if worse == name),
        )
        for name, arm in arms.items()
    ]
    return sorted(found, key=lambda one: one.mean.mean if one.mean else -1, reverse=True)
