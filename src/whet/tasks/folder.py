"""The contents of a task folder: its files and links, which must stay inside it, ignored entries, and the digest."""

import os
import posixpath
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from whet.errors import UserError
from whet.ids import digest

IGNORE_FILE = ".harborignore"
_NOT_PART_OF_THE_TASK = frozenset({"README.md", ".gitignore", ".git"})


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One file or symbolic link of a task folder."""

    path: str
    """Relative to the folder."""
    executable: bool
    target: str | None
    """Target of a link, relative to the folder; None for a file."""
    absolute: bool = False
    """Whether it is a link with an absolute path."""

    @property
    def part(self) -> str:
        """The top folder that contains it, or its own name."""
        return self.path.split("/", 1)[0]

    @property
    def leaves_its_part(self) -> bool:
        """Whether it is a link that breaks when its top folder is placed elsewhere."""
        return self.target is not None and (self.absolute or self.target.split("/", 1)[0] != self.part)


def list_entries(folder: Path) -> list[FolderEntry]:
    """Every file and link of the task, in the same order on all machines. Links are not followed."""
    root = folder.resolve()
    return sorted(_walk(root, root), key=lambda entry: os.fsencode(entry.path))


def find_ignored_entries(folder: Path, entries: Sequence[FolderEntry], parts: Collection[str]) -> set[FolderEntry]:
    """The entries of these top folders that .harborignore files exclude, with gitignore rules, and those files."""
    specs = {
        posixpath.dirname(entry.path): _ignore_spec(folder / entry.path)
        for entry in entries
        if posixpath.basename(entry.path) == IGNORE_FILE
    }
    inside = [entry for entry in entries if entry.part in parts]
    return {
        entry for entry in inside if posixpath.basename(entry.path) == IGNORE_FILE or _is_ignored(entry.path, specs)
    }


def _ignore_spec(file: Path) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(file.read_text(encoding="utf-8").splitlines())
    except ValueError as error:
        raise UserError(f"{file}: {error}; expected lines as in a .gitignore") from error


def _is_ignored(path: str, specs: Mapping[str, GitIgnoreSpec]) -> bool:
    """Whether the innermost rule that matches the path excludes it."""
    verdict = False
    for place, spec in sorted(specs.items()):  # a folder before its contents
        if not place or path.startswith(f"{place}/"):
            included = spec.check_file(posixpath.relpath(path, place or ".")).include
            verdict = verdict if included is None else included
    return verdict


def folder_digest(folder: Path, entries: Sequence[FolderEntry]) -> str:
    """Digest of names, contents and executable bits."""
    return digest(*(_entry_digest(folder, entry).encode() for entry in entries))


def _walk(root: Path, directory: Path) -> Iterator[FolderEntry]:
    with os.scandir(directory) as items:
        for item in items:
            if directory == root and item.name in _NOT_PART_OF_THE_TASK:
                continue
            path = Path(item.path)
            if item.is_symlink():
                yield _link(root, path)
            elif item.is_dir():
                yield from _walk(root, path)
            elif item.is_file():
                executable = bool(item.stat().st_mode & stat.S_IXUSR)
                yield FolderEntry(path.relative_to(root).as_posix(), executable, None)
            else:
                raise UserError(f"{path}: is neither a file, a folder nor a link; expected only these in a task")


def _link(root: Path, link: Path) -> FolderEntry:
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(root):
        raise UserError(f"{link}: the link leads to {target}; expected links that stay inside the task folder")
    if target.is_symlink() or link.is_relative_to(target):
        raise UserError(f"{link}: the link leads back to itself; expected links without a cycle")
    return FolderEntry(
        path=link.relative_to(root).as_posix(),
        executable=False,
        target=target.relative_to(root).as_posix(),
        absolute=link.readlink().is_absolute(),
    )


def _entry_digest(folder: Path, entry: FolderEntry) -> str:
    path = os.fsencode(entry.path)
    if entry.target is not None:
        return digest(b"link", path, os.fsencode(entry.target))
    return digest(b"program" if entry.executable else b"file", path, (folder / entry.path).read_bytes())
