"""Score: a number in [0, 1], or missing with its cause. Missing is never zero."""

from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

NO_VERDICT = "no-verdict"
"""Flag of a rollout on which a judge reached no verdict because of the work itself. That judge gives 0."""
ROUNDING = 1e-9
"""A score this little below a threshold reaches it: the difference is rounding."""


class Cause(StrEnum):
    """Why a score is missing. Each but `UNJUDGED` is a failure of the machinery, never of the agent's work."""

    SANDBOX = "sandbox"
    """The box could not be opened or a command in it could not be started."""
    SETUP = "setup"
    """A set-up command of the task failed."""
    AGENT = "agent"
    """The agent's program ended before it called its model, and it did so in every rollout of the run."""
    MODEL = "model"
    """The model did not answer: refused connection, 429 or 5xx after retries, a hang, a broken reply."""
    AUTH = "auth"
    """The model's endpoint refused the key. Retrying does not help."""
    CACHE = "cache"
    """A reply is not in the cache, and no model may be called. Retrying does not help."""
    DIVERGED = "diverged"
    """A fork did not reach the step at which it was to begin: the agent did something other than recorded."""
    JUDGE = "judge"
    """The judge failed: no reward file, an unreadable one, verification out of time."""
    UNJUDGED = "unjudged"
    """The rollout ended, and its task has nothing that judges it. Only served tasks can be so."""
    INTERRUPTED = "interrupted"
    """whet itself was stopped while the rollout ran."""
    INTERNAL = "internal"
    """A defect of whet; the details hold the traceback."""

    @property
    def worth_retrying(self) -> bool:
        """Whether a retry of the same rollout may succeed."""
        return self in {Cause.SANDBOX, Cause.AGENT, Cause.MODEL, Cause.INTERRUPTED}


class Score(BaseModel):
    """The score of one judge, or of all judges of a rollout together.

    >>> Score.of(0.5).value
    0.5
    >>> Score.missing(Cause.MODEL, "502 five times").cause
    <Cause.MODEL: 'model'>
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    cause: Cause | None = None
    reason: str = ""
    """One line for people: why it is missing, or why it is what it is."""
    details: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _number_or_cause(self) -> Self:
        if (self.value is None) == (self.cause is None):
            raise ValueError("a score is either a number or missing with a cause")
        return self

    @classmethod
    def of(cls, value: float, reason: str = "", **details: Any) -> "Score":
        return cls(value=value, reason=reason, details=details)

    @classmethod
    def undecided(cls, reason: str, **details: Any) -> "Score":
        """0, because the work itself kept the judge from a verdict; the rollout is flagged."""
        return cls(value=0, reason=reason, details={**details, "no_verdict": True})

    def __str__(self) -> str:
        """
        >>> print(Score.of(0.5, "1 of 2 commands passed"), Score.missing(Cause.MODEL, "502 five times"), sep=", ")
        0.5, missing (model)
        """
        return f"missing ({self.cause})" if self.value is None else f"{self.value:g}"

    @property
    def is_undecided(self) -> bool:
        """Whether the work itself kept the judge from a verdict, on all of it or on one of its checks."""
        return self.details.get("no_verdict") is True

    @classmethod
    def missing(cls, cause: Cause, reason: str, **details: Any) -> "Score":
        return cls(cause=cause, reason=reason, details=details)
