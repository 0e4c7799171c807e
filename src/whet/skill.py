"""Skill: a folder with SKILL.md and whatever it refers to, as the agents carry it."""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from whet.errors import UserError
from whet.ids import digest

SKILL_FILE = "SKILL.md"
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE | re.DOTALL)
MEMORY_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Names of documents that agents always read. One of them in a skill's folder goes with the skill."""
MOST_BYTES = 256 << 20
"""All files of a skill are read for its digest. The largest that are known hold fonts and templates, of some MB."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A document that goes with a skill and that the agent always reads."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill as it is given to agents. `digest` covers every file of the folder."""

    name: str
    text: str
    digest: str
    folder: Path
    """The folder; of a memory document, the file."""
    is_memory: bool = False
    """Whether it is a document that an agent always reads, such as AGENTS.md, and not a skill that it may load."""
    memory: Memory | None = None
    """What the agent always reads besides."""

    @property
    def whole(self) -> str:
        """All that an agent reads which has one place for it."""
        return f"{self.text.rstrip()}\n\n{self.memory.text}" if self.memory else self.text

    @property
    def body(self) -> str:
        """The text without its front matter, which only says when to load the skill; with the memory document."""
        return self.whole[len(front_matter(self.text)) :]


def front_matter(text: str) -> str:
    """The front matter at the start of a document, with the lines that enclose it; empty when there is none.

    A pattern and not a YAML parser, because edits need the exact place where it ends, and because agents accept front
    matter that is not valid YAML, such as a description with a colon in it.

    >>> front_matter("---\\r\\nname: tidy\\r\\n---\\r\\nTidy up.")
    '---\\r\\nname: tidy\\r\\n---\\r\\n'
    """
    found = _FRONT_MATTER.match(text)
    return found[0] if found else ""


def read_skill(path: Path, also: Path | None = None) -> Skill:
    """Read a skill folder, or a Markdown file that agents carry as their memory. A memory document that lies elsewhere
    may go with a folder, as if it lay in it.

    >>> read_skill(Path("examples/skills/careful-shell")).name
    'careful-shell'
    """
    if path.suffix.lower() == ".md" and path.name != SKILL_FILE:
        if also is not None:
            raise UserError(f"{path}: {also} cannot go with it; expected a skill folder")
        refuse_leaving(path, path.parent)
        text = _text(path)
        return Skill(path.stem, text, digest(text.encode()), path.resolve(), is_memory=True)
    path = path.parent if path.name == SKILL_FILE else path
    document = path / SKILL_FILE
    if not document.is_file():
        raise UserError(f"{path}: not a skill folder; expected a file {SKILL_FILE} in it, or a Markdown file")
    files = _files(path)
    if also is not None:
        _refuse_no_memory(also, files)
        refuse_leaving(also, also.parent)
        files[also.name] = also
    parts = [part for name in sorted(files, key=Path) for part in (name.encode(), _bytes(files[name]))]
    memory = next((Memory(name, _text(files[name])) for name in MEMORY_FILES if name in files), None)
    return Skill(path.resolve().name, _text(document), digest(*parts), path.resolve(), memory=memory)


def _files(folder: Path) -> dict[str, Path]:
    """The files below a folder by their names in it. UserError when a link leads out of it, or they are too large."""
    files: dict[str, Path] = {}
    room = MOST_BYTES
    for file in folder.rglob("*"):
        refuse_leaving(file, folder)
        if file.is_file():
            files[str(file.relative_to(folder))] = file
            room -= file.stat().st_size
            if room < 0:
                raise UserError(f"{file}: the skill is larger than {MOST_BYTES >> 20} MB; expected texts and scripts")
    return files


def refuse_leaving(file: Path, folder: Path) -> None:
    """What a skill holds goes to models: a link in a stranger's skill must not add a file of the user's own to it."""
    if not file.is_symlink():
        return
    target = file.readlink()
    if target.is_absolute() or not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise UserError(f"{file}: is a link to {target}, out of its folder; expected a file, or a link within {folder}")


def _refuse_no_memory(also: Path, files: Collection[str]) -> None:
    if also.name not in MEMORY_FILES:
        raise UserError(f"{also}: expected a document that agents always read: {', '.join(MEMORY_FILES)}")
    taken = next((name for name in MEMORY_FILES if name in files), None)
    if taken is not None:
        raise UserError(f"{also}: the skill's folder has {taken} already; expected one such document")


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error


def _text(document: Path) -> str:
    try:
        return document.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{document}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise UserError(f"{document}: cannot be read: {error.strerror}") from error
