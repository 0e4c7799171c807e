"""The plan of a run, fixed before it starts: levels, budgets and the rules of search and exams."""

from dataclasses import dataclass, replace

from whet.skills.gate.exam import PAIR
from whet.skills.gate.guard import Guard
from whet.skills.gate.kinds import GateKind, SearchKind
from whet.skills.gate.sequential_test import ExamTerms, level_of

MANY = 1_000_000
"""Rollouts of a budget that is limited by another unit."""

FEW_TASKS_PAIRS = 40
"""Pairs that an exam may always have: with few tasks, repeats make up for tasks."""
AUTO = 0
"""Samples: choose by the number of training tasks."""
_MEASURED_BY = 30
"""Enough rollouts to measure a skill: with 10, the search misses a rule that adds 30 points in one run of six; with
30, in one of eighty."""
_PROPOSALS = 12
"""The number of samples leaves room for at least this many proposals."""


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The plan of one run. It is written before the first rollout, and a resumed run must have the same plan."""

    budget: int
    """Rollouts of the search and the exams."""
    seed: int = 0
    """Seed of the task split and of the search. The order of exams has its own seed."""
    alpha: float = 0.10
    """Maximum chance that the run certifies a skill that is not better than the skill it replaces."""
    beta: float = 0.20
    """Maximum chance to give up on a lift of `minimum_effect`."""
    minimum_effect: float = 0.12
    """The smallest lift that is worth finding."""
    rollouts_per_task: int = 12
    """Maximum rollouts of an exam per validation task, of both skills together, while the search is open and when the
    bounds of a certificate are tightened."""
    certify_share: float = 0.20
    """The share of the budget that is reserved for exams."""
    samples: int = 1
    """Rollouts per train task when the search measures a skill. AUTO until the budget is split."""
    accepted_before_attempt: int = 3
    """The leader takes an exam after this many accepted edits."""
    rejections_before_remeasuring: int = 6
    """The leader is measured again after this many rejections in a row: the mean of a winner is too high."""
    search: SearchKind = SearchKind.RATCHET
    gate: GateKind = GateKind.CERTIFY
    """What decides about the leader. Only an exam certifies."""
    shorten: bool = False
    """Whether to spend the rest of the budget on a shorter version of a certified skill."""
    margin: float = 0.10
    """Maximum loss of a shorter version; never more than half of the certified lift."""
    removal_level: float = 0.05
    """Maximum chance that a shorter version loses more than that."""
    guard: Guard | None = None
    """A second score that must not get worse."""
    one_exam: bool = False
    """Whether the run holds one exam only, after the search, which then uses all of alpha."""

    @property
    def exam_budget(self) -> int:
        return round(self.budget * self.certify_share)

    @property
    def search_budget(self) -> int:
        return self.budget - self.exam_budget

    def settle_samples(self, tasks: int) -> "GatePlan":
        """Choose the number of samples for this many train tasks, unless the user chose one.

        >>> [GatePlan(budget, samples=AUTO).settle_samples(10).samples for budget in (100, 400, 800)]
        [1, 2, 3]
        """
        if self.samples != AUTO:
            return self
        affordable = self.search_budget // ((1 + _PROPOSALS) * tasks)
        return replace(self, samples=max(1, min(_MEASURED_BY // tasks, affordable)))

    def proposals(self, tasks: int) -> int:
        """How many proposals the search can measure on this many train tasks, besides the first skill."""
        return max(0, self.search_budget // (self.samples * tasks) - 1)

    def max_pairs(self, tasks: int) -> int:
        """Maximum pairs of an exam on this many tasks while the search is open.

        >>> [GatePlan(400).max_pairs(tasks) for tasks in (5, 6, 7, 30)]
        [40, 40, 42, 180]
        """
        return max(FEW_TASKS_PAIRS, self.rollouts_per_task * tasks // PAIR)

    def level(self, number: int) -> float:
        """The level of the exam with this number, from 1."""
        return self.alpha if self.one_exam else level_of(self.alpha, number)

    def terms(self, level: float, max_pairs: int) -> ExamTerms:
        return ExamTerms(level, max_pairs, self.beta, self.minimum_effect, guard=self.guard)
