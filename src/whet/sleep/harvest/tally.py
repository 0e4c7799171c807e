"""Counts what a harvest meets. Several processes count by themselves; their counts are added up."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from whet.sleep.harvest.filters import Skip
from whet.sleep.harvest.report import Group
from whet.sleep.readers.reader import Reading
from whet.sleep.session import Origin, Session

Version = tuple[str, str | None]
"""An agent and the version of its program."""


@dataclass(slots=True)
class Tally:
    """What was read so far."""

    read: Counter[Version] = field(default_factory=Counter)
    skipped: Counter[tuple[Version, Skip]] = field(default_factory=Counter)
    unknown: Counter[tuple[Version, str]] = field(default_factory=Counter)
    origins: Counter[Origin] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    secrets: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add what another process counted."""
        for one in fields(self):
            if one.name != "failures":
                getattr(self, one.name).update(getattr(other, one.name))
        self.failures += [problem for problem in other.failures if problem not in self.failures]

    def keep(self, session: Session, secrets: int) -> None:
        """Count a session that was stored."""
        self.read[session.cli, session.version] += 1
        self.origins[session.origin] += 1
        self.secrets[session.cli] += secrets

    def skip(self, cli: str, version: str | None, reason: Skip) -> None:
        """Count a session or file that was not stored."""
        self.skipped[(cli, version), reason] += 1

    def fail(self, cli: str, problem: str) -> None:
        """Count a file that could not be read."""
        self.skip(cli, None, Skip.UNREADABLE)
        self.failures.append(problem)

    def leave_out(self, problem: str) -> None:
        """Keep the reason why a repository is left out, once."""
        if problem not in self.failures:
            self.failures.append(problem)

    def note_unknown(self, cli: str, reading: Reading) -> None:
        """Count what a reader did not understand."""
        version = reading.sessions[0].version if reading.sessions else None
        self.unknown.update({((cli, version), kind): count for kind, count in reading.unknown.items()})
        self.broken.update({cli: reading.broken} if reading.broken else {})

    def groups(self) -> Iterator[Group]:
        """The counts by agent and version."""
        versions = {*self.read, *(version for version, _ in (*self.skipped, *self.unknown))}
        for cli, version in sorted(versions, key=lambda one: (one[0], one[1] or "")):
            yield Group(
                cli=cli,
                version=version,
                read=self.read[cli, version],
                skipped={reason: count for (one, reason), count in self.skipped.items() if one == (cli, version)},
                unknown={kind: count for (one, kind), count in self.unknown.items() if one == (cli, version)},
            )
