"""Who calls: named tokens with scopes and limits."""

from dataclasses import dataclass, field
from enum import StrEnum

from whet.gateway import Limits


class Scope(StrEnum):
    """What a caller may do."""

    RUN = "run"
    """Start and cancel rollouts of its own."""
    READ = "read"
    """Read rollouts of its own, tasks and models."""
    ADMIN = "admin"
    """See and cancel all rollouts, change models, pause, start whole runs."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what it may do and use."""

    name: str
    scopes: frozenset[Scope] = frozenset(Scope)
    concurrency: int | None = None
    """Rollouts that run at the same time."""
    queue: int | None = None
    """Rollouts that wait."""
    limits: Limits = field(default_factory=Limits)
    """What all its rollouts together may use, since the folder of the server was made."""

    def may(self, scope: Scope) -> bool:
        """Whether it has this scope. `admin` includes the others."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


LOCAL = Caller("local")
"""Whoever calls a server without tokens, which listens on the loopback interface only."""
