"""What a skill folder may hold: files, and links that stay in it. Nothing of the user's own comes in by a link."""

import os
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.skill import MOST_BYTES, read_skill
from whet.skills.documents.store import copy_skill

SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.fixture(name="skill")
def skill_fixture(tmp_path: Path) -> Path:
    folder = tmp_path / "skill"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: skill\ndescription: x\n---\nDo it well.\n")
    (folder / "scripts" / "check.sh").write_text("true\n")
    (tmp_path / "id_rsa").write_text(SECRET)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "id_rsa").write_text(SECRET)
    return folder


LEAVING = {
    "relative": "../id_rsa",
    "absolute": "{top}/id_rsa",
    "through a folder": "scripts/../../id_rsa",
    "to a folder": "../private",
    "to its own folder from outside": "../skill/../id_rsa",
    "absolute, within": "{top}/skill/scripts/check.sh",
    "to nothing": "../nothing",
    "device": "/dev/zero",
    "of the process": "/proc/self/environ",
}


@pytest.mark.parametrize("name", ["SKILL.md", "AGENTS.md", "CLAUDE.md", "reference.md", "scripts/deep.md", ".hidden"])
@pytest.mark.parametrize("target", LEAVING.values(), ids=list(LEAVING))
def test_a_link_out_of_the_folder_is_refused_in_one_line(skill: Path, name: str, target: str) -> None:
    place = skill / name
    place.unlink(missing_ok=True)
    to = target.format(top=skill.parent)
    place.symlink_to(os.path.relpath(skill / to, place.parent) if to.startswith(("..", "scripts")) else to)
    with pytest.raises(UserError, match=r"(is a link to|not a skill folder)") as refused:
        read_skill(skill)
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_chain_of_links_that_leaves_is_refused(skill: Path) -> None:
    (skill / "out").symlink_to("../private")
    with pytest.raises(UserError, match="is a link to"):
        read_skill(skill)
    (skill / "out").unlink()
    (skill.parent / "way").symlink_to("private")
    (skill / "a.md").symlink_to("b.md")
    (skill / "b.md").symlink_to("../way/id_rsa")
    with pytest.raises(UserError, match="is a link to"):
        read_skill(skill)


def test_links_within_the_folder_stay(skill: Path) -> None:
    alone = read_skill(skill).digest
    (skill / "AGENTS.md").symlink_to("SKILL.md")
    (skill / "tools").symlink_to("scripts")
    (skill / "loop").symlink_to("loop")
    read = read_skill(skill)
    assert read.memory is not None
    assert read.memory.text == read.text
    assert read.digest != alone
    copy = copy_skill(read, skill.parent / "copies")
    assert read_skill(copy).digest == read.digest
    assert (copy / "AGENTS.md").is_symlink()


def test_a_folder_that_the_user_names_may_be_a_link_itself(skill: Path) -> None:
    (skill.parent / "here").symlink_to(skill)
    assert read_skill(skill.parent / "here").digest == read_skill(skill).digest


@pytest.mark.parametrize("target", ["../id_rsa", "{top}/id_rsa"])
def test_a_memory_document_that_links_outside_is_refused(skill: Path, target: str) -> None:
    document = skill / "AGENTS.md"
    document.symlink_to(target.format(top=skill.parent))
    with pytest.raises(UserError, match="is a link to"):
        read_skill(document)
    other = skill.parent / "other"
    other.mkdir()
    (other / "CLAUDE.md").symlink_to(target.format(top=skill.parent))
    document.unlink()
    with pytest.raises(UserError, match="is a link to"):
        read_skill(skill, other / "CLAUDE.md")


def test_a_memory_document_may_be_a_link_to_its_neighbour(skill: Path) -> None:
    (skill / "notes.md").write_text("Be kind.\n")
    (skill / "CLAUDE.md").symlink_to("notes.md")
    assert read_skill(skill / "CLAUDE.md").text == "Be kind.\n"


def test_a_skill_that_is_too_large_is_refused_before_it_is_read(skill: Path) -> None:
    with (skill / "huge.bin").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(UserError, match=r"huge.bin: the skill is larger than 256 MB"):
        read_skill(skill)


def test_pipes_and_sockets_are_passed_over(skill: Path) -> None:
    before = read_skill(skill).digest
    os.mkfifo(skill / "pipe")
    assert read_skill(skill).digest == before
