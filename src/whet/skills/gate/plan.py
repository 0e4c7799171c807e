"""What is fixed before a skill is sharpened: levels, purses and the rules of both tiers."""

from dataclasses import dataclass, replace

from whet.skills.gate.exam import PAIR
from whet.skills.gate.kinds import GateKind, SearchKind
from whet.skills.gate.sequential_test import ExamTerms

MANY = 1_000_000
"""Rollouts of a purse that another unit of the budget limits."""

AUTO = 0
"""Samples: as many as few training tasks need."""
_MEASURED_BY = 30
"""Rollouts that measure a skill well enough: with 10 alone, the search passes over a rule that adds 30 points in one
run of six, and with 30 in one of eighty."""
_PROPOSALS = 12
"""More samples than leave this many proposals are not taken."""


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The terms of one run. Written down before the first rollout; a resumed run reads them back."""

    budget: int
    """Rollouts, of both tiers and all proposals."""
    seed: int = 0
    """Of the split of tasks and whatever else chance decides in the open. The order of exams has a seed of its own."""
    alpha: float = 0.10
    """The chance that the run certifies anything that is no better than what it replaces."""
    giving_up: float = 0.20
    worth: float = 0.12
    """The smallest lift that is worth finding."""
    rollouts_per_task: int = 12
    """While the search is open, an attempt takes at most so many for each task of its exam, of both sides together; and
    so many are enough for the bounds of a certificate."""
    certify_share: float = 0.20
    """The part of the budget that only exams may use."""
    samples: int = 1
    """Rollouts on each dev task, whenever the search measures a skill. AUTO until the budget is divided, where the user
    named none."""
    accepted_before_attempt: int = 3
    """After so many accepted edits the leader is held before the exam."""
    rejections_before_remeasuring: int = 6
    """After so many in a row the leader is measured afresh: the mean of a winner is too high."""
    search: SearchKind = SearchKind.RATCHET
    gate: GateKind = GateKind.CERTIFY
    """What decides on the leader. Only an exam certifies."""
    shorten: bool = False
    """Whether what is left in the end is spent on a shorter version of a certified skill."""
    margin: float = 0.10
    """What a shorter version may lose at most; never more than half of what was certified."""
    removal_level: float = 0.05
    """The chance that it loses more."""

    @property
    def certify_purse(self) -> int:
        return round(self.budget * self.certify_share)

    @property
    def search_purse(self) -> int:
        return self.budget - self.certify_purse

    def settle_samples(self, tasks: int) -> "GatePlan":
        """With the number of samples for this many dev tasks, unless the user named one.

        >>> [GatePlan(budget, samples=AUTO).settle_samples(10).samples for budget in (100, 400, 800)]
        [1, 2, 3]
        """
        if self.samples != AUTO:
            return self
        affordable = self.search_purse // ((1 + _PROPOSALS) * tasks)
        return replace(self, samples=max(1, min(_MEASURED_BY // tasks, affordable)))

    def proposals(self, tasks: int) -> int:
        """How many the search can try on so many dev tasks, when it has measured what it begins with."""
        return max(0, self.search_purse // (self.samples * tasks) - 1)

    def positions(self, tasks: int) -> int:
        """The most that an attempt on so many tasks takes while the search is open."""
        return self.rollouts_per_task * tasks // PAIR

    def terms(self, level: float, positions: int) -> ExamTerms:
        """Of an attempt of so many positions."""
        return ExamTerms(level, positions, self.giving_up, self.worth)
