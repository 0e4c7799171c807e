"""The result of a sharpen run, and where it lies."""

from dataclasses import dataclass
from pathlib import Path

from whet.skill import Skill
from whet.skills.certificates.certificate import Certificate
from whet.skills.gate.gate import ExamResult
from whet.skills.measurement import Verdict
from whet.skills.rollouts.audit import Audit
from whet.skills.rollouts.budget import Budget
from whet.skills.search.two_tiers import SearchResult


@dataclass(frozen=True, slots=True)
class SharpenResult:
    """The result of a sharpen run."""

    folder: Path
    done: SearchResult
    start: Skill
    best: Skill
    """The last certified skill; the start when none was certified."""
    leader: Skill
    """The best skill of the search. It is not certified."""
    shortened: Skill | None
    """The certified skill without rules that do not help; None when no rule was removed."""
    accepted: Skill | None
    """The skill that a rule accepted, where a rule decides instead of exams."""
    audit: Audit
    certificate: Certificate
    budget: Budget
    """For everything that the run uses."""
    rollouts: int
    """Rollouts of all parts of the run."""
    used: str | None = None
    """What the run used of a budget that is not in rollouts."""

    @property
    def spending(self) -> str:
        """What the run used of its budget."""
        rollouts = f"{self.rollouts} rollouts"
        if self.used is None:
            return f"{rollouts} of {self.budget.rollouts}"
        return f"{rollouts} and {self.used} of {self.budget}"

    @property
    def solved_nothing(self) -> bool:
        """Whether every training task scored 0, with the first skill and with every proposal."""
        return self.audit.is_all_zero and not any(step.mean > 0 for step in self.done.steps)

    @property
    def certified(self) -> list[ExamResult]:
        return [held for held in self.done.exam_results if held.test.verdict is Verdict.CERTIFIED]
