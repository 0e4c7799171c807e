"""What the tests of proposers share: scored rollouts, and contexts made of them."""

from typing import Any

from whet.scoring import Score
from whet.skills.documents.document import Policy
from whet.skills.proposers.base import ProposalContext, ScoredRollout

SKILL = "---\nname: qa\ndescription: Answers questions.\n---\n\n# Answers\n\n- Be kind.\n"


def rollout(task: str = "t1", **fields: Any) -> ScoredRollout:
    """A rollout that failed, unless the fields say otherwise."""
    given = {"instruction": f"Do {task}.", "score": 0.0, "judgements": {}, "steps": "1. bash: ls", "answer": "I did."}
    return ScoredRollout(task=task, **{**given, **fields})


def failing_rollouts(*checks: dict[str, Any], tasks: int = 2) -> tuple[ScoredRollout, ...]:
    """One rollout for each of `tasks` tasks, which fails all of these checks."""
    score = Score.of(0, "no", checks=[{**check, "passed": False} for check in checks])
    return tuple(rollout(f"t{n}", judgements={"rules": score}) for n in range(tasks))


def context(*rollouts: ScoredRollout, document: str = SKILL, edits: int | None = 1, **fields: Any) -> ProposalContext:
    given = {"past": (), "policy": Policy(), **fields}
    return ProposalContext(documents={"SKILL.md": document}, rollouts=rollouts, max_edits=edits, **given)
