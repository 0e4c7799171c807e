"""Before anything is proposed: the noise is measured, and the budget divided once and for all."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from whet.errors import UserError
from whet.runs.stats.summary import tally, total
from whet.runs.store.store import Store
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import OutOfBudget, RunPart
from whet.skills.rollouts.audit import Audit, audit, detectable_lift, is_hopeless, refuse_hopeless
from whet.skills.rollouts.budget import Budget, Unit, format_amount
from whet.skills.rollouts.runner import RolloutRunner
from whet.skills.rollouts.splits import Splits
from whet.skills.rollouts.terms import compute_once
from whet.skills.sharpen.budget_split import BudgetSplit, enough, refuse_too_few, split_budget

ROLLOUTS = "rollouts.json"
"""How many rollouts a budget was found to be good for that is given in another unit."""
FACTORS = (0.5, 1, 2, 4, 8)
"""For so many times the budget it is told what it would show."""


@dataclass(frozen=True, slots=True)
class Audited:
    """The noise is known, before anything is proposed."""

    audit: Audit
    lift: float | None
    """The smallest that the exams can show; None when they cannot be held."""
    table: list[tuple[str, float | None]]
    """For several budgets, the smallest lift that each shows."""
    seconds: float
    cost: float | None
    """Of a rollout."""
    rollouts: int
    """What the budget is good for."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """What is to be divided, for what."""

    budget: Budget
    plan: GatePlan
    splits: Splits
    known_good: str | None
    """Digest of a skill that is known to be good, if there is one."""

    @property
    def controls(self) -> int:
        return 1 if self.known_good is None else 2

    def shares(self, rollouts: int) -> BudgetSplit:
        """UserError when these are too few to try anything."""
        shares = split_budget(self.plan, rollouts, self.splits, self.controls)
        other_unit = self.budget.unit is not Unit.ROLLOUTS
        told = f"{self.budget}, which is about {rollouts} rollouts" if other_unit else str(rollouts)
        refuse_too_few(shares, self.splits, told)
        return shares

    def table(self, variance: float, rollouts: int) -> list[tuple[str, float | None]]:
        """What several budgets would show."""
        plans = [
            split_budget(self.plan, round(rollouts * factor), self.splits, self.controls).plan for factor in FACTORS
        ]
        lifts = [detectable_lift(variance, plan) for plan in plans]
        return [(self.scaled(factor), lift) for factor, lift in zip(FACTORS, lifts, strict=True)]

    def scaled(self, factor: float) -> str:
        """So many times the budget."""
        return format_amount(self.budget.amount * factor, self.budget.unit)


async def prepare(wanted: Preparing, start: str, lab: RolloutRunner, folder: Path) -> tuple[BudgetSplit, Audited]:
    """Measure the noise, and divide the budget by what that took."""
    try:
        found = await audit(start, [task.id for task in wanted.splits.train], lab, wanted.known_good)
    except OutOfBudget:
        raise UserError(f"--budget is {wanted.budget}; expected more: all of it was used up by the audit") from None
    lab.decided()
    known = wanted.budget.rollouts
    rollouts = known or compute_once(
        folder / ROLLOUTS, lambda: wanted.budget.in_rollouts(lab.account.used, found.rollouts)
    )
    shares = wanted.shares(rollouts)
    lab.account.divide({RunPart.SEARCH: shares.search_share, RunPart.EXAM: shares.exam_share}, wanted.budget.amount)
    variance = found.cautious_variance
    lift = detectable_lift(variance, shares.plan)
    seconds, cost = await asyncio.to_thread(_each, folder / RunPart.SEARCH)
    return shares, Audited(found, lift, wanted.table(variance, rollouts), seconds, cost, rollouts)


def refuse_if_hopeless(wanted: Preparing, shares: BudgetSplit, audited: Audited) -> None:
    """UserError when nothing can be found, or the exams can show nothing that may be expected; it says what budget they
    would need."""
    if all(score == 1 for pair in audited.audit.twice for score in pair):
        raise UserError(
            "the skill scores 1 on every training task, so no proposal can do better; expected harder tasks, or --force"
        )
    if not is_hopeless(audited.lift):
        return
    needed = enough(audited.audit.cautious_variance, shares, wanted.splits, wanted.controls)
    refuse_hopeless(audited.lift, wanted.scaled(needed / shares.rollouts) if needed else None)


def _each(search: Path) -> tuple[float, float | None]:
    """Seconds and dollars of a rollout so far."""
    with Store.open_read(search) as store:
        whole = total(tally(store).values())
    number = max(1, whole.measured)
    return whole.seconds / number, None if whole.cost is None else whole.cost / number
