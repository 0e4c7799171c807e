"""Skill: a folder with SKILL.md and whatever it refers to, as the agents carry it."""

import re
from dataclasses import dataclass
from pathlib import Path

from whet.errors import UserError
from whet.ids import digest

SKILL_FILE = "SKILL.md"
FRONT_MATTER = re.compile(r"\A---\n.*?^---[ \t]*(?:\n|\Z)", re.MULTILINE | re.DOTALL)


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

    @property
    def body(self) -> str:
        """What it says. The front matter only tells when to load it."""
        return self.text[len(found[0]) :] if (found := FRONT_MATTER.match(self.text)) else self.text


def read_skill(path: Path) -> Skill:
    """Read a skill folder, or a Markdown file that agents carry as their memory.

    >>> read_skill(Path("examples/skills/careful-shell")).name
    'careful-shell'
    """
    if path.suffix.lower() == ".md" and path.name != SKILL_FILE:
        text = _text(path)
        return Skill(path.stem, text, digest(text.encode()), path.resolve(), is_memory=True)
    document = path / SKILL_FILE
    if not document.is_file():
        raise UserError(f"{path}: not a skill folder; expected a file {SKILL_FILE} in it, or a Markdown file")
    text = _text(document)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    parts = [part for file in files for part in (str(file.relative_to(path)).encode(), file.read_bytes())]
    return Skill(path.resolve().name, text, digest(*parts), path.resolve())


def _text(document: Path) -> str:
    try:
        return document.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{document}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise UserError(f"{document}: cannot be read: {error.strerror}") from error
