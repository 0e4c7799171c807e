"""What the tests of writers share: trials, and briefs made of them."""

from typing import Any

from whet.scoring import Score
from whet.skills.documents.document import Policy
from whet.skills.proposers.base import ProposalContext, ScoredRollout

SKILL = "---\nname: qa\ndescription: Answers questions.\n---\n\n# Answers\n\n- Be kind.\n"


def trial(task: str = "t1", **fields: Any) -> ScoredRollout:
    """A trial that failed, unless it says otherwise."""
    given = {"instruction": f"Do {task}.", "score": 0.0, "judgements": {}, "steps": "1. bash: ls", "answer": "I did."}
    return ScoredRollout(task=task, **{**given, **fields})


def failing_trials(*checks: dict[str, Any], tasks: int = 2) -> tuple[ScoredRollout, ...]:
    """Trials of so many tasks, each failing all of these checks."""
    score = Score.of(0, "no", checks=[{**check, "passed": False} for check in checks])
    return tuple(trial(f"t{n}", judgements={"rules": score}) for n in range(tasks))


def brief(*trials: ScoredRollout, document: str = SKILL, edits: int | None = 1, **fields: Any) -> ProposalContext:
    given = {"tried": (), "policy": Policy(), **fields}
    return ProposalContext(documents={"SKILL.md": document}, trials=trials, edits=edits, **given)
