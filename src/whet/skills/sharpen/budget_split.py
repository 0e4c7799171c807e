"""Splits a budget between audit, search, exams and final test, and refuses one that is too small."""

from bisect import bisect_left
from dataclasses import dataclass, replace

from whet.errors import UserError
from whet.runs.stats.use import Unit, format_amount
from whet.skills.gate.plan import GatePlan
from whet.skills.rollouts.audit import Audit, detectable_lift, extra_rollouts, is_hopeless, refuse_hopeless
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.final_test import tasks_to_test
from whet.skills.rollouts.splits import Splits
from whet.tasks import Task

FACTORS = (0.5, 1, 2, 4, 8)
"""The audit reports the detectable lift for these multiples of the budget."""
_MOST = 1_000_000
"""Rollouts. No larger budget is suggested."""


@dataclass(frozen=True, slots=True)
class BudgetSplit:
    """What the rollouts of a run are for."""

    rollouts: int
    audit: int
    """Without the rollouts that the search uses as well."""
    test: tuple[Task, ...]
    """Tasks of the final test; each is done twice."""
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
        """Includes the audit."""
        return (self.audit + self.plan.search_budget) / self.rollouts


def split_budget(plan: GatePlan, rollouts: int, splits: Splits, controls: int) -> BudgetSplit:
    """Split a number of rollouts as the plan says. `controls` is the number of skills that the audit compares with."""
    audit = extra_rollouts(len(splits.train), controls)
    # Each side of the test gets at most a tenth of the budget.
    test = tasks_to_test(splits.test, plan.seed, rollouts // 10)
    within = replace(plan, budget=max(0, rollouts - audit - 2 * len(test)))
    return BudgetSplit(rollouts, audit, test, within.settle_samples(len(splits.train)))


@dataclass(frozen=True, slots=True)
class BudgetSplitter:
    """Splits the budget of one run, once the number of rollouts is known."""

    budget: Budget
    plan: GatePlan
    splits: Splits
    known_good: str | None
    """Digest of the positive control, if there is one."""

    @property
    def controls(self) -> int:
        return 1 if self.known_good is None else 2

    def split(self, rollouts: int) -> BudgetSplit:
        """Split the budget; UserError when it is too small to try one proposal."""
        split, splits = self._split(rollouts), self.splits
        if not split.plan.proposals(len(splits.train)):
            in_rollouts = self.budget.unit is Unit.ROLLOUTS
            budget = str(rollouts) if in_rollouts else f"{self.budget}, which is about {rollouts} rollouts"
            raise UserError(
                f"`budget` is {budget}; expected more: {splits} take {split.audit + 2 * len(split.test)} rollouts "
                f"for audit and test, and the search needs {split.plan.samples} for each training task and proposal"
            )
        return split

    def lift_table(self, variance: float, rollouts: int) -> list[tuple[str, float | None]]:
        """The smallest detectable lift for several multiples of the budget."""
        plans = [(factor, self._split(round(rollouts * factor)).plan) for factor in FACTORS]
        return [(self._scale(factor), detectable_lift(variance, plan)) for factor, plan in plans]

    def check_power(self, split: BudgetSplit, audit: Audit, lift: float | None) -> None:
        """UserError when the skill cannot get better, or when the exams cannot detect a realistic lift."""
        if all(score == 1 for pair in audit.twice for score in pair):
            raise UserError(
                "the skill scores 1 on every training task, so no proposal can do better; "
                "expected harder tasks, or `force`"
            )
        if is_hopeless(lift):
            needed = self._find_enough(audit.cautious_variance)
            refuse_hopeless(lift, self._scale(needed / split.rollouts) if needed else None)

    def _find_enough(self, variance: float) -> int | None:
        """The fewest rollouts whose exams detect a realistic lift; None when more rollouts do not help."""

        def is_enough(rollouts: int) -> bool:
            return not is_hopeless(detectable_lift(variance, self._split(rollouts).plan))

        found = bisect_left(range(_MOST), True, key=is_enough)
        return found if found < _MOST else None

    def _split(self, rollouts: int) -> BudgetSplit:
        return split_budget(self.plan, rollouts, self.splits, self.controls)

    def _scale(self, factor: float) -> str:
        return format_amount(self.budget.amount * factor, self.budget.unit)
