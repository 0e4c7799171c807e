"""`human`: the labels that people set on a rollout, as a score. Only `whet rejudge` uses it, when a file names it."""

from collections.abc import Sequence
from statistics import fmean

from whet.scoring.score import Cause, Score
from whet.tasks.judges import HumanSpec


def score_labels(spec: HumanSpec, labels: Sequence[tuple[str, str]]) -> Score:
    """The mean of what the labels are worth, each given as its author and its value. Missing if there is none that is
    worth a number.

    >>> spec = HumanSpec(kind="human", scores={"good": 1, "bad": 0})
    >>> score_labels(spec, [("ana", "good"), ("li", "bad"), ("bo", "unsure")]).value
    0.5
    """
    counted = [(author, value) for author, value in labels if not spec.authors or author in spec.authors]
    worth = [spec.scores[value] for _, value in counted if value in spec.scores]
    said = ", ".join(f"{value} ({author})" for author, value in counted)
    if not worth:
        reason = f"no label '{spec.label}' is worth a score" + (f": {said}" if said else "; nobody has set one")
        return Score.missing(Cause.JUDGE, reason, unrelated=True)
    return Score.of(fmean(worth), f"{spec.label}: {said}", labels=[{"author": a, "value": v} for a, v in counted])
