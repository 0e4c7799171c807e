"""What a harvest found, per agent and version, and what the user should know about it."""

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.claude_code import ClaudeCode
from whet.sleep.harvest.filters import Skip
from whet.sleep.readers.reader import Reader
from whet.sleep.session import Origin

CLEANUP_DAYS = 30
"""After so many days Claude Code deletes a transcript, unless its settings name another number."""
SOON = timedelta(days=7)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Group(_Record):
    """What was found of one version of an agent."""

    cli: str
    version: str | None
    """None where transcripts do not say it, and for files that were not opened."""
    read: int
    """Sessions that were read and kept."""
    skipped: Mapping[Skip, int] = Field(default_factory=dict)
    unknown: Mapping[str, int] = Field(default_factory=dict)
    """Record types that the reader does not know."""


class HarvestReport(_Record):
    """What a harvest read, skipped and did not understand."""

    groups: tuple[Group, ...] = ()
    origins: Mapping[Origin, int] = Field(default_factory=dict)
    """Who started the sessions that were kept."""
    secrets: int = 0
    """Distinct secrets that were masked, in each session by itself."""
    broken: Mapping[str, int] = Field(default_factory=dict)
    """Lines that could not be read, by agent."""
    failures: tuple[str, ...] = ()
    """Files that could not be read, and repositories whose whet.toml is wrong, and why."""
    newer: tuple[tuple[str, str, str], ...] = ()
    """Agents, their versions, and the earlier versions that the readers were tested with."""
    expiring: Mapping[str, int] = Field(default_factory=dict)
    """Transcripts that their program deletes within a week, by agent."""
    dropped: Mapping[str, int] = Field(default_factory=dict)
    """Sessions that were deleted because their place is excluded by now, by repository or folder."""

    @property
    def read(self) -> int:
        return sum(group.read for group in self.groups)

    def warnings(self) -> Iterator[str]:
        """What makes the harvest less sure than it could be."""
        for cli, version, tested in self.newer:
            yield f"{cli} {version} is newer than {tested}, the version that whet was tested with"
        if self.read and importlib.util.find_spec("detect_secrets") is None:
            yield "secrets are masked by whet's own rules only; for those of vendors: pip install 'whet[sleep]'"


def find_newer(groups: Sequence[Group], readers: Sequence[Reader]) -> Iterator[tuple[str, str, str]]:
    """The versions that are newer than the ones that their readers were tested with."""
    tested = {reader.cli: reader.tested for reader in readers}
    for group in groups:
        if group.version and _numbers(group.version) > _numbers(tested[group.cli]):
            yield group.cli, group.version, tested[group.cli]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number[:9]) for number in re.findall(r"\d+", version.partition("-")[0]))


def count_expiring(written: Sequence[datetime], now: datetime, home: Path, env: Mapping[str, str]) -> int:
    """How many of Claude Code's transcripts, by the times of their last change, it deletes within a week."""
    kept = timedelta(days=_cleanup_days(ClaudeCode.traits.locate(".claude/settings.json", home, env)))
    return sum(now - time > kept - SOON for time in written)


def _cleanup_days(settings: Path) -> int:
    try:
        days = json.loads(settings.read_bytes()).get("cleanupPeriodDays", CLEANUP_DAYS)
    except (OSError, ValueError, AttributeError):
        return CLEANUP_DAYS
    return days if isinstance(days, int) and 0 <= days < 1_000_000 else CLEANUP_DAYS
