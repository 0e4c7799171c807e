"""What is fixed before a skill is sharpened: levels, purses and the rules of both tiers."""

import math
from dataclasses import dataclass

from whet.skills.attempt import Terms
from whet.skills.kinds import GateKind, SearchKind


@dataclass(frozen=True, slots=True)
class Plan:
    """The terms of one run. Written down before the first rollout; a resumed run reads them back."""

    budget: int
    """Rollouts, of both tiers and all proposals."""
    seed: int = 0
    alpha: float = 0.10
    """The chance that the run certifies anything that is no better than what it replaces."""
    giving_up: float = 0.20
    worth: float = 0.12
    """The smallest lift that is worth finding."""
    attempts: int = 4
    """Candidates that one exam may see."""
    rollouts_per_task: int = 12
    """An attempt takes at most so many for each task of its exam, of both sides together."""
    certify_share: float = 0.20
    """The part of the budget that only exams may use."""
    samples: int = 1
    """Rollouts on each dev task, whenever the search measures a skill."""
    accepted_before_attempt: int = 3
    """After so many accepted edits the leader is held before the exam."""
    rejections_before_remeasuring: int = 6
    """After so many in a row the leader is measured afresh: the mean of a winner is too high."""
    search: SearchKind = SearchKind.RATCHET
    gate: GateKind = GateKind.CERTIFY
    """What decides on the leader. Only an exam certifies."""
    shorten: bool = True
    """Whether what the search has left is spent on dropping what carries nothing from a certified skill."""
    margin: float = 0.10
    """What a skill may lose, all in all, when rules that carry nothing are dropped from it."""
    removal_alpha: float = 0.05
    """The chance that it loses more."""

    @property
    def certify_purse(self) -> int:
        return round(self.budget * self.certify_share)

    @property
    def search_purse(self) -> int:
        return self.budget - self.certify_purse

    @property
    def repeats(self) -> int:
        """Rollouts of the incumbent at each position of an exam. All candidates meet the same; cost times variance is
        (1 + repeats / attempts) (1 + 1 / repeats), which is least at the root."""
        return round(math.sqrt(self.attempts))

    def proposals(self, tasks: int) -> int:
        """How many the search can try on so many dev tasks, when it has measured what it begins with."""
        return max(0, self.search_purse // (self.samples * tasks) - 1)

    def positions(self, tasks: int) -> int:
        """The most that an attempt on so many tasks takes."""
        return self.rollouts_per_task * tasks // (1 + self.repeats)

    def terms(self, level: float, tasks: int) -> Terms:
        """Of an attempt on so many tasks."""
        return Terms(level, self.positions(tasks), self.giving_up, self.worth, self.repeats)


def detectable(variance: float, repeats: int, positions: int, level: float) -> float:
    """The smallest lift that so many positions certify in 80 % of cases.

    `variance` is that of a rollout's score on one task, from the audit: half the mean square between two measurements.

    >>> round(detectable(0.154, 1, 120, 0.0125), 3), round(detectable(0.154, 2, 120, 0.0125), 3)
    (0.226, 0.196)
    """
    return (math.sqrt(2 * math.log(1 / level)) + 1.5) * math.sqrt(variance * (1 + 1 / repeats) / positions)
