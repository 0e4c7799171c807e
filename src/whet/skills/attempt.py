"""One candidate before one exam: positions are taken in the exam's order, and the verdict falls as soon as it can."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import fsum
from typing import Annotated

from pydantic import Field

from whet.skills.wealth import Wealth, lower_bound, upper_bound


class Lost(StrEnum):
    """Why a rollout has no score."""

    UNRELATED = "unrelated"
    """What happened cannot depend on the skill: the sandbox did not open, the model's endpoint was down."""
    RELATED = "related"
    """It may depend on the skill: the agent crashed at work, a judge failed on the answer."""


Outcome = float | Lost
"""What came of one rollout."""


class Verdict(StrEnum):
    CERTIFIED = "certified"
    """The candidate is better than the incumbent, but for an error of the level that was set."""
    FUTILE = "futile"
    """A lift that would be worth finding is unlikely."""
    UNDECIDED = "undecided"
    """The data cannot tell. Never called a regression."""


_Chance = Annotated[float, Field(gt=0, lt=1)]
_Share = Annotated[float, Field(ge=0, lt=1)]
_Number = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Terms:
    """What is fixed before the first position. Its bounds are looked at where it is read from a file."""

    level: _Chance
    """The chance that a candidate which is no better is certified."""
    positions: _Number
    """After so many the verdict is undecided."""
    giving_up: _Chance = 0.20
    """The chance that a lift worth finding is called futile."""
    worth: _Share = 0.12
    """The smallest lift that is worth finding."""
    repeats: _Number = 2
    """Rollouts of the incumbent at each position."""
    coverage: _Share = 0.80
    """The least share of positions with real scores on both sides."""
    margin: _Share = 0.0
    """What a candidate may be worse by and still pass: 0 where it has to be better."""


@dataclass(frozen=True, slots=True)
class Position:
    """One task of the exam, done by both."""

    incumbent: tuple[Outcome, ...]
    candidate: Outcome

    @property
    def is_void(self) -> bool:
        """Whether it says nothing of either arm."""
        return Lost.UNRELATED in (*self.incumbent, self.candidate)

    @property
    def is_measured(self) -> bool:
        return not any(isinstance(outcome, Lost) for outcome in (*self.incumbent, self.candidate))

    def worst(self) -> float:
        """The difference, with what is lost counted against the candidate."""
        return _score(self.candidate, 0.0) - fsum(_score(one, 1.0) for one in self.incumbent) / len(self.incumbent)

    def best(self) -> float:
        """The difference, with what is lost counted for the candidate."""
        return _score(self.candidate, 1.0) - fsum(_score(one, 0.0) for one in self.incumbent) / len(self.incumbent)


@dataclass(slots=True)
class Attempt:
    """How it goes for one candidate."""

    terms: Terms
    taken: list[Position] = field(default_factory=list)
    verdict: Verdict | None = None
    """None as long as it is open."""
    decided_at: int | None = None
    """After how many positions the verdict fell."""
    _better: Wealth = field(init=False, compare=False)
    _worse: Wealth = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self._better = Wealth(-self.terms.margin, above=True)
        self._worse = Wealth(self.terms.worth, above=False)

    def take(self, position: Position) -> Verdict | None:
        """The next position. After the verdict, further ones sharpen the bounds and change nothing else."""
        self.taken.append(position)
        if not position.is_void:
            self._better.take(position.worst())
            self._worse.take(position.best())
        if self.verdict is None:
            self.verdict = self._reached()
            self.decided_at = len(self.taken) if self.verdict else None
        return self.verdict

    def break_off(self) -> None:
        """There is no money for a further position: the purse held as many as were taken."""
        self.terms = replace(self.terms, positions=len(self.taken))
        self.verdict, self.decided_at = Verdict.UNDECIDED, len(self.taken)

    @property
    def surely_needed(self) -> int:
        """How many further positions it takes at least until a verdict falls, whatever comes of them."""
        left = self.terms.positions - len(self.taken)
        return min(left, self._better.fewest(self.terms.level), self._worse.fewest(self.terms.giving_up))

    def _reached(self) -> Verdict | None:
        if self._better.has_reached(self.terms.level):
            return Verdict.CERTIFIED if self.is_covered else Verdict.UNDECIDED
        if self._worse.has_reached(self.terms.giving_up):
            return Verdict.FUTILE if self.is_covered else Verdict.UNDECIDED
        return Verdict.UNDECIDED if len(self.taken) >= self.terms.positions else None

    @property
    def coverage(self) -> float:
        """The share of positions with real scores on both sides."""
        return sum(position.is_measured for position in self.taken) / len(self.taken) if self.taken else 1.0

    @property
    def is_covered(self) -> bool:
        return self.coverage >= self.terms.coverage

    @property
    def log_evidence(self) -> float:
        """Logarithm of the e-value against "no better", or "worse than the margin allows"."""
        return self._better.log

    def at_least(self, level: float | None = None) -> float:
        """The lift is at least this; by default at the level of the attempt."""
        return lower_bound([one.worst() for one in _telling(self.taken)], level or self.terms.level)

    def at_most(self, level: float | None = None) -> float:
        """The lift is at most this."""
        return upper_bound([one.best() for one in _telling(self.taken)], level or self.terms.level)

    def estimate(self) -> float | None:
        """The mean difference at measured positions after the verdict: up to it, chance had a say in when to stop."""
        after = [one.worst() for one in self.taken[self.decided_at or 0 :] if one.is_measured]
        return fsum(after) / len(after) if after and self.decided_at is not None else None


def replayed(terms: Terms, positions: Sequence[Position]) -> Attempt:
    """The attempt that these positions make, in this order. Anyone can check a certificate so."""
    attempt = Attempt(terms)
    for position in positions:
        attempt.take(position)
    return attempt


def levels(alpha: float, attempts: int) -> Iterator[tuple[float, ...]]:
    """For each exam of a run the levels of its attempts. All levels of all exams add up to alpha.

    What an exam leaves unused is forfeited: its attempts share one sequence, so they were all charged together.

    >>> exams = levels(0.10, 4)
    >>> next(exams)[0], next(exams)[0], next(exams)[0]
    (0.0125, 0.00625, 0.003125)
    """
    while True:
        alpha /= 2
        yield (alpha / attempts,) * attempts


def _score(outcome: Outcome, instead: float) -> float:
    return instead if isinstance(outcome, Lost) else outcome


def _telling(positions: Iterable[Position]) -> Iterator[Position]:
    return (position for position in positions if not position.is_void)
