"""The sequential test of one exam: it takes pairs in the exam's order and reaches its verdict as early as possible."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import fsum, log
from typing import Annotated

from pydantic import Field

from whet.runs.stats.losses import UNEVEN, uneven
from whet.scoring import Cause
from whet.skills.gate.eprocess import EProcess, log_e_value, lower_bound, upper_bound
from whet.skills.gate.guard import FEWEST_PAIRS, Guard, GuardTest
from whet.skills.measurement import Execution, Outcome, Verdict

_Chance = Annotated[float, Field(gt=0, lt=1)]
_Share = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, slots=True)
class ExamTerms:
    """The terms of a test, fixed before the first pair. Only `max_pairs` may grow: an undecided test may be continued
    at its own level. Certificates store the fields under their aliases, and check their bounds when they are read."""

    level: _Chance
    """Maximum chance that a candidate that is not better is certified."""
    max_pairs: Annotated[int, Field(ge=1, alias="positions")]
    """After this many pairs without a decision the verdict is undecided."""
    beta: Annotated[_Chance, Field(alias="giving_up")] = 0.20
    """Maximum chance that a lift of `minimum_effect` is called futile."""
    minimum_effect: Annotated[_Share, Field(alias="worth")] = 0.12
    """The smallest lift that is worth finding."""
    coverage: _Share = 0.80
    """Minimum share of pairs in which both rollouts have a score."""
    margin: _Share = 0.0
    """How much worse a candidate may be and still pass; 0 where it has to be better."""
    guard: Annotated[Guard | None, Field(exclude_if=lambda guard: guard is None)] = None
    """A second score that must not get worse. The candidate passes only if both tests reach the level, so the chance
    of an error stays at most the level."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One task of the exam, done with both skills."""

    incumbent: Outcome
    candidate: Outcome
    executions: tuple[Execution, Execution] = (Execution(), Execution())
    """How the incumbent's rollout and the candidate's were executed."""

    @property
    def is_measured(self) -> bool:
        return not isinstance(self.incumbent, Cause) and not isinstance(self.candidate, Cause)

    @property
    def guard(self) -> "Pair":
        """The scores of the guard in the same rollouts. A score that was not recorded is missing."""
        old, new = (Cause.JUDGE if one.guard is None else one.guard for one in self.executions)
        return Pair(old, new, self.executions)

    def worst(self) -> float:
        """The difference, with missing scores counted against the candidate."""
        return _score(self.candidate, 0.0) - _score(self.incumbent, 1.0)

    def best(self) -> float:
        """The difference, with missing scores counted for the candidate."""
        return _score(self.candidate, 1.0) - _score(self.incumbent, 0.0)


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """Problems of the rollouts of one skill. The fields are keys of stored certificates."""

    rollouts: int
    lost: dict[str, int]
    """Rollouts without a score, by cause."""
    redone: int
    """Rollouts that were started more than once."""
    resent: int
    """Rollouts with model calls that were sent again."""
    resent_calls: int

    @classmethod
    def count(cls, rollouts: Sequence[tuple[Outcome, Execution]]) -> "ArmCounts":
        return cls(
            rollouts=len(rollouts),
            lost=dict(sorted(Counter(str(one) for one, _ in rollouts if isinstance(one, Cause)).items())),
            redone=sum(execution.tries > 1 for _, execution in rollouts),
            resent=sum(execution.resent > 0 for _, execution in rollouts),
            resent_calls=sum(execution.resent for _, execution in rollouts),
        )


@dataclass(slots=True)
class SequentialTest:
    """The pairs of one candidate so far, and the verdict."""

    terms: ExamTerms
    pairs: list[Pair] = field(default_factory=list)
    decided_at: int | None = None
    """Number of pairs at the verdict; None while the test is open."""
    _reached: Verdict | None = None
    _better: EProcess = field(init=False, compare=False)
    _worse: EProcess = field(init=False, compare=False)
    _peak: float = field(default=0.0, init=False, compare=False)
    """The largest evidence so far that the candidate is better."""
    guard: GuardTest | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        self._better = EProcess(-self.terms.margin, above=True)
        self._worse = EProcess(self.terms.minimum_effect, above=False)
        if self.terms.guard is not None:
            self.guard = GuardTest(self.terms.guard, self.terms.level, self.terms.beta)

    @property
    def is_open(self) -> bool:
        return self._reached is None

    @property
    def verdict(self) -> Verdict | None:
        """None while the test is open. A decision is withheld when the two skills differ in how many of their rollouts
        had problems, before the decision or after it."""
        decided = self._reached in {Verdict.CERTIFIED, Verdict.FUTILE}
        return Verdict.WITHHELD if decided and self.differences_between_arms() else self._reached

    def add(self, pair: Pair) -> None:
        """Add the next pair. After the verdict, further pairs tighten the bounds, and may show that the verdict has to
        be withheld."""
        self.pairs.append(pair)
        self._better.add(pair.worst())
        self._worse.add(pair.best())
        self._peak = max(self._peak, self._better.log)
        if self.guard is not None:
            self.guard.add(pair.guard.worst(), pair.guard.best())
        if self.is_open:
            self._reached = self._decide()
            self.decided_at = len(self.pairs) if self._reached else None

    def break_off(self) -> None:
        """End the test because the budget allows no further pair."""
        self.terms = replace(self.terms, max_pairs=max(1, len(self.pairs)))
        self._reached, self.decided_at = Verdict.UNDECIDED, len(self.pairs)

    @property
    def can_continue(self) -> bool:
        """Whether the test ended only because it had too few pairs."""
        return self._reached is Verdict.UNDECIDED and not self._has_crossed()

    def extend(self, pairs: int) -> None:
        """Continue at the same level for this many more pairs: the same evidence, looked at later."""
        assert self.is_open or self.can_continue
        self.terms = replace(self.terms, max_pairs=len(self.pairs) + pairs)
        self._reached = self.decided_at = None

    @property
    def fewest(self) -> int:
        """The fewest further pairs that could certify: if the candidate wins all of them."""
        if self.guard is None:
            return max(1, self._better.fewest(self.terms.level))
        target = 0 if self.is_target_shown else self._better.fewest(self.terms.level)
        return max(1, target, self.guard.fewest)

    @property
    def fewest_to_start(self) -> int:
        """An exam that cannot afford this many further pairs is not started."""
        return self.fewest if self.guard is None else max(self.fewest, FEWEST_PAIRS - len(self.pairs))

    @property
    def surely_needed(self) -> int:
        """The fewest further pairs that could give a verdict, whatever their scores are."""
        left = self.terms.max_pairs - len(self.pairs)
        harmful = [self.guard.fewest_harmful] if self.guard else []
        futile = [] if self.guard and self.is_target_shown else [self._worse.fewest(self.terms.beta)]
        return min(left, self.fewest, *futile, *harmful)

    def _has_crossed(self) -> bool:
        return self._is_shown() or self._is_hopeless()

    def _is_hopeless(self) -> bool:
        """Whether a lift of the minimum effect is unlikely, or the guard is likely worse than its margin. A target that
        is shown stays shown: the exam goes on for its guard."""
        if self.guard is None:
            return self._worse.has_reached(self.terms.beta)
        return self.guard.is_harmed or (self._worse.has_reached(self.terms.beta) and not self.is_target_shown)

    def _is_shown(self) -> bool:
        """Whether the evidence suffices even with re-sent calls counted against the candidate. True also if the verdict
        will be withheld, so that further pairs would be wasted."""
        if self.guard is not None:
            return self.is_target_shown and self.is_guard_shown
        level = self.terms.level
        if not self._better.has_reached(level):
            return False
        holds = log_e_value(self._differences(), -self.terms.margin, above=True)[-1] >= -log(level)
        return bool(holds or self.differences_between_arms())

    @property
    def is_target_shown(self) -> bool:
        """Whether it was shown, now or earlier, that the candidate is better. The chance that an e-value ever reaches
        1/level without cause is at most the level, so what it has reached once counts."""
        needed = -log(self.terms.level)
        if self._peak < needed:
            return False
        holds = log_e_value(self._differences(), -self.terms.margin, above=True).max() >= needed
        return bool(holds or self.differences_between_arms())

    @property
    def is_guard_shown(self) -> bool:
        """Whether it was shown, now or earlier, that the guard is not worse than its margin allows."""
        if self.guard is None or not self.guard.is_reached:
            return False
        differences = self._differences([one.guard for one in self.pairs])
        return self.guard.holds_with(differences) or bool(self.differences_between_arms())

    def _differences(self, pairs: Sequence[Pair] | None = None) -> list[float]:
        """The difference of each pair. A missing score counts against the candidate. So does a rollout of the candidate
        with re-sent calls, as far as it has more of these than the incumbent: an error may have hidden a failure. An
        imbalance too small to be significant can still be enough to certify a skill that is not better."""
        old, new = self.arms
        excess, found = new.resent - old.resent, []
        for pair in self.pairs if pairs is None else pairs:
            is_failed = excess > 0 and pair.executions[1].resent > 0
            excess -= is_failed
            found.append(replace(pair, candidate=0.0).worst() if is_failed else pair.worst())
        return found

    def _decide(self) -> Verdict | None:
        if self._has_crossed():
            found = Verdict.CERTIFIED if self._is_shown() else Verdict.FUTILE
            return found if self.is_covered else Verdict.UNDECIDED
        return Verdict.UNDECIDED if len(self.pairs) >= self.terms.max_pairs else None

    @property
    def coverage(self) -> float:
        """The share of pairs in which both rollouts have a score."""
        return sum(pair.is_measured for pair in self.pairs) / len(self.pairs) if self.pairs else 1.0

    @property
    def is_covered(self) -> bool:
        return self.coverage >= self.terms.coverage

    @property
    def arms(self) -> tuple[ArmCounts, ArmCounts]:
        """Problems of the incumbent's rollouts, and of the candidate's."""
        return (
            ArmCounts.count([(one.incumbent, one.executions[0]) for one in self.pairs]),
            ArmCounts.count([(one.candidate, one.executions[1]) for one in self.pairs]),
        )

    def differences_between_arms(self) -> list[str]:
        """Problems that one skill has more often than chance explains, by Fisher's exact test at 5 %. Certificates
        store these sentences, so they must not change."""
        return [
            f"{what} {one} of {whole} rollouts of the old skill and {other} of {whole} of the new "
            f"(p = {chance:.2g}, withheld below {UNEVEN:g})"
            for what, one, other, whole in self._compare_arms()
            if (chance := uneven(one, whole, other, whole)) < UNEVEN
        ]

    def _compare_arms(self) -> list[tuple[str, int, int, int]]:
        old, new = self.arms
        return [
            ("lost the scores of", sum(old.lost.values()), sum(new.lost.values()), old.rollouts),
            ("sent calls again in", old.resent, new.resent, old.rollouts),
            ("began again", old.redone, new.redone, old.rollouts),
        ]

    @property
    def reported_models(self) -> dict[str, tuple[int, int]]:
        """Name and fingerprint of each model that replies reported, with the number of rollouts of each skill."""
        found: dict[str, list[int]] = {}
        for pair in self.pairs:
            for arm, execution in enumerate(pair.executions):
                for name in execution.reported:
                    found.setdefault(name, [0, 0])[arm] += 1
        return {name: (old, new) for name, (old, new) in found.items()}

    @property
    def log_evidence(self) -> float:
        """Logarithm of the e-value against "not better", or "worse than the margin allows"."""
        return self._better.log

    def at_least(self, level: float | None = None) -> float:
        """Lower bound of the lift; by default at the level of the test."""
        return lower_bound(self._differences(), level or self.terms.level)

    def at_most(self, level: float | None = None) -> float:
        """Upper bound of the lift."""
        return upper_bound([one.best() for one in self.pairs], level or self.terms.level)

    def estimate(self) -> float | None:
        """Mean difference of measured pairs after the verdict. Up to the verdict, the stopping rule biases the mean."""
        after = [one.worst() for one in self.pairs[self.decided_at or 0 :] if one.is_measured]
        return fsum(after) / len(after) if after and self.decided_at is not None else None


def replay(terms: ExamTerms, pairs: Sequence[Pair]) -> SequentialTest:
    """Run a test on these pairs in this order. This is how a certificate is checked."""
    test = SequentialTest(terms)
    for pair in pairs:
        test.add(pair)
    return test


def level_of(alpha: float, number: int) -> float:
    """The level of the exam with this number, from 1. The levels of all exams add up to alpha.

    >>> [level_of(0.10, number) for number in (1, 2, 3)]
    [0.05, 0.025, 0.0125]
    """
    return alpha * 0.5**number


def _score(outcome: Outcome, instead: float) -> float:
    return instead if isinstance(outcome, Cause) else outcome
