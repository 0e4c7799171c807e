"""Groups: the rollouts of one request, and what becomes of those without a score."""

from collections import Counter
from collections.abc import Sequence

from whet.client.models import GroupView, OnFailure, Outcome, RolloutView, Status
from whet.runs.store.served import RequestRow
from whet.serve.requests import Terms

GOOD = frozenset({Outcome.SCORED, Outcome.UNSCORED})
"""Outcomes of rollouts that ended as they should."""


def make_group(request: RequestRow, terms: Terms, rollouts: Sequence[RolloutView]) -> GroupView:
    """The group of a request. What `on_failure` says holds for rollouts that are done."""
    kept = [shown for one in rollouts if (shown := apply_on_failure(one, terms.on_failure)) is not None]
    names = {one.id for one in kept}
    dropped = Counter(describe_loss(one) for one in rollouts if one.id not in names)
    is_done = all(one.status is Status.DONE for one in rollouts)
    good = sum(one.outcome in GOOD for one in rollouts)
    return GroupView(
        id=request.id,
        status=_status(rollouts),
        rollouts=tuple(kept),
        dropped=dict(dropped),
        scored=sum(one.outcome is Outcome.SCORED for one in rollouts),
        complete=is_done and good >= terms.min_group,
        created=request.created,
        on_failure=terms.on_failure,
    )


def apply_on_failure(rollout: RolloutView, on_failure: OnFailure) -> RolloutView | None:
    """A rollout as its group shows it; None when it is left out."""
    if rollout.outcome is None or rollout.outcome in GOOD:
        return rollout
    match on_failure:
        case OnFailure.NULL:
            return rollout
        case OnFailure.ZERO:
            return rollout.model_copy(update={"reward": 0.0, "substituted": True})
    return None


def counted_rollouts(group: GroupView) -> list[RolloutView]:
    """The rollouts of a group that training rows come from, and that advantages are relative to. A stale one has no
    rows, whatever reward it is given."""
    return [
        one for one in group.rollouts if one.outcome in GOOD or (one.substituted and one.outcome is not Outcome.STALE)
    ]


def describe_loss(rollout: RolloutView) -> str:
    """The outcome, and the cause if it has one.

    >>> describe_loss(RolloutView.model_construct(outcome=Outcome.FAILED, cause="model"))
    'failed: model'
    """
    return f"{rollout.outcome}: {rollout.cause}" if rollout.cause else str(rollout.outcome)


def _status(rollouts: Sequence[RolloutView]) -> Status:
    statuses = {one.status for one in rollouts}
    if statuses == {Status.DONE}:
        return Status.DONE
    return Status.QUEUED if statuses == {Status.QUEUED} else Status.RUNNING
