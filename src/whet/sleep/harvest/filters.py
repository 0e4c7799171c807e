"""Which sessions are not kept, and why."""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Self

from whet.sleep.options import SleepOptions
from whet.sleep.places import matches
from whet.sleep.session import Origin, Session

IGNORE_FILE = ".whet-sleep-ignore"
"""A folder with this file, and all below it, is not learned from."""


class Skip(StrEnum):
    """Why a session was not kept."""

    UNCHANGED = "unchanged"
    LIVE = "still in use"
    OLD = "too old"
    HEADLESS = "headless"
    SUBAGENT = "sub-agent"
    WHET = "whet's own"
    EXCLUDED = "excluded"
    IGNORED = "ignored"
    """Its folder has a .whet-sleep-ignore, or the whet.toml of its repository excludes it."""
    SETTINGS = "wrong whet.toml"
    """The whet.toml of its repository cannot be read, so nobody knows what to mask."""
    FORGOTTEN = "forgotten"
    """The user had it deleted."""
    EMPTY = "empty"
    DUPLICATE = "duplicate"
    """Another file has a later state of it."""
    UNREADABLE = "unreadable"


BY_OPTIONS = frozenset({Skip.OLD, Skip.HEADLESS, Skip.SUBAGENT, Skip.EXCLUDED})
"""Reasons that other options may take away."""
BY_TIME = frozenset({Skip.LIVE, Skip.IGNORED, Skip.SETTINGS})
"""Reasons that may be gone at the next harvest."""
_BY_ORIGIN = {Origin.HEADLESS: Skip.HEADLESS, Origin.SUBAGENT: Skip.SUBAGENT}


@dataclass(frozen=True, slots=True)
class Filters:
    """Which sessions the user wants."""

    since: datetime
    now: datetime
    quiet: timedelta
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    all_origins: bool

    @classmethod
    def of(cls, options: SleepOptions, now: datetime) -> Self:
        quiet = timedelta(minutes=options.quiet_minutes)
        return cls(options.since(now), now, quiet, options.include, options.exclude, options.all_origins)

    def reason_to_skip(self, session: Session, repository: Path | None, written: datetime) -> Skip | None:
        """Why a session is not kept; None if it is. `written` is the time of the last change."""
        if session.origin is Origin.WHET:
            return Skip.WHET
        if session.origin in _BY_ORIGIN and not self.all_origins:
            return _BY_ORIGIN[session.origin]
        if not any(turn.text.strip() or turn.steps for turn in session.turns):
            return Skip.EMPTY
        if reason := self._reason_of_place(session.cwd, repository):
            return reason
        if (session.ended or written) < self.since:
            return Skip.OLD
        return Skip.LIVE if not session.complete and self.is_recent(written) else None

    def is_recent(self, written: datetime) -> bool:
        # A clock that was set back gives times in the future.
        return abs(self.now - written) < self.quiet

    def skips(self, repository: Path) -> bool:
        """Whether the user does not want this repository now."""
        return self._reason_of_place(None, repository) is not None

    def is_denied(self, cwd: str | None, repository: Path | None) -> bool:
        """Whether the user forbids to learn from what took place here."""
        return self._reason_of_place(cwd, repository, include=()) is not None

    def _reason_of_place(
        self, cwd: str | None, repository: Path | None, include: tuple[str, ...] | None = None
    ) -> Skip | None:
        places = [place for place in (repository, cwd and Path(cwd)) if place]
        wanted = self.include if include is None else include
        if wanted and not any(matches(place, pattern) for place in places for pattern in wanted):
            return Skip.EXCLUDED
        if any(matches(place, pattern) for place in places for pattern in self.exclude):
            return Skip.EXCLUDED
        ignored = any(os.path.lexists(folder / IGNORE_FILE) for place in places for folder in (place, *place.parents))
        return Skip.IGNORED if ignored else None
