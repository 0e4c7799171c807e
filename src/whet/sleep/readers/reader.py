"""What every reader of transcripts does, and what it gives."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from whet.sleep.session import Session


@dataclass(frozen=True, slots=True)
class Source:
    """A file that may hold sessions."""

    path: Path
    key: str = ""
    """The session's row, where one file holds many."""
    mark: str = ""
    """Differs whenever that session does, so that the others need not be read again."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from one source."""

    sessions: tuple[Session, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Record types that the reader does not know, with their counts."""
    broken: int = 0
    """Lines that could not be read. The last line is not counted: the program may still be writing it."""
    offset: int = 0
    """Bytes up to the last newline that was read."""


class Reader(Protocol):
    """Reads the transcripts of one program. It changes nothing below the home, and it does not redact."""

    @property
    def cli(self) -> str:
        """The agent's name in whet."""

    @property
    def tested(self) -> str:
        """The version of the program that it was tested with."""

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        """The files of a user that may hold sessions. Variables of the environment may move them."""

    def read(self, source: Source) -> Reading:
        """Read the sessions of a source. OSError if the file cannot be read."""
