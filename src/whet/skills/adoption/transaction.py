"""Replace several files of the user together or not at all, and take it back.

A killed process leaves each file old or new. The next adoption finishes what it left, by what the files hold: if all
are new it is done, otherwise those that are new are made old again. What the user wrote in between stays.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from whet.errors import UserError
from whet.ids import digest
from whet.paths import lock_folder
from whet.skills.adoption.files import (
    ChangedFileError,
    Place,
    read_place,
    refuse_read_only,
    settle_part,
    swap,
    write_part,
)
from whet.skills.adoption.journal import Backups, Entry, Event, FileChange, Journal


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one file. None means that there is no file."""

    place: Place
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    """Of a file that is new."""


class Adoptions:
    """The adoptions that are recorded in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = Journal(folder)
        self.backups = Backups(folder)

    def adopt(self, name: str, changes: Sequence[Change], certificate: str | None = None) -> None:
        """Make the changes under a name, all or none."""
        with self._alone():
            if name in self.adopted():
                raise UserError(f"{name}: is adopted already")
            self._make(name, changes, undo=False, certificate=certificate)

    def undo(self, name: str) -> None:
        """Restore the files as they were before an adoption. ChangedFileError when one is not as it was adopted."""
        with self._alone():
            if name not in (adopted := self.adopted()):
                raise UserError(f"{name}: is not adopted, so there is nothing to take back")
            self._make(name, [self._reverse(one) for one in adopted[name].files], undo=True)

    def adopted(self) -> dict[str, Entry]:
        """The first line of every adoption that was not taken back, by its name, the latest last."""
        found: dict[str, Entry] = {}
        for entry in self._finished():
            found.pop(entry.name, None)
            if not entry.undo:
                found[entry.name] = entry
        return found

    def drop_backups(self, needed: Collection[str | None]) -> None:
        """Delete copies that are not needed and that belong to no adoption."""
        files = [file for entry in self._journal.read() for file in entry.files]
        kept = {*needed, *(file.before for file in files), *(file.after for file in files)}
        for copy in self.backups.folder.glob("*"):
            if copy.name not in kept:
                copy.unlink()

    def read_change(self, file: FileChange) -> Change:
        """What was changed in a file of an adoption."""
        before, after = (self.backups.get(one) if one else None for one in (file.before, file.after))
        return Change(file.place, before, after, file.mode)

    def undone(self) -> set[str]:
        """The names of what was adopted and taken back."""
        return {entry.name for entry in self._finished()} - set(self.adopted())

    def recover(self) -> tuple[str, ...]:
        """Finish what a killed process left; say what was found, a sentence each."""
        if not self._folder.is_dir():
            return ()
        with self._locked():
            return self._recover()

    def stop_if_interrupted(self) -> None:
        """Finish what a killed process left. UserError says what was found: the user must know before going on."""
        if self._folder.is_dir():
            with self._alone():
                pass

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._locked():
            if found := self._recover():
                raise UserError(f"{'; '.join(found)}. Now try again")
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with _explain_write_error(str(self._folder)):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self._folder))
            yield

    def _finished(self) -> Iterator[Entry]:
        """The first line of every adoption and undoing that was completed."""
        begun: Entry | None = None
        for entry in self._journal.read():
            if entry.event is Event.BEGUN:
                begun = entry
            elif entry.event is Event.DONE and begun is not None:
                yield begun

    def _make(self, name: str, changes: Sequence[Change], *, undo: bool, certificate: str | None = None) -> None:
        for change in changes:
            refuse_read_only(change.place)
            _refuse_changed(change)
        with _explain_write_error(", ".join(change.place.shown for change in changes)):
            files = tuple(map(self._keep, changes))
            begun = Entry(
                at=datetime.now(UTC), event=Event.BEGUN, name=name, undo=undo, files=files, certificate=certificate
            )
            self._journal.add(begun)
            try:
                self._replace(changes, begun)
            except BaseException:
                with _explain_open_end(begun):
                    self._put_back(begun)
                raise

    def _replace(self, changes: Sequence[Change], begun: Entry) -> None:
        for change in changes:
            if change.after is not None:
                write_part(change.place, change.after, change.mode)
        for change, file in zip(changes, begun.files, strict=True):
            swap(change.place, change.before, change.after)
            self._say(Event.REPLACED, begun, file)
        self._say(Event.DONE, begun)

    def _keep(self, change: Change) -> FileChange:
        """Copy both contents, so that the file can be made old or new again."""
        before, after = (None if one is None else self.backups.keep(one) for one in (change.before, change.after))
        place = change.place
        return FileChange(named=place.named, real=place.real, before=before, after=after, mode=change.mode)

    def _say(self, event: Event, begun: Entry, *files: FileChange) -> None:
        self._journal.add(Entry(at=datetime.now(UTC), event=event, name=begun.name, undo=begun.undo, files=files))

    def _recover(self) -> tuple[str, ...]:
        begun: Entry | None = None
        replaced: set[Path] = set()
        for entry in self._journal.read():
            if entry.event is Event.BEGUN:
                begun, replaced = entry, set()
            elif entry.event is Event.REPLACED:
                replaced |= {one.real for one in entry.files}
            else:
                begun = None
        if begun is None:
            return ()
        with _explain_open_end(begun):
            return self._finish(begun, replaced)

    def _finish(self, begun: Entry, replaced: set[Path]) -> tuple[str, ...]:
        """Decide by what the files hold whether an interrupted adoption was done."""
        _remove_parts(begun)
        now = {file.real: _look(file) for file in begun.files}
        if all(state is _Now.NEW or (state is _Now.OTHER and real in replaced) for real, state in now.items()):
            self._say(Event.DONE, begun)
            found = f"{begun.name}: an earlier attempt was interrupted when all files were written; it is done"
        else:
            self._put_back(begun)
            found = f"{begun.name}: an earlier attempt was interrupted; its files are as they were before"
        others = (file for file in begun.files if now[file.real] is _Now.OTHER)
        return found, *map(self._explain_other, others)

    def _explain_other(self, file: FileChange) -> str:
        copies = " and ".join(str(self.backups.folder / one) for one in (file.before, file.after) if one)
        return f"{file.named}: you changed it meanwhile, so it was left alone; whet's copies are {copies}"

    def _put_back(self, begun: Entry) -> None:
        """Make the files old again that are new."""
        _remove_parts(begun)
        for file in begun.files:
            if _look(file) is _Now.NEW:
                change = self._reverse(file)
                if change.after is not None:
                    write_part(change.place, change.after, change.mode)
                swap(change.place, change.before, change.after)
        self._say(Event.ABANDONED, begun)

    def _reverse(self, file: FileChange) -> Change:
        change = self.read_change(file)
        return replace(change, before=change.after, after=change.before)


class _Now(Enum):
    """What a file of an adoption holds."""

    OLD = "old"
    NEW = "new"
    OTHER = "other"


def _look(file: FileChange) -> _Now:
    try:
        content = read_place(file.place)
    except UserError:  # such as a folder in its place
        return _Now.OTHER
    now = None if content is None else digest(content)
    return _Now.OLD if now == file.before else _Now.NEW if now == file.after else _Now.OTHER


def _remove_parts(begun: Entry) -> None:
    for file in begun.files:
        for name in (file.before, file.after):
            settle_part(file.place, name, (file.before, file.after))


def _refuse_changed(change: Change) -> None:
    now = read_place(change.place)
    if now == change.before:
        return
    if now is None:
        raise ChangedFileError(change.place.named, "is not there any more")
    if change.before is None:
        raise ChangedFileError(change.place.named, "was created since the edit was made")
    raise ChangedFileError(change.place.named)


@contextlib.contextmanager
def _explain_write_error(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: cannot be written: {error.strerror}; nothing was changed") from error


@contextlib.contextmanager
def _explain_open_end(begun: Entry) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        names = ", ".join(str(file.named) for file in begun.files)
        raise UserError(
            f"{names}: could be neither written nor put back: {error.strerror}; each holds its old or its new text, "
            "and the next adoption makes them agree"
        ) from error
