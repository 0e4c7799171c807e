"""The shelf: every version of a skill that a run knows, each in a folder named by the digest of its content."""

import difflib
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from whet.ids import new_name
from whet.skill import SKILL_FILE, Skill, read_skill


class SkillStore:
    """Keeps skills as they are: what is on the shelf never changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Skill] = {}

    def get(self, digest: str) -> Skill:
        """The skill of this digest, which must be on the shelf."""
        if digest not in self._known:
            (place,) = (self._folder / digest).iterdir()
            self._known[digest] = read_skill(place)
        return self._known[digest]

    def keep(self, skill: Skill) -> Skill:
        """Put a skill on the shelf, under the name that it has."""
        return self._put(skill, lambda place: copy_skill(skill, place))

    def edited(self, skill: Skill, text: str, memory: str | None = None) -> Skill:
        """A skill of the shelf with another text of its main document, and of its memory, put beside it."""

        def write(place: Path) -> None:
            copied = copy_skill(skill, place)
            main_document(copied).write_text(text, encoding="utf-8")
            if skill.memory and memory is not None:
                (copied / skill.memory.name).write_text(memory, encoding="utf-8")

        return self._put(skill, write)

    def documents(self, digest: str) -> dict[str, str]:
        """What edits may change of the skill of this digest."""
        return editable(self.get(digest))

    def with_documents(self, digest: str, documents: Mapping[str, str]) -> str:
        """The digest of a skill of the shelf with other texts of these documents, put beside it."""
        return self.edited(self.get(digest), *documents.values()).digest

    def _put(self, skill: Skill, write: Callable[[Path], object]) -> Skill:
        """Write a skill apart, and put it where its digest says, all at once."""
        self._folder.mkdir(parents=True, exist_ok=True)
        apart = self._folder / f".{new_name()}"
        apart.mkdir()
        try:
            write(apart)
            made = read_skill(apart / skill.folder.name)
            place = self._folder / made.digest
            if not place.exists():
                apart.replace(place)
        finally:
            shutil.rmtree(apart, ignore_errors=True)
        return self.get(made.digest)


def copy_skill(skill: Skill, folder: Path) -> Path:
    """Copy a skill into a folder, under its own name; where it is now."""
    place = folder / skill.folder.name
    folder.mkdir(parents=True, exist_ok=True)
    if skill.is_memory:
        shutil.copyfile(skill.folder, place)
    else:
        shutil.copytree(skill.folder, place, symlinks=True)  # none of them leaves the folder
        # What may be read may be copied, and a copy is there to be changed.
        for path in (place, *place.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IWUSR)
        if skill.memory:  # it may have lain elsewhere
            (place / skill.memory.name).write_text(skill.memory.text, encoding="utf-8")
    return place


def editable(skill: Skill) -> dict[str, str]:
    """The texts of a skill that edits may change: its main document, and the memory that goes with it."""
    first = {main_document(skill.folder).name: skill.text}
    return first | ({skill.memory.name: skill.memory.text} if skill.memory else {})


def main_document(place: Path) -> Path:
    """The document of a skill that edits change."""
    return place / SKILL_FILE if place.is_dir() else place


def differences(before: Skill, after: Skill) -> Iterator[str]:
    """What differs between two skills, file by file, in the lines of a unified diff."""
    old, new = _files(before), _files(after)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        first, second = (_lines(side.get(name, b"")) for side in (old, new))
        if first is None or second is None:
            yield f"{name}: differs, and is no text"
            continue
        names = f"{before.digest[:8]}/{name}", f"{after.digest[:8]}/{name}"
        yield from difflib.unified_diff(first, second, names[0], names[1], lineterm="")


def _files(skill: Skill) -> dict[str, bytes]:
    if skill.is_memory:
        return {skill.folder.name: skill.folder.read_bytes()}
    files = (file for file in skill.folder.rglob("*") if file.is_file())
    return {str(file.relative_to(skill.folder)): file.read_bytes() for file in files}


def _lines(data: bytes) -> list[str] | None:
    """None when it is no text."""
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        return None
