"""The proposer protocol: what a proposer is given and what it returns. Nothing here comes from an exam."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from whet.scoring import Score
from whet.scoring.score import ROUNDING
from whet.skills.documents.document import Policy
from whet.skills.documents.edits import Edit, RefusedEdit

PAIRS = 6
"""At most this many tasks with mixed outcomes are shown at once."""


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """One rollout of a train task with the skill, and its score."""

    task: str
    instruction: str
    score: float
    judgements: Mapping[str, Score]
    """Only of judges with a weight."""
    steps: str
    """What the agent did: numbered compact steps."""
    answer: str
    expected: tuple[str, ...] = ()
    """The answers that its judges expect, word for word. No rule may contain them."""

    @property
    def solved(self) -> bool:
        """Whether all judges pass; part of the points is not enough."""
        hard = [one.details.get("hard", one.value == 1) for one in self.judgements.values()]
        return self.score >= 1 - ROUNDING or (bool(hard) and all(hard))


RolloutPair = tuple[ScoredRollout, ScoredRollout]
"""Two rollouts of the same task."""


@dataclass(frozen=True, slots=True)
class PastProposal:
    """The edits of an earlier proposal, and whether the search accepted them."""

    edits: tuple[Edit, ...]
    refused: tuple[RefusedEdit, ...]
    accepted: bool | None
    """None when it was not measured: no edit could be applied, or the measurement is not finished."""


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """The same train tasks with an earlier version of the skill and with the present one."""

    earlier: str
    """The first document of the earlier version."""
    pairs: tuple[RolloutPair, ...]
    """A rollout with the earlier version and one with the present version, per task."""

    @property
    def improved(self) -> list[RolloutPair]:
        return [(then, now) for then, now in self.pairs if now.score > then.score + ROUNDING]

    @property
    def regressed(self) -> list[RolloutPair]:
        return [(then, now) for then, now in self.pairs if now.score < then.score - ROUNDING]

    @property
    def never_worked(self) -> list[RolloutPair]:
        return [(then, now) for then, now in self._same_score if not now.solved]

    @property
    def stable(self) -> list[RolloutPair]:
        """Solved with both versions."""
        return [(then, now) for then, now in self._same_score if now.solved]

    @property
    def _same_score(self) -> list[RolloutPair]:
        return [(then, now) for then, now in self.pairs if abs(now.score - then.score) <= ROUNDING]


def compare_versions(earlier: str, then: Sequence[ScoredRollout], now: Sequence[ScoredRollout]) -> VersionComparison:
    """Pair the last rollouts of the tasks that both versions did; `earlier` is the text of the earlier document."""
    before, after = ({one.task: one for one in side} for side in (then, now))
    return VersionComparison(earlier, tuple((before[task], one) for task, one in after.items() if task in before))


@dataclass(frozen=True, slots=True)
class ProposalContext:
    """Everything that a proposer may know."""

    documents: Mapping[str, str]
    """The documents of the skill by path; SKILL.md, or the memory file, comes first."""
    rollouts: tuple[ScoredRollout, ...]
    """With the skill as it is."""
    past: tuple[PastProposal, ...]
    policy: Policy
    max_edits: int | None
    """None when the proposer chooses the number."""
    preferences: str = ""
    """House rules of the user."""
    certified: tuple[bool, ...] = ()
    """For each exam so far, whether it certified. Nothing else of an exam is passed to a proposer."""
    comparison: VersionComparison | None = None
    """Set at the end of an epoch: the proposer is to learn from what changed since the epoch began."""
    memory: str = ""
    """The proposer's note to itself. It is never part of a skill."""
    second_document: str | None = None
    """Path of a second document that may be edited, which the agent always reads."""

    @property
    def all_rollouts(self) -> tuple[ScoredRollout, ...]:
        """Every rollout that the proposer sees."""
        return (*self.rollouts, *(one for pair in (self.comparison.pairs if self.comparison else ()) for one in pair))

    @property
    def contrasts(self) -> list[RolloutPair]:
        """The best and the worst rollout of each task with mixed outcomes, the largest differences first."""
        tasks: defaultdict[str, list[ScoredRollout]] = defaultdict(list)
        for rollout in self.rollouts:
            tasks[rollout.task].append(rollout)
        pairs = [(max(some, key=_score), min(some, key=_score)) for some in tasks.values()]
        mixed = [(best, worst) for best, worst in pairs if best.score > worst.score + ROUNDING]
        return sorted(mixed, key=lambda pair: (pair[1].score - pair[0].score, pair[0].task))[:PAIRS]

    @property
    def document(self) -> str:
        """The text of the first document."""
        return next(iter(self.documents.values()))

    @property
    def editable(self) -> dict[str, str]:
        """The texts that may be edited, by path."""
        first = next(iter(self.documents))
        return {path: self.documents[path] for path in (first, self.second_document) if path is not None}


def _score(rollout: ScoredRollout) -> float:
    return rollout.score


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a proposer returns. It is stored in `drafts/`, so its field names stay."""

    edits: tuple[Edit, ...]
    reason: str = ""
    raw: str = ""
    """The last reply of the model or agent, for diagnosis."""
    refused: tuple[RefusedEdit, ...] = ()
    """Edits that were made and not allowed, with the reason."""
    memory: str | None = None
    """The proposer's new note to itself; None keeps the old one."""
    exhausted: bool = False
    """Whether the proposer has nothing more to propose, however often it is asked about this skill."""


class NoProposal(Exception):  # noqa: N818 - the proposer's model failed, which is not an error of whet
    """The proposer's model or agent failed. This is not the same as "nothing to propose"."""


class Proposer(Protocol):
    """Proposes edits of a skill.

    >>> class AddsOneRule:
    ...     async def propose(self, context: ProposalContext) -> Proposal:
    ...         return Proposal((Edit(op="add", text="- Answer in one word."),))
    """

    async def propose(self, context: ProposalContext) -> Proposal:
        """Return edits; a proposal without edits when there is nothing to propose."""
        ...


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One candidate and what the search decided about it. Proposers learn nothing else about earlier candidates."""

    parent: str
    candidate: str
    mean: float
    """Of the candidate, on the train tasks that it was measured on."""
    bar: float
    """The mean that it had to exceed."""
    dropped: bool = False
    """Whether it fell behind in a race, before it was measured on all train tasks."""
    harmful: bool = False
    """Whether the guard of the run fell too far."""

    @property
    def accepted(self) -> bool:
        return not self.dropped and not self.harmful and self.mean > self.bar
