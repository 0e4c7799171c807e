"""How a budget is divided between audit, search, exams and the sealed test, and how large it would have to be."""

from bisect import bisect_left
from dataclasses import dataclass, replace

from whet.errors import UserError
from whet.skills.gate.plan import GatePlan
from whet.skills.rollouts.audit import detectable_lift, extra_rollouts, is_hopeless
from whet.skills.rollouts.final_test import tasks_to_test
from whet.skills.rollouts.splits import Splits
from whet.tasks import Task

_MOST = 1_000_000
"""Rollouts; whatever needs more is out of reach."""


@dataclass(frozen=True, slots=True)
class BudgetSplit:
    """What all rollouts of a run are for."""

    rollouts: int
    audit: int
    """Beside what the search pays anyway."""
    test: tuple[Task, ...]
    """Tasks that are done twice in the end."""
    plan: GatePlan
    """Of search and exams."""

    @property
    def exam_share(self) -> float:
        return self.plan.exam_budget / self.rollouts

    @property
    def test_share(self) -> float:
        return 2 * len(self.test) / self.rollouts

    @property
    def search_share(self) -> float:
        """With the audit."""
        return (self.audit + self.plan.search_budget) / self.rollouts


def split_budget(plan: GatePlan, rollouts: int, splits: Splits, controls: int) -> BudgetSplit:
    """So many rollouts, divided as the plan says. The audit has so many controls."""
    audit = extra_rollouts(len(splits.train), controls)
    # A tenth of the budget at most is put aside for each side of the test.
    test = tasks_to_test(splits.test, plan.seed, rollouts // 10)
    within = replace(plan, budget=max(0, rollouts - audit - 2 * len(test)))
    return BudgetSplit(rollouts, audit, test, within.settle_samples(len(splits.train)))


def refuse_too_few(shares: BudgetSplit, splits: Splits, budget: str) -> None:
    """UserError when there are too few rollouts to try anything."""
    if not shares.plan.proposals(len(splits.train)):
        raise UserError(
            f"--budget is {budget}; expected more: {splits} take {shares.audit + 2 * len(shares.test)} rollouts "
            f"for audit and test, and the search needs {shares.plan.samples} for each training task and proposal"
        )


def enough(variance: float, shares: BudgetSplit, splits: Splits, controls: int) -> int | None:
    """The fewest rollouts whose exams can show a lift that may be expected; None when more rollouts do not help."""

    def shows(rollouts: int) -> bool:
        return not is_hopeless(detectable_lift(variance, split_budget(shares.plan, rollouts, splits, controls).plan))

    found = bisect_left(range(_MOST), True, key=shows)
    return found if found < _MOST else None
