"""What a writer of skills is given, and what it gives back. There is no place in it for anything of an exam."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from whet.scoring import Score
from whet.scoring.score import ROUNDING
from whet.skills.documents.document import Policy
from whet.skills.documents.edits import Edit, RefusedEdit

PAIRS = 6
"""Tasks with mixed outcomes that are worth a look at once."""


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """A training task that an agent did with the skill."""

    task: str
    instruction: str
    score: float
    judgements: Mapping[str, Score]
    """Of the judges that count."""
    steps: str
    """What the agent did: numbered compact steps."""
    answer: str
    expected: tuple[str, ...] = ()
    """What its judges wait for, word for word. No rule may hold it."""

    @property
    def solved(self) -> bool:
        """Whether each of its judges is content; a fraction is not."""
        hard = [one.details.get("hard", one.value == 1) for one in self.judgements.values()]
        return self.score >= 1 - ROUNDING or (bool(hard) and all(hard))


@dataclass(frozen=True, slots=True)
class Tried:
    """An earlier set of edits, and whether the search took it."""

    edits: tuple[Edit, ...]
    refused: tuple[RefusedEdit, ...]
    accepted: bool | None
    """None when nothing is measured: none of the edits could be applied, or it is under way."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same training tasks under an earlier version of the skill and under the present one."""

    earlier: str
    """The first document as it was then."""
    pairs: tuple[tuple[ScoredRollout, ScoredRollout], ...]
    """A trial of then and one of now, of the same task."""

    @property
    def improved(self) -> list[tuple[ScoredRollout, ScoredRollout]]:
        return [(then, now) for then, now in self.pairs if now.score > then.score + ROUNDING]

    @property
    def regressed(self) -> list[tuple[ScoredRollout, ScoredRollout]]:
        return [(then, now) for then, now in self.pairs if now.score < then.score - ROUNDING]

    @property
    def never_worked(self) -> list[tuple[ScoredRollout, ScoredRollout]]:
        """As bad now as then."""
        return [(then, now) for then, now in self._unchanged if not now.solved]

    @property
    def stable(self) -> list[tuple[ScoredRollout, ScoredRollout]]:
        """As good now as then."""
        return [(then, now) for then, now in self._unchanged if now.solved]

    @property
    def _unchanged(self) -> list[tuple[ScoredRollout, ScoredRollout]]:
        return [(then, now) for then, now in self.pairs if abs(now.score - then.score) <= ROUNDING]


@dataclass(frozen=True, slots=True)
class ProposalContext:
    """All that a writer may know."""

    documents: Mapping[str, str]
    """The skill's documents by their paths; SKILL.md, or the memory document, is the first."""
    trials: tuple[ScoredRollout, ...]
    """Of the skill as it is."""
    tried: tuple[Tried, ...]
    policy: Policy
    edits: int | None
    """How many edits it may make; None when it is to choose that itself."""
    preferences: str = ""
    """House rules of the user."""
    certified: tuple[bool, ...] = ()
    """Of each attempt so far, whether it was certified. No other word of an exam gets here."""
    comparison: Comparison | None = None
    """Given at the end of an epoch: the writer is to learn from what changed since the epoch before."""
    memory: str = ""
    """What the writer wrote down for itself. It is never part of a skill."""
    also: str | None = None
    """The path of a second document that may be edited, which the agent always reads."""

    @property
    def shown(self) -> tuple[ScoredRollout, ...]:
        """All trials that the writer sees."""
        return (*self.trials, *(trial for pair in (self.comparison.pairs if self.comparison else ()) for trial in pair))

    @property
    def contrasts(self) -> list[tuple[ScoredRollout, ScoredRollout]]:
        """The best and the worst trial of the tasks that went differently, those that differ most first."""
        tasks: defaultdict[str, list[ScoredRollout]] = defaultdict(list)
        for trial in self.trials:
            tasks[trial.task].append(trial)
        pairs = [(max(some, key=_score), min(some, key=_score)) for some in tasks.values()]
        mixed = [(best, worst) for best, worst in pairs if best.score > worst.score + ROUNDING]
        return sorted(mixed, key=lambda pair: (pair[1].score - pair[0].score, pair[0].task))[:PAIRS]

    @property
    def document(self) -> str:
        """The text that is edited first of all."""
        return next(iter(self.documents.values()))

    @property
    def editable(self) -> dict[str, str]:
        """The texts that may be edited, by their paths."""
        first = next(iter(self.documents))
        return {path: self.documents[path] for path in (first, self.also) if path is not None}


def _score(trial: ScoredRollout) -> float:
    return trial.score


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a writer proposes."""

    edits: tuple[Edit, ...]
    reason: str = ""
    raw: str = ""
    """Its last word as it came, for diagnosis."""
    refused: tuple[RefusedEdit, ...] = ()
    """What it had in mind, and was not let."""
    memory: str | None = None
    """What it wants to have told in its next briefs; None leaves its memory as it is."""


class NoProposal(Exception):  # noqa: N818 - the writer was let down, which is no error of whet's
    """The writer's model or agent did not work. Never to be taken for "nothing to propose"."""


class Proposer(Protocol):
    """Proposes edits."""

    async def write(self, brief: ProposalContext) -> Proposal:
        """Edits to the first document; none when it has nothing to propose."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One proposal and what the search made of it. It is all that a proposer is told of earlier ones."""

    parent: str
    candidate: str
    mean: float
    """Of the candidate, on the dev tasks that it was tried on."""
    bar: float
    """What it had to be above."""
    dropped: bool = False
    """Whether it fell behind in a race, before it was tried on all dev tasks."""

    @property
    def accepted(self) -> bool:
        return not self.dropped and self.mean > self.bar
