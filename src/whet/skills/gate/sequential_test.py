"""One candidate before one exam: positions are taken in the exam's order, and the verdict falls as soon as it can."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import fsum, log
from typing import Annotated

from pydantic import Field

from whet.runs.stats.losses import UNEVEN, uneven
from whet.scoring import Cause
from whet.skills.gate.eprocess import EProcess, log_e_value, lower_bound, upper_bound
from whet.skills.measurement import Notes, Outcome, Verdict

_Chance = Annotated[float, Field(gt=0, lt=1)]
_Share = Annotated[float, Field(ge=0, lt=1)]
_Number = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class ExamTerms:
    """What is fixed before the first position, but for the number of positions: an attempt that is undecided may be
    continued at its own level. Its bounds are looked at where it is read from a file."""

    level: _Chance
    """The chance that a candidate which is no better is certified."""
    positions: _Number
    """After so many the verdict is undecided."""
    giving_up: _Chance = 0.20
    """The chance that a lift worth finding is called futile."""
    worth: _Share = 0.12
    """The smallest lift that is worth finding."""
    coverage: _Share = 0.80
    """The least share of positions with real scores on both sides."""
    margin: _Share = 0.0
    """What a candidate may be worse by and still pass: 0 where it has to be better."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One task of the exam, done by both."""

    incumbent: Outcome
    candidate: Outcome
    notes: tuple[Notes, Notes] = (Notes(), Notes())
    """Of the incumbent's rollout and of the candidate's."""

    @property
    def is_measured(self) -> bool:
        return not isinstance(self.incumbent, Cause) and not isinstance(self.candidate, Cause)

    def worst(self) -> float:
        """The difference, with what is lost counted against the candidate."""
        return _score(self.candidate, 0.0) - _score(self.incumbent, 1.0)

    def best(self) -> float:
        """The difference, with what is lost counted for the candidate."""
        return _score(self.candidate, 1.0) - _score(self.incumbent, 0.0)


@dataclass(frozen=True, slots=True)
class Arm:
    """What went wrong with one arm's rollouts."""

    rollouts: int
    lost: dict[str, int]
    """Rollouts without a score, by cause."""
    redone: int
    """Rollouts that were begun more than once."""
    resent: int
    """Rollouts with calls that were sent again."""
    resent_calls: int

    @classmethod
    def of(cls, rolled: Sequence[tuple[Outcome, Notes]]) -> "Arm":
        return cls(
            rollouts=len(rolled),
            lost=dict(sorted(Counter(str(one) for one, _ in rolled if isinstance(one, Cause)).items())),
            redone=sum(notes.tries > 1 for _, notes in rolled),
            resent=sum(notes.resent > 0 for _, notes in rolled),
            resent_calls=sum(notes.resent for _, notes in rolled),
        )


@dataclass(slots=True)
class SequentialTest:
    """How it goes for one candidate."""

    terms: ExamTerms
    taken: list[Pair] = field(default_factory=list)
    decided_at: int | None = None
    """After how many positions the verdict fell; None as long as it is open."""
    _fallen: Verdict | None = None
    _better: EProcess = field(init=False, compare=False)
    _worse: EProcess = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self._better = EProcess(-self.terms.margin, above=True)
        self._worse = EProcess(self.terms.worth, above=False)

    @property
    def is_open(self) -> bool:
        return self._fallen is None

    @property
    def verdict(self) -> Verdict | None:
        """None as long as it is open. What the data would tell is withheld when the arms differ in what went wrong, up
        to the verdict or after it."""
        tells = self._fallen in {Verdict.CERTIFIED, Verdict.FUTILE}
        return Verdict.WITHHELD if tells and self.differences_between_arms() else self._fallen

    def take(self, position: Pair) -> None:
        """The next position. After the verdict, further ones sharpen the bounds; and they may show that it has to be
        withheld."""
        self.taken.append(position)
        self._better.take(position.worst())
        self._worse.take(position.best())
        if self.is_open:
            self._fallen = self._reached()
            self.decided_at = len(self.taken) if self._fallen else None

    def break_off(self) -> None:
        """There is no money for a further position: the purse held as many as were taken."""
        self.terms = replace(self.terms, positions=max(1, len(self.taken)))
        self._fallen, self.decided_at = Verdict.UNDECIDED, len(self.taken)

    @property
    def can_continue(self) -> bool:
        """Whether it ended for want of positions alone."""
        return self._fallen is Verdict.UNDECIDED and not self._has_crossed()

    def extend(self, positions: int) -> None:
        """Continue at the same level for so many more positions: the same evidence, looked at later."""
        assert self.is_open or self.can_continue
        self.terms = replace(self.terms, positions=len(self.taken) + positions)
        self._fallen = self.decided_at = None

    @property
    def fewest(self) -> int:
        """How many further positions it takes at least to certify: if all of them are won."""
        return max(1, self._better.fewest(self.terms.level))

    @property
    def surely_needed(self) -> int:
        """How many further positions it takes at least until a verdict falls, whatever comes of them."""
        left = self.terms.positions - len(self.taken)
        return min(left, self.fewest, self._worse.fewest(self.terms.giving_up))

    def _has_crossed(self) -> bool:
        return self._is_shown() or self._worse.has_reached(self.terms.giving_up)

    def _is_shown(self) -> bool:
        """Whether the evidence suffices, also with calls that were sent again counted against the candidate; or will be
        withheld, so that further positions would be wasted."""
        level = self.terms.level
        if not self._better.has_reached(level):
            return False
        holds = log_e_value(self._differences(), -self.terms.margin, above=True)[-1] >= -log(level)
        return bool(holds or self.differences_between_arms())

    def _differences(self) -> list[float]:
        """At each position. What is lost counts against the candidate; so does a rollout of the candidate with calls
        that were sent again, as far as it has more of these than the incumbent: an error may have hidden a failure. A
        difference that is too small for a test of both arms can still be enough to certify what is no better."""
        old, new = self.arms
        excess, found = new.resent - old.resent, []
        for position in self.taken:
            is_failed = excess > 0 and position.notes[1].resent > 0
            excess -= is_failed
            found.append(replace(position, candidate=0.0).worst() if is_failed else position.worst())
        return found

    def _reached(self) -> Verdict | None:
        if self._has_crossed():
            found = Verdict.CERTIFIED if self._is_shown() else Verdict.FUTILE
            return found if self.is_covered else Verdict.UNDECIDED
        return Verdict.UNDECIDED if len(self.taken) >= self.terms.positions else None

    @property
    def coverage(self) -> float:
        """The share of positions with real scores on both sides."""
        return sum(position.is_measured for position in self.taken) / len(self.taken) if self.taken else 1.0

    @property
    def is_covered(self) -> bool:
        return self.coverage >= self.terms.coverage

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """What went wrong with the incumbent's rollouts, and with the candidate's."""
        return (
            Arm.of([(one.incumbent, one.notes[0]) for one in self.taken]),
            Arm.of([(one.candidate, one.notes[1]) for one in self.taken]),
        )

    def differences_between_arms(self) -> list[str]:
        """What went wrong more often with one arm than chance explains, by Fisher's exact test at 5 %."""
        return [
            f"{what} {one} of {whole} rollouts of the old skill and {other} of {whole} of the new "
            f"(p = {chance:.2g}, withheld below {UNEVEN:g})"
            for what, one, other, whole in self._compared_arms()
            if (chance := uneven(one, whole, other, whole)) < UNEVEN
        ]

    def _compared_arms(self) -> list[tuple[str, int, int, int]]:
        old, new = self.arms
        return [
            ("lost the scores of", sum(old.lost.values()), sum(new.lost.values()), old.rollouts),
            ("sent calls again in", old.resent, new.resent, old.rollouts),
            ("began again", old.redone, new.redone, old.rollouts),
        ]

    @property
    def reported(self) -> dict[str, tuple[int, int]]:
        """In how many rollouts of each arm replies gave this name and fingerprint of the model, as they first came."""
        found: dict[str, list[int]] = {}
        for position in self.taken:
            for arm, notes in enumerate(position.notes):
                for name in notes.reported:
                    found.setdefault(name, [0, 0])[arm] += 1
        return {name: (old, new) for name, (old, new) in found.items()}

    @property
    def log_evidence(self) -> float:
        """Logarithm of the e-value against "no better", or "worse than the margin allows"."""
        return self._better.log

    def at_least(self, level: float | None = None) -> float:
        """The lift is at least this; by default at the level of the attempt."""
        return lower_bound(self._differences(), level or self.terms.level)

    def at_most(self, level: float | None = None) -> float:
        """The lift is at most this."""
        return upper_bound([one.best() for one in self.taken], level or self.terms.level)

    def estimate(self) -> float | None:
        """The mean difference at measured positions after the verdict: up to it, chance had a say in when to stop."""
        after = [one.worst() for one in self.taken[self.decided_at or 0 :] if one.is_measured]
        return fsum(after) / len(after) if after and self.decided_at is not None else None


def replayed(terms: ExamTerms, positions: Sequence[Pair]) -> SequentialTest:
    """The attempt that these positions make, in this order. Anyone can check a certificate so."""
    attempt = SequentialTest(terms)
    for position in positions:
        attempt.take(position)
    return attempt


def level_of(alpha: float, number: int) -> float:
    """The level of a run's attempt of this number, counted from 1. Those of all attempts add up to alpha.

    >>> [level_of(0.10, number) for number in (1, 2, 3)]
    [0.05, 0.025, 0.0125]
    """
    return alpha * 0.5**number


def _score(outcome: Outcome, instead: float) -> float:
    return instead if isinstance(outcome, Cause) else outcome
