"""The exam as an acceptance criterion of GEPA, so that only certified candidates enter its pool."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from whet.skills.gate.standalone import BudgetSpent, Exam
from whet.skills.measurement import Verdict

if TYPE_CHECKING:
    from gepa.core.state import GEPAState
    from gepa.proposer.base import CandidateProposal


class Batch(Protocol):
    """Result of an evaluation."""

    @property
    def scores(self) -> Sequence[float]:
        """One score per task."""
        ...


class Adapter(Protocol):
    """The part of a GEPA adapter that the exam needs."""

    def evaluate(self, batch: list[Any], candidate: dict[str, str]) -> Batch:
        """Run a candidate on tasks."""
        ...


class ExamAcceptance:
    """Accepts a proposal that is better on GEPA's minibatch and is then certified against the last certified candidate.

    Pass it to `gepa.optimize` as `acceptance_criterion`, and as `stop_callbacks` to stop when the budget is spent.
    GEPA's merges bypass it: leave `use_merge` off, or use `certified` instead of GEPA's best candidate."""

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
        """`tasks` are inputs of the adapter. They must not be in GEPA's training or validation set, because GEPA uses
        the scores of those. The other parameters are those of `Exam`."""

        def score(task: Any, candidate: str) -> float:
            (found,) = adapter.evaluate([task], json.loads(candidate)).scores
            return found

        # One at a time: an adapter may not be thread-safe.
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
        """The last certified candidate; the seed candidate if none was certified."""
        found: dict[str, str] = json.loads(self.exam.incumbent)
        return found

    def should_accept(self, proposal: "CandidateProposal[Any]", state: "GEPAState[Any, Any]") -> bool:  # noqa: ARG002
        """Called by GEPA for every proposal."""
        before, after = proposal.subsample_scores_before or [], proposal.subsample_scores_after or []
        candidate = _text(proposal.candidate)
        if self._is_spent or sum(after) <= sum(before) or candidate == self.exam.incumbent:
            return False
        try:
            return self.exam.run(candidate).test.verdict is Verdict.CERTIFIED
        except BudgetSpent:
            self._is_spent = True
            return False

    def __call__(self, gepa_state: "GEPAState[Any, Any]") -> bool:  # noqa: ARG002 - what GEPA passes by this name
        """Whether GEPA should stop because the budget is spent."""
        return self._is_spent


def _text(candidate: Mapping[str, str]) -> str:
    return json.dumps(dict(candidate), sort_keys=True)
