"""What comes of trying a skill on tasks: the words that search, gate, proposers and rollouts share."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from typing import Protocol

from whet.scoring import Cause

Outcome = float | Cause
"""What came of one rollout: its score, or why it has none."""


class Verdict(StrEnum):
    CERTIFIED = "certified"
    """The candidate is better than the incumbent, but for an error of the level that was set."""
    FUTILE = "futile"
    """A lift that would be worth finding is unlikely."""
    UNDECIDED = "undecided"
    """The data cannot tell. Never called a regression."""
    WITHHELD = "withheld"
    """The data would tell, but the two arms lost scores, or had calls sent again, at different rates."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What is on record of one rollout besides its score."""

    tries: int = 1
    """How often it was begun: more than once only when whet itself was stopped, or the model was down for both arms."""
    resent: int = 0
    """Calls that the gateway sent again, or that failed so that the agent may have: after an error status or a broken
    connection."""
    reported: tuple[str, ...] = ()
    """Names and fingerprints of the model, as its replies give them."""


class OutOfBudget(Exception):  # noqa: N818 - an end, not an error
    """The hard limit of a budget lets nothing more be rolled out. Whoever is at work ends with what there is."""


class Rollouts(Protocol):
    """Where skills are tried on tasks."""

    async def __call__(self, task: str, skill: str, key: str) -> Outcome:
        """What comes of a rollout. Its key is its own: under another key it is rolled out afresh, under the same it
        is not paid for again. OutOfBudget when it cannot be paid; then no later one can, unless it was paid before."""
        ...


ReadNotes = Callable[[str], Awaitable[Notes]]
"""What is on record of the rollout of a key."""


async def no_notes(key: str) -> Notes:  # noqa: ARG001 - where there is no record
    """Nothing went wrong."""
    return Notes()


class NotMeasured(Exception):  # noqa: N818 - an outcome, not an error of whet's
    """Too many rollouts were lost to say anything. Never reported as "no improvement"."""

    def __init__(self, reason: str, keys: Iterable[str] = ()) -> None:
        """`keys` are of what was lost. No decision rests on it, so it may be tried again."""
        super().__init__(reason)
        self.keys = tuple(keys)


Measured = dict[str, Outcome]
"""What came of the rollouts of a skill, by their keys."""


def mean(outcomes: Measured) -> float:
    """Of those that are there; below all others when none is."""
    scores = [outcome for outcome in outcomes.values() if not isinstance(outcome, Cause)]
    return fsum(scores) / len(scores) if scores else -1.0


def refuse_lost(outcomes: Measured, tasks: str = "training") -> None:
    """NotMeasured when most of it is lost."""
    lost = [key for key, outcome in outcomes.items() if isinstance(outcome, Cause)]
    if 2 * len(lost) > len(outcomes):
        raise NotMeasured(f"{len(lost)} of {len(outcomes)} rollouts on {tasks} tasks were lost", lost)


def first_measurement(tasks: Sequence[str], start: str) -> list[str]:
    """The keys of the rollouts that a search begins with, the first of each task."""
    return [search_key(1, task, start, 0) for task in tasks]


def search_key(number: int, task: str, skill: str, sample: int) -> str:
    return f"dev/{number}/{task}/{skill}" + (f"/{sample}" if sample else "")
