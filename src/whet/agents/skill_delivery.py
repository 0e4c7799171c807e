"""How a skill reaches an agent, and whether the agent read it."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict

from whet.box import Box
from whet.skill import SKILL_FILE, Memory, Skill, front_matter
from whet.tasks.task import Task

SkillAt = Literal["native", "system", "instruction"]
SKILLS = ".agents/skills"
"""Folder of the home that most agents search for skills."""
_DESCRIPTION = re.compile(r"^description:\s*(.+)$", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9 ,.;:()_-]{12,}")
"""Text that looks the same in JSON, in prompts and in the output of tools."""


class Delivered(BaseModel):
    """How a skill was delivered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    way: Literal["skill", "memory", "system", "instruction"]
    """A skill that the agent may load, a file that it always reads, its system prompt, or the task."""
    place: str = ""
    """The file in the box."""


async def place_skill(box: Box, skill: Skill, folder: str = SKILLS) -> Delivered:
    """Put a skill's folder where agents search for skills."""
    target = f"{box.home}/{folder}/{skill.name}"
    await box.upload(skill.folder, target)
    return Delivered(way="skill", place=f"{target}/{SKILL_FILE}")


async def place_memory(box: Box, text: str, file: str) -> Delivered:
    """Put a text into the file that an agent always reads."""
    place = f"{box.home}/{file}"
    await box.write_file(place, text.encode())
    return Delivered(way="memory", place=place)


def with_skill(skill: Skill, instruction: str) -> str:
    """Put a skill's text in front of an instruction.

    >>> from pathlib import Path
    >>> with_skill(Skill("tidy", "Tidy up.", "", Path()), "Sort the list.")
    '# Skill: tidy\\n\\nTidy up.\\n\\n# Task\\n\\nSort the list.'
    """
    return f"# Skill: {skill.name}\n\n{skill.whole.strip()}\n\n# Task\n\n{instruction}"


def with_memory(memory: Memory, instruction: str) -> str:
    """Put a document that agents always read in front of an instruction."""
    return f"# {memory.name}\n\n{memory.text.strip()}\n\n# Task\n\n{instruction}"


def with_system(task: Task, skill: Skill | None, instruction: str) -> str:
    """Put a task's system prompt in front of the instruction, for a program without a system prompt of its own.

    >>> with_system(Task(id="t", instruction="-", system="Be brief."), None, "Sort the list.")
    'Be brief.\\n\\nSort the list.'
    """
    system = task.system_with(skill.whole.strip() if skill else "")
    return f"{system}\n\n{instruction}" if system else instruction


class SkillSightings:
    """Looks for a skill in requests. The results are None if the skill has no distinctive text."""

    def __init__(self, skill: Skill) -> None:
        front = front_matter(skill.text)
        described = _DESCRIPTION.search(front)
        self._body = _mark(skill.text[len(front) :])
        # A skill that is always visible has no description that is shown before it is read.
        self._shown = _mark(described[1]) if described else self._body
        self.shown: bool | None = None if self._shown is None else False
        self.read: bool | None = None if self._body is None else False

    def look(self, request: bytes) -> None:
        """Search the body of a request."""
        if self.read is False and self._body is not None and self._body in request:
            self.read = self.shown = True
        if self.shown is False and self._shown is not None and self._shown in request:
            self.shown = True


def _mark(text: str) -> bytes | None:
    """The longest stretch of plain words in a text."""
    stretches = [stretch.strip() for stretch in _PLAIN.findall(text)]
    return max(stretches, key=len).encode() if stretches else None
