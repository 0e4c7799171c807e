"""The morning report: one screen, whose first line says what the user has to do."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Outcome(StrEnum):
    """How a night ended. All but the first name the constraint that kept it from a proposal."""

    PROPOSED = "proposed"
    NO_SESSIONS = "no sessions"
    NO_STATE = "no replayable state"
    NO_JUDGE = "no proven judge"
    NO_RULE = "no recurring correction"
    NOISE = "noise too high"
    BUDGET = "budget"
    NO_TIME = "no time"
    NOTHING_TO_IMPROVE = "nothing to improve"
    FAILED = "failed"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cost(_Record):
    """What a night spent."""

    rollouts: int = 0
    tokens: int = 0
    minutes: float = 0
    dollars: float | None = None
    """None if no price is known."""


class NightRecord(_Record):
    """What one night read, spent and found."""

    id: str
    """Its date, such as 2026-11-16; a second night of that date has a suffix."""
    started: AwareDatetime
    ended: AwareDatetime | None = None
    """None while it runs, or if it was killed."""
    sessions: Mapping[str, int] = Field(default_factory=dict)
    """Sessions read, by agent."""
    not_used: Mapping[str, int] = Field(default_factory=dict)
    """Sessions that gave no task and no rule, by cause."""
    unknown: Mapping[str, int] = Field(default_factory=dict)
    """Record types that no reader knows, by agent and version, such as `gemini 0.62`."""
    expiring: Mapping[str, int] = Field(default_factory=dict)
    """Transcripts that their program deletes within a week, by agent."""
    secrets_masked: int = 0
    proposals: tuple[str, ...] = ()
    """Ids of the proposals that it staged."""
    notes: tuple[str, ...] = ()
    """What the user should know and need not decide, one line each."""
    cost: Cost = Cost()
    outcome: Outcome
    detail: str = ""
    """The figures behind the outcome, in one line, such as the smallest effect that the exam could have found."""
