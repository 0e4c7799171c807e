"""Skills: where their front matter ends, whatever ends their lines."""

from pathlib import Path

import pytest

from whet.agents.skill_delivery import SkillSightings
from whet.skill import Skill, front_matter, read_skill
from whet.skills.documents.document import Document

FRONT = "---\nname: tidy\ndescription: Use it whenever files lie about.\n---\n"
BODY = "# Tidy\n\nPut every file into its folder.\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_front_matter_ends_at_its_second_line(newline: str) -> None:
    front, body = FRONT.replace("\n", newline), BODY.replace("\n", newline)
    assert front_matter(front + body) == front
    assert Skill("tidy", front + body, "", Path()).body == body
    assert Document(front + body).body == len(front)


@pytest.mark.parametrize("text", ["", BODY, "---\nname: tidy\n", f"\n{FRONT}", "----\nname: tidy\n---\n"])
def test_other_texts_have_no_front_matter(text: str) -> None:
    assert front_matter(text) == ""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_description_of_a_skill_is_not_its_body(newline: str) -> None:
    sightings = SkillSightings(Skill("tidy", (FRONT + BODY).replace("\n", newline), "", Path()))
    sightings.look(b"Use it whenever files lie about.")
    assert (sightings.shown, sightings.read) == (True, False)
    sightings.look(b"Put every file into its folder.")
    assert sightings.read is True


def test_a_skill_folder_with_dos_line_ends_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes((FRONT + BODY).replace("\n", "\r\n").encode())
    assert read_skill(tmp_path).body == BODY
