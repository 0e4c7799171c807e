"""What an adoption leaves behind: a journal that only grows, and a copy of every content by its digest."""

import os
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from whet.errors import UserError
from whet.ids import digest
from whet.skills.adoption.files import Place, sync_folder

JOURNAL = "adoptions.jsonl"
BACKUPS = "backups"


class Event(StrEnum):
    BEGUN = "about to"
    REPLACED = "replaced"
    DONE = "done"
    ABANDONED = "not done"


class FileChange(BaseModel):
    """One file of an adoption."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    named: Path
    real: Path
    before: str | None
    after: str | None
    """Digests of its content; None where there is no file."""
    mode: int = 0o644
    """Of a file that is new."""

    @property
    def place(self) -> Place:
        return Place(self.named, self.real)


class Entry(BaseModel):
    """One line of the journal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    event: Event
    name: str
    """What is adopted: a proposal, or a version of a skill."""
    undo: bool = False
    """Whether it is taken back."""
    files: tuple[FileChange, ...] = ()
    """All files, in the first line of an adoption; one in the lines about replacements."""
    certificate: str | None = None


class Journal:
    """The lines of a file, which only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / JOURNAL

    def read(self) -> list[Entry]:
        """All whole lines. A line without its end is one that a killed process did not finish."""
        content = self.file.read_bytes() if self.file.is_file() else b""
        return [self._parse(number, line) for number, line in enumerate(content.split(b"\n")[:-1], 1)]

    def _parse(self, number: int, line: bytes) -> Entry:
        try:
            return Entry.model_validate_json(line)
        except ValidationError as error:
            raise UserError(
                f"{self.file}:{number}: is damaged, so it is not known what was adopted; nothing was changed. "
                f"Mend the line, or move the file away: copies of replaced files are in {self.file.parent / BACKUPS}"
            ) from error

    def add(self, entry: Entry) -> None:
        """Append a line and bring it to the disk."""
        is_new = not self.file.exists()
        handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            whole = self._find_end(handle)
            try:
                _write_all(handle, entry.model_dump_json(exclude_defaults=True).encode() + b"\n")
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, whole)  # a full disk must leave no half line
                raise
        finally:
            os.close(handle)
        if is_new:
            sync_folder(self.file.parent)

    def _find_end(self, handle: int) -> int:
        """Where the last whole line ends. Half a line behind it is cut off."""
        content = self.file.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.ftruncate(handle, end)
        os.lseek(handle, end, os.SEEK_SET)
        return end


class Backups:
    """Contents by their digests, which only their owner can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / BACKUPS

    def keep(self, content: bytes) -> str:
        """Store a content; return its digest."""
        name = digest(content)
        if not (self.folder / name).is_file():
            try:
                self._write(name, content)
            except OSError as error:
                raise UserError(f"{self.folder}: cannot be written: {error.strerror}; nothing was changed") from error
        return name

    def _write(self, name: str, content: bytes) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.folder / f"{name}.part"
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        part.replace(self.folder / name)
        sync_folder(self.folder)

    def get(self, name: str) -> bytes:
        """A stored content. UserError when it is gone or damaged."""
        place = self.folder / name
        try:
            content = place.read_bytes()
        except OSError as error:
            raise UserError(f"{place}: cannot be read: {error.strerror}") from error
        if digest(content) != name:
            raise UserError(f"{place}: is damaged; its content does not have the digest {name}")
        return content


def _write_all(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]
