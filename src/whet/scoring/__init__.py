"""Scores, and the judges that give them, one file each."""

from whet.errors import UserError, did_you_mean
from whet.scoring.exact import Exact
from whet.scoring.judge import Judge, Work
from whet.scoring.reward import Reward
from whet.scoring.score import Cause, Score
from whet.scoring.verify import Verify
from whet.tasks.task import Task

__all__ = ["Cause", "Judge", "Score", "Work", "combine", "judges_of"]


def judges_of(task: Task) -> list[Judge]:
    """The judges that a task asks for: by name, or by what it ships.

    >>> [judge.name for judge in judges_of(Task(id="sum", instruction="1 + 1?", answer="2"))]
    ['exact']
    """
    if task.judge is not None:
        if task.judge != "exact":
            name = task.judge if isinstance(task.judge, str) else str(task.judge.get("kind", task.judge))
            raise UserError(f"{task.origin}: unknown judge '{name}'; {did_you_mean(name, ['exact'])}")
        if task.answer is None:
            raise UserError(f"{task.origin}: judge 'exact' needs the key 'answer'")
    judges: list[Judge] = []
    if task.tests is not None:
        judges.append(Reward())
    if task.verify:
        judges.append(Verify())
    if task.answer is not None:
        judges.append(Exact())
    if not judges:
        raise UserError(f"{task.origin}: nothing to judge by; expected tests, 'verify' or 'answer'")
    return judges


def combine(scores: dict[str, Score]) -> Score:
    """One score of many: their mean, or missing as soon as one is missing."""
    for name, score in scores.items():
        if score.cause is not None:
            return Score.missing(score.cause, f"{name}: {score.reason}")
    values = [score.value for score in scores.values() if score.value is not None]
    reasons = "; ".join(score.reason for score in scores.values())
    return Score.of(sum(values) / len(values), reasons)
