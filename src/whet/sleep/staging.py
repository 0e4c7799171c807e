"""Proposals: what a night wants to change in the user's files, kept until a person adopts or rejects it."""

from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Evidence(StrEnum):
    """What a proposal rests on."""

    COMMAND = "command"
    """A: a verification command that failed before the session's work and passes after it."""
    COMMIT = "commit"
    """B: the tests of the commit that a session became."""
    CORRECTION = "correction"
    """C: a correction by the user, whose check fails before it and passes after it."""
    RUBRIC = "rubric"
    """D: the opinion of a model. It never certifies alone."""
    EXPIRY = "expiry"
    """No session needed the rule for a long time."""
    UNDO = "undo"
    """The reverse of an adopted proposal, merged with what the user wrote since."""


class State(StrEnum):
    """What became of a proposal."""

    STAGED = "staged"
    ADOPTED = "adopted"
    REJECTED = "rejected"
    ROLLED_BACK = "rolled back"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sighting(_Record):
    """One session that supports a proposal."""

    cli: str
    session: str
    at: AwareDatetime | None = None


class Target(_Record):
    """One file that a proposal changes."""

    path: Path
    """The file as agents find it, possibly a link."""
    real: Path
    """Where the link leads; the same as `path` if it is none."""
    before: str | None
    """Digest of the exact bytes that the proposal was made against; None if there was no file."""
    after: str | None
    """Digest of the bytes that adopting writes; None if it removes the file."""


class Proposal(_Record):
    """A change of one or more files, adopted together or not at all."""

    id: str
    night: str
    """Id of the night that made it."""
    repository: Path | None
    """None for files in the user's home."""
    targets: tuple[Target, ...]
    edit: str
    """What the edit says, in one line."""
    rule: str
    """Id of the rule that it is about; empty if it is about none."""
    why: str = ""
    """The reason in one line, where `sessions` do not tell it."""
    sessions: tuple[Sighting, ...] = ()
    """The sessions that support it."""
    proof: str = ""
    """What the exam found, in one line."""
    certificate: Path | None = None
    certified: bool = False
    evidence: Evidence
    created: AwareDatetime
    merged: bool = False
    """Whether the edit was merged into a file that changed later. The proof is about the text before."""
    state: State = State.STAGED
    decided: AwareDatetime | None = None
