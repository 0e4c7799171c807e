"""How a proposer is led through a search: edits per step, which rollouts it sees, when it looks back."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import cos, floor, pi

from whet.ids import digest
from whet.skills.documents.document import Policy
from whet.skills.proposers.base import ScoredRollout

MOST = 4
"""Edits per step at the start of a search, unless the user chooses; at the end half as many."""

SHORTEST = 3
"""Steps in an epoch; after fewer there is little to look back on."""


class Schedule(StrEnum):
    """How the number of edits per step changes during a search."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    AUTONOMOUS = "autonomous"
    """The proposer chooses."""


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """What a user may set. The field names are stored in the terms of a run."""

    schedule: Schedule = Schedule.COSINE
    epochs: int = 4
    """After each epoch the proposer looks back on what changed."""
    batch: int = 40
    """Train tasks whose rollouts one step shows; the next step shows the next ones."""
    edits: int = MOST
    """Edits per step at the start of the search."""

    def as_terms(self) -> dict[str, object]:
        """As the terms of a run hold it. Earlier versions had no choice of edits."""
        return {key: value for key, value in asdict(self).items() if (key, value) != ("edits", MOST)}


@dataclass(frozen=True, slots=True)
class ProposalSchedule:
    """What each step of a search of about `steps` steps may change, and what it shows."""

    options: ScheduleOptions
    steps: int
    seed: int
    policy: Policy = field(default_factory=Policy)
    preferences: str = ""
    """House rules of the user."""

    @property
    def epoch_steps(self) -> int:
        return max(SHORTEST, self.steps // self.options.epochs)

    def max_edits(self, step: int) -> int | None:
        """The edits that step 1, 2, ... may make; None when the proposer chooses."""
        most = self.options.edits
        return edits_at(self.options.schedule, step, self.steps, most, (most + 1) // 2)

    def is_epoch_end(self, measured: int) -> bool:
        """Whether an epoch ends with this number of measured proposals."""
        return measured > 0 and measured % self.epoch_steps == 0

    def select_batch(self, rollouts: Sequence[ScoredRollout], step: int) -> tuple[ScoredRollout, ...]:
        """The rollouts of the step's batch of tasks. Each epoch orders the tasks differently."""
        epoch, place = divmod(step - 1, self.epoch_steps)
        tasks = sorted({one.task for one in rollouts}, key=lambda task: self._sort_key(epoch, task))
        if len(tasks) <= self.options.batch:
            return tuple(rollouts)
        first = place * self.options.batch
        batch = {tasks[(first + number) % len(tasks)] for number in range(self.options.batch)}
        return tuple(one for one in rollouts if one.task in batch)

    def _sort_key(self, epoch: int, task: str) -> str:
        return digest(f"{self.seed}/{epoch}/{task}".encode())


def edits_at(schedule: Schedule, step: int, steps: int, most: int, least: int) -> int | None:
    """The edits that step 1, 2, ... of `steps` may make; None when the proposer chooses.

    >>> [edits_at(Schedule.LINEAR, step, 4, most=10, least=2) for step in (1, 2, 3, 4)]
    [8, 6, 4, 2]
    """
    if schedule is Schedule.AUTONOMOUS:
        return None
    if schedule is Schedule.CONSTANT or steps <= 1:
        return most
    done = min(step, steps) / steps
    share = 1 - done if schedule is Schedule.LINEAR else (1 + cos(pi * done)) / 2
    # Not round(), which rounds halves to even numbers.
    return max(least, floor(least + (most - least) * share + 0.5))
