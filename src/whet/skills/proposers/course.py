"""The course of a search for its writer: how many edits a step may make, which trials are shown, when it looks back."""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.ids import digest
from whet.skills.documents.document import Policy
from whet.skills.proposers.base import Comparison, ScoredRollout
from whet.skills.proposers.schedule import Schedule, edits_at

MOST, LEAST = 4, 2
"""Edits of one step, at first and in the end."""

SHORTEST = 3
"""Steps of an epoch: after fewer there is little to look back on."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a writer is led."""

    schedule: Schedule = Schedule.COSINE
    epochs: int = 4
    """The search has so many parts. After each the writer looks back on what changed."""
    batch: int = 40
    """Training tasks whose trials are shown in a step; the next step shows the next ones."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A course, for a search of about so many steps."""

    course: Course
    steps: int
    seed: int

    @property
    def epoch_steps(self) -> int:
        return max(SHORTEST, self.steps // self.course.epochs)

    def edits(self, step: int) -> int | None:
        """What step 1, 2, ... may change; None when the writer is to choose."""
        return edits_at(self.course.schedule, step, self.steps, MOST, LEAST)

    def ended_epoch(self, measured: int) -> bool:
        """Whether an epoch is over when so many proposals were measured."""
        return measured > 0 and measured % self.epoch_steps == 0

    def shown(self, trials: Sequence[ScoredRollout], step: int) -> tuple[ScoredRollout, ...]:
        """The trials of a step's batch of tasks. In every epoch the tasks are dealt out in another order."""
        epoch, place = divmod(step - 1, self.epoch_steps)
        tasks = sorted({trial.task for trial in trials}, key=lambda task: self._drawn(epoch, task))
        if len(tasks) <= self.course.batch:
            return tuple(trials)
        first = place * self.course.batch
        batch = {tasks[(first + number) % len(tasks)] for number in range(self.course.batch)}
        return tuple(trial for trial in trials if trial.task in batch)

    def _drawn(self, epoch: int, task: str) -> str:
        return digest(f"{self.seed}/{epoch}/{task}".encode())


@dataclass(frozen=True, slots=True)
class Guidance:
    """What a writer is held to."""

    policy: Policy
    pace: Pace
    preferences: str = ""


def compared(earlier: str, then: Sequence[ScoredRollout], now: Sequence[ScoredRollout]) -> Comparison:
    """The last trials of the tasks that were done with both versions; `earlier` is the document as it was."""
    before, after = ({trial.task: trial for trial in side} for side in (then, now))
    return Comparison(earlier, tuple((before[task], trial) for task, trial in after.items() if task in before))
