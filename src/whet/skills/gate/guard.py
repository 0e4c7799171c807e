"""The guard of an exam: a second score that must not get worse by more than a margin, tested on the same pairs."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from whet.skills.gate.eprocess import EProcess, PlannedEProcess

FEWEST_PAIRS = 10
"""With a guard, an exam that cannot afford this many pairs is not started, and uses no level."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Which score must not get worse, and by how much it may."""

    judge: str
    """Name of the judge of the tasks."""
    margin: Annotated[float, Field(gt=0, le=0.5)]


class GuardTest:
    """Evidence about the guard, pair by pair: that it is not worse than the margin allows, and that it is."""

    def __init__(self, guard: Guard, level: float, beta: float) -> None:
        self._guard, self._level, self._beta = guard, level, beta
        self._kept = PlannedEProcess(guard.margin, level)
        self._harmed = EProcess(-guard.margin, above=False)

    def add(self, worst: float, best: float) -> None:
        """Add the difference of a pair, with a missing score counted against the candidate and for it."""
        self._kept.add(worst)
        self._harmed.add(best)

    @property
    def is_reached(self) -> bool:
        """Whether the differences show that the guard is not worse than the margin allows."""
        return self._kept.has_reached

    def holds_with(self, differences: list[float]) -> bool:
        """Whether these differences show the same."""
        kept = PlannedEProcess(self._guard.margin, self._level)
        for one in differences:
            kept.add(one)
        return kept.has_reached

    @property
    def is_harmed(self) -> bool:
        """Whether the guard is likely worse than the margin allows."""
        return self._harmed.has_reached(self._beta)

    @property
    def log_evidence(self) -> float:
        return self._kept.log

    @property
    def fewest(self) -> int:
        """A number of further pairs that it takes at least to show that the guard is not worse."""
        return self._kept.fewest

    @property
    def fewest_harmful(self) -> int:
        """The fewest further pairs that could show that it is worse."""
        return self._harmed.fewest(self._beta)
