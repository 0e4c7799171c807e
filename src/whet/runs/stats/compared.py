"""What a comparison says: in words for people, and as one document for programs."""

from dataclasses import asdict, dataclass
from typing import Any

from whet.runs.stats.compare import (
    ComparedArm,
    Comparison,
    Key,
    Run,
    Verdict,
    arms_compared,
    compare_arms,
    compare_runs,
)
from whet.runs.stats.means import LEVEL
from whet.runs.stats.ranking import Ranked, rank


@dataclass(frozen=True, slots=True)
class ComparedArms:
    """All that is known of the arms of one run, or of two runs, that were compared."""

    comparisons: list[Comparison]
    ranking: list[Ranked]
    arms: dict[str, ComparedArm]
    """In the order of the ranking."""

    def document(self) -> dict[str, Any]:
        """Everything that was found, for programs."""
        return {
            "comparisons": [
                {**asdict(one), "verdict": one.verdict, "words": in_words(one)} for one in self.comparisons
            ],
            "ranking": [asdict(one) for one in self.ranking],
            "scores": {
                name: {task: cell.values.get(task, []) for task, cell in arm.tasks.items()}
                for name, arm in self.arms.items()
            },
        }


def compare_and_rank(run: Run, other: Run | None, by: Key | None) -> ComparedArms:
    """Compare two runs, or the arms of one. Reads the stores of those that were not read before."""
    found = compare_arms(run, by) if other is None else compare_runs(run, other, by)
    sides = arms_compared(run, other, found)
    ranking = rank(sides, found)
    return ComparedArms(found, ranking, {one.name: sides[one.name] for one in ranking})


def in_words(found: Comparison) -> str:
    """The verdict, as one would say it."""
    difference = found.difference
    if difference is None:
        return f"{found.second} and {found.first} cannot be compared: no task has scores in both."
    here = "on this one task" if difference.tasks == 1 else f"on these {difference.tasks} tasks"
    seen = f"a difference of {difference.mean * 100:+.1f} points was seen"
    test = f"sign-flip test {_chance(found)}, level {1 - LEVEL:.2f}"
    match found.verdict:
        case Verdict.BETTER | Verdict.WORSE:
            by = f"by {format_points(abs(difference.mean))} points"
            return f"{found.second} is {found.verdict} than {found.first} {here}, {by} ({test})."
        case Verdict.UNDECIDED:
            return (
                f"The data cannot tell whether {found.second} is better or worse than {found.first} {here}: "
                f"{seen} ({test}).{_remedy(found)}"
            )
        case Verdict.WITHHELD:
            why = (
                "one side is missing more scores than the other, which may bias the rest"
                if found.uneven
                else "rollouts that had a score were run again, and running failures again raises a mean"
            )
            return f"No verdict on {found.second} against {found.first} {here}: {why}. {seen[0].upper()}{seen[1:]}."


def _chance(found: Comparison) -> str:
    if found.corrected_p == found.p:
        return format_p(found.p)
    return f"{format_p(found.corrected_p)} corrected for the number of comparisons"


def format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def _remedy(found: Comparison) -> str:
    """What it would take to see a difference of this size."""
    ways = [f"about {found.tasks_needed} tasks"] if found.tasks_needed else []
    ways += [f"{found.samples_needed} samples of each of these tasks"] if found.samples_needed else []
    if ways:
        return f" To see one of this size takes {', or '.join(ways)}."
    if found.detectable is None:
        return " One task says nothing about other tasks."
    return f" These tasks show differences from {format_points(found.detectable)} points on."


def format_points(share: float) -> str:
    return f"{share * 100:.1f}"
