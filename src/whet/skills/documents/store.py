"""The skill store: every version of a skill in a run, each in a folder named by the digest of its content."""

import difflib
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from whet.ids import new_name
from whet.skill import SKILL_FILE, Skill, read_skill


class SkillTexts(Protocol):
    """Reads the editable documents of a skill, and makes a skill with other documents."""

    def documents(self, skill: str) -> dict[str, str]:
        """The editable documents of the skill with this digest, by name. The main document is the first."""
        ...

    def with_documents(self, skill: str, documents: Mapping[str, str]) -> str:
        """The digest of this skill with these documents in place of its own."""
        ...


class PlainTexts:
    """Skills that consist of one text each. The text is its own digest."""

    def documents(self, skill: str) -> dict[str, str]:
        return {"": skill}

    def with_documents(self, skill: str, documents: Mapping[str, str]) -> str:  # noqa: ARG002 - nothing else is kept
        return documents[""]


class SkillStore:
    """Stores versions of a skill. A stored version never changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Skill] = {}

    def get(self, digest: str) -> Skill:
        """The stored skill with this digest."""
        if digest not in self._known:
            (place,) = (self._folder / digest).iterdir()
            self._known[digest] = read_skill(place)
        return self._known[digest]

    def keep(self, skill: Skill) -> Skill:
        """Store a skill under its own name."""
        return self._put(skill, lambda place: copy_skill(skill, place))

    def store_edited(self, skill: Skill, text: str, memory: str | None = None) -> Skill:
        """Store a copy of a skill with this text as its main document, and this memory file if it has one."""

        def write(place: Path) -> None:
            copied = copy_skill(skill, place)
            main_document(copied).write_text(text, encoding="utf-8")
            if skill.memory and memory is not None:
                (copied / skill.memory.name).write_text(memory, encoding="utf-8")

        return self._put(skill, write)

    def documents(self, digest: str) -> dict[str, str]:
        return editable(self.get(digest))

    def with_documents(self, digest: str, documents: Mapping[str, str]) -> str:
        """Store a copy of a skill with these texts; return its digest."""
        return self.store_edited(self.get(digest), *documents.values()).digest

    def _put(self, skill: Skill, write: Callable[[Path], object]) -> Skill:
        """Write a skill to a temporary folder, then move it to the folder of its digest in one step."""
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
    """Copy a skill into a folder, under its own name; return the path of the copy."""
    place = folder / skill.folder.name
    folder.mkdir(parents=True, exist_ok=True)
    if skill.is_memory:
        shutil.copyfile(skill.folder, place)
    else:
        shutil.copytree(skill.folder, place, symlinks=True)  # no link leaves the folder
        # The original may be read-only; edits change the copy.
        for path in (place, *place.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IWUSR)
        if skill.memory:  # it may come from another folder
            (place / skill.memory.name).write_text(skill.memory.text, encoding="utf-8")
    return place


def editable(skill: Skill) -> dict[str, str]:
    """The texts of a skill that edits may change, by name: its main document, and its memory file."""
    first = {main_document(skill.folder).name: skill.text}
    return first | ({skill.memory.name: skill.memory.text} if skill.memory else {})


def main_document(place: Path) -> Path:
    """The main document of a skill that lies at this path."""
    return place / SKILL_FILE if place.is_dir() else place


def differences(before: Skill, after: Skill) -> Iterator[str]:
    """The lines of a unified diff between two skills, file by file."""
    old, new = _files(before), _files(after)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        first, second = (_lines(side.get(name, b"")) for side in (old, new))
        if first is None or second is None:
            yield f"{name}: differs (not a text file)"
            continue
        names = f"{before.digest[:8]}/{name}", f"{after.digest[:8]}/{name}"
        yield from difflib.unified_diff(first, second, names[0], names[1], lineterm="")


def _files(skill: Skill) -> dict[str, bytes]:
    if skill.is_memory:
        return {skill.folder.name: skill.folder.read_bytes()}
    files = (file for file in skill.folder.rglob("*") if file.is_file())
    return {str(file.relative_to(skill.folder)): file.read_bytes() for file in files}


def _lines(data: bytes) -> list[str] | None:
    """None when the file is not text."""
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        return None
