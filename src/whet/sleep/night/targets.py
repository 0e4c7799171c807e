"""Which memory files a rule goes into, and the document that the night starts from."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from whet.skill import MEMORY_FILES

NAMES = {"claude-code": "CLAUDE.md", "gemini": "GEMINI.md"}
"""The file that an agent reads; all others read AGENTS.md."""


def find_targets(repository: Path, named: Sequence[str], agent: str) -> list[Path]:
    """The memory files of a repository: those that are named, those that exist, or the one that the agent reads.

    The file that the agent reads comes first: the night starts from it.
    """
    own = NAMES.get(agent, "AGENTS.md")
    found = [name for name in named or MEMORY_FILES if named or (repository / name).is_file()]
    return [repository / name for name in sorted(found or [own], key=lambda name: name != own)]


def write_start(targets: Sequence[Path], folder: Path) -> Path:
    """A copy of the first target, so that the night keeps its start when the developer edits the file."""
    place = folder / targets[0].name
    if not place.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        if targets[0].is_file():
            shutil.copyfile(targets[0], place)
        else:
            place.write_text(f"# {targets[0].parent.name}\n", encoding="utf-8")
    return place
