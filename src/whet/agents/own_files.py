"""The user's own files of an agent: a script or a folder beside whet.toml, copied once and shown read-only in boxes."""

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.errors import UserError
from whet.ids import digest
from whet.skill import refuse_leaving

MOST_BYTES = 256 << 20
"""All files are read for their digest, and copied for the run."""
LEFT_OUT = frozenset({".git", "__pycache__"})
PLACEHOLDER = "{files}"
"""In a command line: the folder of the files in the box."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class OwnFiles:
    """A copy of an agent's files, as they were when the run began. It is removed with this object."""

    folder: Path
    """They have the same paths below it as below the folder of whet.toml."""
    digest: str


def find_files(argv: Sequence[str], files: Iterable[Path], folder: Path) -> dict[str, Path]:
    """The files of an agent by their paths below a folder: those that its command line names, and those listed."""
    named = [path for word in argv if (path := file_named(word, folder))]
    below = [file for path in files for file in _files_at(path, folder)]
    found = {str(path.relative_to(folder)): path for path in (*named, *below)}
    for path in found.values():
        refuse_leaving(path, folder)
    if sum(path.stat().st_size for path in found.values()) > MOST_BYTES:
        raise UserError(f"{folder}: the files of an agent are larger than {MOST_BYTES >> 20} MB; expected a program")
    return found


def file_named(word: str, folder: Path) -> Path | None:
    """The file below a folder that a word of a command line names; None if there is none."""
    path = folder / word if word else folder
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return None
    below = Path(*path.relative_to(folder).parts) if path.is_relative_to(folder) else None
    return folder / below if is_file and below is not None and ".." not in below.parts else None


def copy_files(found: Mapping[str, Path]) -> OwnFiles:
    """Copy files to a new folder that every user can read, with their executable bits."""
    folder = Path(tempfile.mkdtemp(prefix="whet-agent-"))
    folder.chmod(0o755)
    for name, path in found.items():
        copy = folder / name
        for parent in reversed(copy.relative_to(folder).parents):
            (folder / parent).mkdir(mode=0o755, exist_ok=True)
        try:
            shutil.copyfile(path, copy)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from error
        copy.chmod(0o555 if _is_executable(path) else 0o444)
    copied = OwnFiles(folder, digest_files({name: folder / name for name in found}))
    weakref.finalize(copied, shutil.rmtree, folder, ignore_errors=True)
    return copied


def digest_files(found: Mapping[str, Path]) -> str:
    """The digest of files: their names, contents and executable bits."""
    parts = [
        part
        for name, path in sorted(found.items())
        for part in (name.encode(), b"x" if _is_executable(path) else b"-", path.read_bytes())
    ]
    return digest(*parts)


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)


def _files_at(path: Path, folder: Path) -> Iterator[Path]:
    place = folder / path
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"key 'files' has '{path}'; expected a path below {folder}")
    if not place.exists():
        raise UserError(f"key 'files' has '{path}'; there is no such file or folder in {folder}")
    if place.is_file():
        yield place
    else:
        inside = (file for file in place.rglob("*") if LEFT_OUT.isdisjoint(file.relative_to(folder).parts))
        yield from (file for file in inside if file.is_file())
