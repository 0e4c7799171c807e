"""A habit that a person asked for, as checks that the recorded steps prove."""

from pydantic import AwareDatetime, BaseModel, ConfigDict

from whet.tasks.checks import RulesCheck


class Rule(BaseModel):
    """A correction that holds beyond its session.

    Each check fails on the steps before the correction and passes on those after it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    """The same for the same repository and checks."""
    repository: str
    text: str
    """What the latest turn said that asked for it, as a rule."""
    checks: tuple[RulesCheck, ...]
    sessions: tuple[str, ...]
    """The sessions that asked for it. Their number is the rule's support."""
    said: tuple[str, ...]
    """Every sentence that asked for it, oldest first."""
    first: AwareDatetime | None
    last: AwareDatetime | None


class Dropped(BaseModel):
    """A sentence that did not become a rule, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    text: str
    session: str
    cause: str


class FoundRules(BaseModel):
    """What the corrections of some sessions came to."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rules: tuple[Rule, ...] = ()
    dropped: tuple[Dropped, ...] = ()
