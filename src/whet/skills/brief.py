"""What a writer of skills is given, and what it gives back. There is no place in it for anything of an exam."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from whet.scoring import Score
from whet.skills.edits import Edit, Refused
from whet.skills.policy import Policy


@dataclass(frozen=True, slots=True)
class Trial:
    """A training task that an agent did with the skill."""

    task: str
    instruction: str
    score: float
    judgements: Mapping[str, Score]
    steps: str
    """What the agent did: numbered compact steps."""
    answer: str


@dataclass(frozen=True, slots=True)
class Tried:
    """An earlier set of edits, and whether the search took it."""

    edits: tuple[Edit, ...]
    refused: tuple[Refused, ...]
    accepted: bool | None
    """None when none of the edits could be applied, so nothing was measured."""


@dataclass(frozen=True, slots=True)
class Brief:
    """All that a writer may know."""

    documents: Mapping[str, str]
    """The skill's documents by their paths; SKILL.md, or the memory document, is the first."""
    trials: tuple[Trial, ...]
    """Of the skill as it is."""
    tried: tuple[Tried, ...]
    policy: Policy
    edits: int
    """How many edits it may make."""
    preferences: str = ""
    """House rules of the user."""
    certified: tuple[bool, ...] = ()
    """Of each attempt so far, whether it was certified. No other word of an exam gets here."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a writer proposes."""

    edits: tuple[Edit, ...]
    reason: str = ""
    raw: str = ""
    """Its last word as it came, for diagnosis."""


class Writer(Protocol):
    """Proposes edits."""

    async def write(self, brief: Brief) -> Draft:
        """Edits to the first document; none when it has nothing to propose."""
        ...
