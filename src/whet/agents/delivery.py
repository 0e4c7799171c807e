"""How a skill reaches an agent: where its program looks for skills, in what it always reads, or before the task."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from whet.box import Box
from whet.skill import SKILL_FILE, Skill

SkillAt = Literal["native", "system", "instruction"]
SKILLS = ".agents/skills"
"""Folder of the home that most agents search for skills."""


class Delivered(BaseModel):
    """How a skill was delivered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    way: Literal["skill", "memory", "system", "instruction"]
    """As a skill that the agent may load, as a file that it always reads, in its system prompt, or with the task."""
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
    """An instruction with a skill's text in front of it.

    >>> from pathlib import Path
    >>> with_skill(Skill("tidy", "Tidy up.", "", Path()), "Sort the list.")
    '# Skill: tidy\\n\\nTidy up.\\n\\n# Task\\n\\nSort the list.'
    """
    return f"# Skill: {skill.name}\n\n{skill.whole.strip()}\n\n# Task\n\n{instruction}"
