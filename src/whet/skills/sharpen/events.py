"""What a sharpen run reports to its caller while it works."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whet.runs.scheduler import Ended, Stopped
from whet.runs.stats.use import Piloted
from whet.skill import Skill
from whet.skills.gate.alpha_ledger import LedgerEntry
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.heuristics import RuleComparison
from whet.skills.gate.seed import Seed
from whet.skills.proposers.base import SearchStep
from whet.skills.proposers.driver import ProposalMade
from whet.skills.rollouts.audit import Audit
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.splits import Splits
from whet.skills.search.shorten import Removal


@dataclass(frozen=True, slots=True)
class SharpenStarted:
    """The run is open."""

    folder: Path
    skill: Skill
    splits: Splits
    budget: Budget
    used: LedgerEntry
    """How often the validation tasks were used before."""
    seed: Seed
    """Of the order of exams. Only its commitment may be shown."""


@dataclass(frozen=True, slots=True)
class AuditFinished:
    """The noise is measured. Nothing is proposed yet."""

    audit: Audit
    lift: float | None
    """The smallest lift that the exams can detect; None when the budget is too small for an exam."""
    table: list[tuple[str, float | None]]
    """The smallest detectable lift for several budgets."""
    seconds: float
    """Per rollout."""
    cost: float | None
    """Dollars per rollout; None when the price is unknown."""
    rollouts: int
    """About how many rollouts the budget covers."""


SharpenEvent = (
    SharpenStarted
    | Piloted
    | AuditFinished
    | ProposalMade
    | SearchStep
    | ExamResult
    | RuleComparison
    | Removal
    | Ended
    | Stopped
)
SharpenWatch = Callable[[SharpenEvent], None]
