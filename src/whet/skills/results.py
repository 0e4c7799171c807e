"""What came of sharpening a skill, and where it lies."""

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
    """What came of it, and where it lies."""

    folder: Path
    done: SearchResult
    start: Skill
    best: Skill
    """The last certified skill; the start when none was."""
    leader: Skill
    """The best that the search found. Nothing is promised of it."""
    shortened: Skill | None
    """The certified skill without what carries nothing; None when nothing was dropped."""
    accepted: Skill | None
    """What a classic rule accepted, where one was asked for instead of exams."""
    audit: Audit
    certificate: Certificate
    budget: Budget
    """Of all that the run uses."""
    used: str | None = None
    """Of a budget that is not in rollouts."""

    @property
    def spending(self) -> str:
        """What the run used of its budget."""
        rollouts = f"{self.done.spent} rollouts"
        if self.used is None:
            return f"{rollouts} of {self.budget.rollouts}"
        return f"{rollouts} and {self.used} of {self.budget}"

    @property
    def certified(self) -> list[ExamResult]:
        return [held for held in self.done.exam_results if held.test.verdict is Verdict.CERTIFIED]
