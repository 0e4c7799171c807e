"""What comes of trying a skill on tasks: the words that search, gate, proposers and rollouts share."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from typing import Literal, Protocol, Self

from whet.ids import digest
from whet.scoring import Cause

Outcome = float | Cause
"""What came of one rollout: its score, or why it has none."""


class RunPart(StrEnum):
    """What a rollout is for. Each part has its own store; a proposer sees the store of the search only."""

    SEARCH = "search"
    EXAM = "exam"
    TEST = "test"
    PROPOSALS = "proposals"
    """Rollouts of the proposer's own model or agent. Only a run with such a proposer has this store."""


class Side(StrEnum):
    """Which skill of a pair did the rollout."""

    INCUMBENT = "incumbent"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class RolloutKey:
    """Identifies one rollout of a run. Another key is a fresh rollout; the same key is rolled out once.

    The id of a stored rollout is a digest of the key's text, so the texts that the constructors make must not change.

    >>> key = RolloutKey.search(1, "task-1", "5ec7")
    >>> str(key), key.part, key.rollout_id
    ('dev/1/task-1/5ec7', <RunPart.SEARCH: 'search'>, '2dae43a6bbaa')
    """

    part: RunPart
    text: str
    """Unique within the run."""
    pair: str | None = None
    """The pair that the rollout belongs to; None where rollouts are not paired."""
    side: Side | None = None

    @classmethod
    def search(cls, measurement: int, task: str, skill: str, sample: int = 0) -> Self:
        return cls(RunPart.SEARCH, f"dev/{measurement}/{task}/{skill}" + (f"/{sample}" if sample else ""))

    @classmethod
    def audit(cls, control: Literal["again", "without", "known"], task: str) -> Self:
        return cls(RunPart.SEARCH, f"audit/{control}/{task}")

    @classmethod
    def exam(cls, exam: str, pair: int, side: Side, skill: str) -> Self:
        return cls(RunPart.EXAM, f"{exam}/{pair}/{side}/{skill}", f"{exam}/{pair}", side)

    @classmethod
    def validation(cls, task: str, skill: str) -> Self:
        """One pass over the validation tasks, for a classic rule."""
        return cls(RunPart.EXAM, f"gate/{task}/{skill}")

    @classmethod
    def test(cls, task: str, side: Side, skill: str) -> Self:
        return cls(RunPart.TEST, f"test/{task}/{side}/{skill}", f"test/{task}", side)

    @classmethod
    def proposal(cls, name: str) -> Self:
        return cls(RunPart.PROPOSALS, name)

    def __str__(self) -> str:
        return self.text

    @property
    def rollout_id(self) -> str:
        """Id of the rollout in the store of its part."""
        return digest(self.text.encode())[:12]


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
class Execution:
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

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        """What comes of a rollout. Its key is its own: under another key it is rolled out afresh, under the same it
        is not paid for again. OutOfBudget when it cannot be paid; then no later one can, unless it was paid before."""
        ...


Pay = Callable[[Sequence[RolloutKey]], bool]
"""Reserve rollouts of a budget; False when it has too few left."""
ReadExecution = Callable[[RolloutKey], Awaitable[Execution]]
"""What is on record of the rollout of a key."""


async def clean_execution(key: RolloutKey) -> Execution:  # noqa: ARG001 - where there is no record
    """Nothing went wrong."""
    return Execution()


class NotMeasured(Exception):  # noqa: N818 - an outcome, not an error of whet's
    """Too many rollouts were lost to say anything. Never reported as "no improvement"."""

    def __init__(self, reason: str, keys: Iterable[RolloutKey] = ()) -> None:
        """`keys` are of what was lost. No decision rests on it, so it may be tried again."""
        super().__init__(reason)
        self.keys = tuple(keys)


Measurement = dict[RolloutKey, Outcome]
"""What came of the rollouts of a skill, by their keys."""


def mean(outcomes: Measurement) -> float:
    """Of those that are there; below all others when none is."""
    scores = [outcome for outcome in outcomes.values() if not isinstance(outcome, Cause)]
    return fsum(scores) / len(scores) if scores else -1.0


def refuse_missing(outcomes: Measurement, tasks: str = "training") -> None:
    """NotMeasured when most of it is lost."""
    lost = [key for key, outcome in outcomes.items() if isinstance(outcome, Cause)]
    if 2 * len(lost) > len(outcomes):
        raise NotMeasured(f"{len(lost)} of {len(outcomes)} rollouts on {tasks} tasks were lost", lost)
