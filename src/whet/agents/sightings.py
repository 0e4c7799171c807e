"""Whether an agent was shown its skill, and whether it read it, as the calls to its model tell."""

import re

from whet.skill import Skill

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_DESCRIPTION = re.compile(r"^description:\s*(.+)$", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9 ,.;:()_-]{12,}")
"""Text that is written the same way in every JSON, in prompts and in the output of tools."""


class SkillSightings:
    """Looks for a skill in requests. None where the skill has no words to look for."""

    def __init__(self, skill: Skill) -> None:
        front = _FRONT_MATTER.match(skill.text)
        described = _DESCRIPTION.search(front[1]) if front else None
        self._body = _mark(skill.text[front.end() :] if front else skill.text)
        # What is always in sight has no description that is shown before it is read.
        self._shown = _mark(described[1]) if described else self._body
        self.shown: bool | None = None if self._shown is None else False
        self.read: bool | None = None if self._body is None else False

    def look(self, request: bytes) -> None:
        """Look at what a model is sent."""
        if self.read is False and self._body is not None and self._body in request:
            self.read = self.shown = True
        if self.shown is False and self._shown is not None and self._shown in request:
            self.shown = True


def _mark(text: str) -> bytes | None:
    """The longest stretch of plain words in a text."""
    stretches = [stretch.strip() for stretch in _PLAIN.findall(text)]
    return max(stretches, key=len).encode() if stretches else None
