"""For users of GEPA: the exam as its acceptance criterion, so that nothing enters its pool that is not proved."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from whet.skills.gate.standalone import BudgetSpent, Exam
from whet.skills.measurement import Verdict

if TYPE_CHECKING:
    from gepa.core.state import GEPAState
    from gepa.proposer.base import CandidateProposal


class Batch(Protocol):
    """What comes of an evaluation."""

    @property
    def scores(self) -> Sequence[float]:
        """One for each task."""
        ...


class Adapter(Protocol):
    """What is needed of a GEPA adapter."""

    def evaluate(self, batch: list[Any], candidate: dict[str, str]) -> Batch:
        """Try a candidate on tasks, afresh."""
        ...


class ExamAcceptance:
    """Accepts what is better on GEPA's own minibatch and then is certified against the last certified candidate.

    Given to `gepa.optimize` as `acceptance_criterion`, and as `stop_callbacks` to end when the budget is spent. GEPA's
    merges do not ask it: leave `use_merge` off, or take `certified` and not the best of GEPA's result."""

    def __init__(
        self,
        adapter: Adapter,
        seed_candidate: Mapping[str, str],
        tasks: Sequence[Any],
        *,
        alpha: float = 0.10,
        seed: int | None = None,
        budget: int | None = None,
    ) -> None:
        """`tasks` are data as the adapter evaluates it. They must be neither in the training nor in the validation set
        of GEPA, which looks at scores of those. The rest is as for `Exam`."""

        def score(task: Any, candidate: str) -> float:
            (found,) = adapter.evaluate([task], json.loads(candidate)).scores
            return found

        # One at a time: an adapter may not bear threads.
        self.exam = Exam(
            _text(seed_candidate),
            tasks,
            score,
            alpha=alpha,
            seed=seed,
            budget=budget,
            concurrency=1,
        )
        self._is_spent = False

    @property
    def certified(self) -> dict[str, str]:
        """The last certified candidate; the seed when none was."""
        found: dict[str, str] = json.loads(self.exam.incumbent)
        return found

    def should_accept(self, proposal: "CandidateProposal[Any]", state: "GEPAState[Any, Any]") -> bool:  # noqa: ARG002
        """GEPA asks this of every proposal."""
        before, after = proposal.subsample_scores_before or [], proposal.subsample_scores_after or []
        candidate = _text(proposal.candidate)
        if self._is_spent or sum(after) <= sum(before) or candidate == self.exam.incumbent:
            return False
        try:
            return self.exam.hold(candidate).attempt.verdict is Verdict.CERTIFIED
        except BudgetSpent:
            self._is_spent = True
            return False

    def __call__(self, gepa_state: "GEPAState[Any, Any]") -> bool:  # noqa: ARG002 - what GEPA passes by this name
        """Whether GEPA may stop: no further candidate can be held."""
        return self._is_spent


def _text(candidate: Mapping[str, str]) -> str:
    return json.dumps(dict(candidate), sort_keys=True)
