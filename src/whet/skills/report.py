"""What a run of sharpening is told as: one paragraph in plain words."""

from whet.skills.attempt import Verdict
from whet.skills.engine import Held
from whet.skills.sharpening import Outcome


def in_plain_words(outcome: Outcome) -> str:
    """What was found, what it rests on, and what is not known."""
    done = outcome.done
    tried = f"{len(done.steps)} proposals were tried with {done.spent} rollouts of {done.plan.budget}."
    if outcome.certified:
        return f"{_certified(outcome, outcome.certified[-1])} {tried}"
    if outcome.leader.digest == outcome.start.digest:
        return f"No better skill was found: no proposal did better on the training tasks. {tried}"
    return f"No better skill was certified. {_why(outcome)} {tried}"


def _certified(outcome: Outcome, last: Held) -> str:
    attempt = last.attempt
    steps = "" if len(outcome.certified) == 1 else f" (the last of {len(outcome.certified)} certified steps)"
    lift = f"at least {attempt.at_least() * 100:.1f} points"
    estimate = attempt.estimate()
    likely = "" if estimate is None else f", most likely {estimate * 100:.1f}"
    return (
        f"A better skill was certified{steps}: on the validation tasks its score is {lift} above the one before"
        f"{likely}. A run certifies anything that is no better with a chance of at most {outcome.done.plan.alpha:.0%}."
    )


def _why(outcome: Outcome) -> str:
    if not outcome.done.held:
        return "The budget was too small to hold the best candidate before an exam; the leader is not proved."
    attempt = outcome.done.held[-1].attempt
    if attempt.verdict is Verdict.FUTILE:
        return (
            f"The leader was held before the exam: a lift of {attempt.terms.worth * 100:.0f} points or more is "
            f"unlikely (at most {attempt.at_most() * 100:.1f})."
        )
    between = f"between {attempt.at_least() * 100:.1f} and {attempt.at_most() * 100:.1f} points"
    return f"The exam could not decide: the lift of the leader lies {between}."
