"""Types that search, gate, proposers and rollouts share: keys, outcomes and verdicts of rollouts."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from typing import Literal, Protocol, Self

from whet.ids import digest
from whet.scoring import Cause

Outcome = float | Cause
"""The score of a rollout, or why it has none."""


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
    """Identifies one rollout of a run. Each key is rolled out once.

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
    """The candidate is better than the incumbent, at the level of the exam."""
    FUTILE = "futile"
    """A lift of the minimum effect or more is unlikely."""
    UNDECIDED = "undecided"
    """The data do not decide. Never reported as a regression."""
    WITHHELD = "withheld"
    """The data would decide, but the two arms miss scores, or had calls re-sent, at different rates."""


@dataclass(frozen=True, slots=True)
class Execution:
    """What is stored about one rollout besides its score."""

    tries: int = 1
    """How often it was started: more than once only if whet itself was stopped, or the model was down for both arms."""
    resent: int = 0
    """Calls that failed with an error status or a broken connection, so that the gateway re-sent them or the agent may
    have."""
    reported: tuple[str, ...] = ()
    """Names and fingerprints of the model in its replies."""
    guard: Outcome | None = None
    """The score of the guard; None in a run without a guard."""


class OutOfBudget(Exception):  # noqa: N818 - an end, not an error
    """The budget allows no more rollouts. The search or exam ends with the results that it has."""


class Rollouts(Protocol):
    """Runs a task with a skill."""

    async def __call__(self, task: str, skill: str, key: RolloutKey) -> Outcome:
        """Return the outcome of the rollout of a key. A key that was rolled out before costs nothing.

        OutOfBudget when the budget does not cover it; then it covers no later new key either.
        """
        ...


Pay = Callable[[Sequence[RolloutKey]], bool]
"""Reserve rollouts of a budget; False when it has too few left."""
ReadExecution = Callable[[RolloutKey], Awaitable[Execution]]
"""Reads what is stored about the rollout of a key."""


async def clean_execution(key: RolloutKey) -> Execution:  # noqa: ARG001 - where there is no record
    """An execution without restarts and re-sent calls."""
    return Execution()


class NotMeasured(Exception):  # noqa: N818 - an outcome, not an error of whet's
    """Too many scores are missing for a conclusion. Never reported as "no improvement"."""

    def __init__(self, reason: str, keys: Iterable[RolloutKey] = ()) -> None:
        """`keys` are the rollouts without a score. No decision rests on them, so they may be retried."""
        super().__init__(reason)
        self.keys = tuple(keys)


Measurement = dict[RolloutKey, Outcome]
"""Outcomes of the rollouts of a skill."""


def mean(outcomes: Measurement) -> float:
    """Mean of the scores; -1, below every score, when there is none."""
    scores = [outcome for outcome in outcomes.values() if not isinstance(outcome, Cause)]
    return fsum(scores) / len(scores) if scores else -1.0


def refuse_missing(outcomes: Measurement, tasks: str = "training") -> None:
    """Raise NotMeasured when most scores are missing."""
    missing = [key for key, outcome in outcomes.items() if isinstance(outcome, Cause)]
    if 2 * len(missing) > len(outcomes):
        raise NotMeasured(f"{len(missing)} of {len(outcomes)} rollouts on {tasks} tasks have no score", missing)
