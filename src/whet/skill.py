"""Skill: a folder with SKILL.md and whatever it refers to, as the agents carry it."""

from dataclasses import dataclass
from pathlib import Path

from whet.errors import UserError
from whet.ids import digest

SKILL_FILE = "SKILL.md"


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill as it is given to agents. `digest` covers every file of the folder."""

    name: str
    text: str
    digest: str
    folder: Path


def read_skill(path: Path) -> Skill:
    """Read a skill folder.

    >>> read_skill(Path("examples/skills/careful-shell")).name
    'careful-shell'
    """
    document = path / SKILL_FILE
    if not document.is_file():
        raise UserError(f"{path}: not a skill folder; expected a file {SKILL_FILE} in it")
    try:
        text = document.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{document}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    files = sorted(file for file in path.rglob("*") if file.is_file())
    parts = [part for file in files for part in (str(file.relative_to(path)).encode(), file.read_bytes())]
    return Skill(path.resolve().name, text, digest(*parts), path.resolve())
