"""The state of a repository at the start of a session, found without touching the repository."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Lost:
    """Why something cannot be used."""

    cause: str


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """The files of a repository when a session started."""

    repository: Path
    tree: str
    """The git tree or commit with its files."""
    store: Path | None = None
    """The git folder that holds the tree, if it is not the repository's own (OpenCode's snapshots)."""
    commit: str | None = None
    """The commit that was checked out, where it is known."""
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    """Content of files that differed from the tree."""
    checked: int = 0
    """Files that the session read or replaced before its first edit."""
    agreed: int = 0
    """How many of these are as the session saw them."""
