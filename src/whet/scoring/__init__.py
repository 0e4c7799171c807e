"""Scores, and the judges that turn a finished rollout into them.

Read `score.py` and `judge.py` first: what a score is, and what every judge receives. `judges/` has one file per
judge; `task_judges.py` selects the judges of a task and combines their scores.
"""

from whet.scoring.judge import GroupJudge, Judge, JudgeError, JudgeModel, ObservedCall, Work
from whet.scoring.judges.human import score_labels
from whet.scoring.judges.rank import RankJudge
from whet.scoring.score import NO_VERDICT, Cause, Score
from whet.scoring.task_judges import TaskJudge, combine, judges_of

__all__ = [
    "NO_VERDICT",
    "Cause",
    "GroupJudge",
    "Judge",
    "JudgeError",
    "JudgeModel",
    "ObservedCall",
    "RankJudge",
    "Score",
    "TaskJudge",
    "Work",
    "combine",
    "judges_of",
    "score_labels",
]
