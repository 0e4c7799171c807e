"""The files that an adoption writes: which file a name leads to, whether it may be written, and how it is replaced."""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.errors import UserError
from whet.ids import digest

_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of renameat2."""


class ChangedFileError(UserError):
    """A file is not what the change was made against."""

    def __init__(self, path: Path, why: str = "has changed since the edit was made for it") -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


@dataclass(frozen=True, slots=True)
class Place:
    """A file by the name that the user knows, and where it really is."""

    named: Path
    real: Path

    @property
    def shown(self) -> str:
        """Both names, if the file is a link."""
        return str(self.named) if self.named == self.real else f"{self.named} -> {self.real}"


def find_place(path: Path, roots: Sequence[Path]) -> Place:
    """Follow the links of a name, once. UserError when they lead out of the folders that may be written."""
    named = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the link
    real = Path(os.path.realpath(named))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
        inside = " and ".join(map(str, roots))
        raise UserError(f"{named}: leads to {real}; expected a file within {inside}")
    return Place(named, real)


def read_place(place: Place) -> bytes | None:
    """The bytes of a file; None if there is none. UserError when it is not a plain file of one name."""
    if Path(os.path.realpath(place.named)) != place.real:
        raise ChangedFileError(place.named, f"does not lead to {place.real} any more")
    try:
        handle = os.open(place.real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{place.named}: cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        _refuse_unusual(place, os.fstat(handle))
        return file.read()


def _refuse_unusual(place: Place, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{place.named}: is not a file")
    if found.st_nlink > 1:
        raise UserError(
            f"{place.named}: has {found.st_nlink} hard links, and replacing it would separate them; "
            "expected a file of one name"
        )


def refuse_read_only(place: Place) -> None:
    """UserError when the user has said that the file is not to be written."""
    try:
        mode = place.real.stat().st_mode
    except FileNotFoundError:
        if not place.real.parent.is_dir():
            raise UserError(f"{place.named}: there is no folder {place.real.parent}") from None
        return
    # root may write it all the same, but the mode says what its owner wants
    if not mode & 0o222 or not os.access(place.real, os.W_OK):
        raise UserError(f"{place.named}: is read-only; make it writable first")


def part_of(place: Place, content: str | None) -> Path:
    """The file beside a file that new content with this digest is written to; None: that a removed file is moved to."""
    return place.real.with_name(f".{place.real.name}.{content[:12] if content else 'removed'}.part")


def write_part(place: Place, content: bytes, new_mode: int) -> None:
    """Write the new content of a file beside it, with its mode and owner, down to the disk. `new_mode` is for a file
    that does not exist yet."""
    part = part_of(place, digest(content))
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        with contextlib.suppress(FileNotFoundError):
            old, made = place.real.stat(), os.fstat(handle)
            new_mode = stat.S_IMODE(old.st_mode)
            if (old.st_uid, old.st_gid) != (made.st_uid, made.st_gid):
                os.fchown(handle, old.st_uid, old.st_gid)
        os.fchmod(handle, new_mode)
        file.write(content)
        file.flush()
        os.fsync(handle)


def swap(place: Place, before: bytes | None, after: bytes | None) -> None:
    """Put the part in the place of the file, or remove the file if there is no new content. ChangedFileError when the
    file is not what it was; then it stays as it is."""
    if read_place(place) != before:
        raise ChangedFileError(place.named)
    digests = [None if one is None else digest(one) for one in (before, after)]
    part = part_of(place, digests[1])
    if after is None:
        place.real.replace(part)
    elif before is None:
        os.link(part, place.real)  # unlike a replacement, it fails if the user just made the file
    else:
        exchange(part, place.real)
    sync_folder(place.real.parent)
    settle_part(place, digests[1], digests)
    if read_place(place) != after:
        raise ChangedFileError(place.named)


def exchange(one: Path, other: Path) -> None:
    """Let two files exchange their names in one step, where the system can; otherwise one replaces the other."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None and call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return
    code = ctypes.get_errno() if call is not None else errno.ENOSYS
    if code not in (errno.ENOSYS, errno.EINVAL):  # not because this system or file system cannot do it
        raise OSError(code, os.strerror(code), str(other))
    one.replace(other)


def settle_part(place: Place, name: str | None, known: Collection[str | None]) -> None:
    """Remove a part. It may hold what the user saved between the last look at the file and the exchange: that goes
    back. A part that is not known and was not exchanged is half written."""
    part = part_of(place, name)
    content = _digest_at(part)
    if content is None:
        return
    if content not in known and _digest_at(place.real) == name:
        part.replace(place.real)
    else:
        part.unlink()


def _digest_at(path: Path) -> str | None:
    try:
        return digest(path.read_bytes())
    except OSError:
        return None


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
