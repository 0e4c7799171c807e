"""`whet adopt`: what a run found replaces the original, safely, and can be taken back."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import whet
from support.sharpen_world import HELPFUL, SKILL, USELESS, World
from support.whet_program import Project, new_project, said_to_user
from whet.errors import UserError
from whet.skills.adoption.transaction import Adoptions

TASKS = ["tasks.jsonl", "--agent", "chat", "--model", "scripted:script.toml", "--proposer", "rules:rules.txt"]


@pytest.fixture(scope="module")
def sharpened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A run that certified a rule for a skill folder, one for a memory file, and one that certified nothing."""
    path = tmp_path_factory.mktemp("adopt")
    World(path)
    with new_project(path) as project:
        project.write("rules.txt", f"{HELPFUL}\n")
        (path / "CLAUDE.md").write_bytes(b"# House\r\n\r\n- Be kind.\r\n")
        for skill, out in (("sums", "skill-run"), ("CLAUDE.md", "memory-run")):
            done = project.whet("sharpen", skill, *TASKS, "--budget", "110", "--force", "--out", out)
            assert done.returncode == 0, done.stderr
        project.write("rules.txt", f"{USELESS}\n")
        project.whet("sharpen", "sums", *TASKS, "--budget", "60", "--force", "--out", "nothing")
        yield project


@pytest.fixture
def project(sharpened: Project, tmp_path: Path) -> Iterator[Project]:
    """A copy of these runs and skills. The runs still name where their skills lay."""
    shutil.copytree(sharpened.path, tmp_path, dirs_exist_ok=True)
    before = {name: (sharpened.path / name).read_bytes() for name in ("sums/SKILL.md", "CLAUDE.md")}
    with new_project(tmp_path) as project:
        yield project
    assert before == {name: (sharpened.path / name).read_bytes() for name in before}, "each test uses its own copy"


def test_a_certified_skill_replaces_the_original_and_undo_restores_it(project: Project) -> None:
    skill = project.path / "sums" / "SKILL.md"
    skill.chmod(0o640)
    done = project.whet("adopt", "skill-run", "--to", "sums")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"--- a/SKILL.md\n+++ b/SKILL.md\n@@ -4,3 +4,4 @@\n ---\n # Rules\n - Be kind.\n+{HELPFUL}\n" in done.stdout
    assert "SKILL.md: is now version" in done.stdout
    assert skill.read_text() == SKILL + HELPFUL + "\n"
    assert skill.stat().st_mode & 0o777 == 0o640
    assert not list((project.path / "sums").glob("*.part"))
    again = project.whet("adopt", "skill-run", "--to", "sums")
    assert again.returncode == 2
    assert "sums: is this version already" in again.stderr
    assert project.whet("adopt", "skill-run", "--undo").returncode == 0
    assert skill.read_text() == SKILL
    nothing = project.whet("adopt", "skill-run", "--undo")
    assert nothing.stderr == "whet: skill-run: no version of this run was adopted, so there is nothing to undo\n"


def test_an_adoption_that_was_killed_is_finished_before_anything_else(project: Project) -> None:
    skill = project.path / "sums" / "SKILL.md"
    with patch.object(Adoptions, "_say", side_effect=KeyboardInterrupt), patch.object(Adoptions, "_put_back"):
        assert project.whet("adopt", "skill-run", "--to", "sums").returncode == 130
    assert skill.read_text() == SKILL + HELPFUL + "\n"
    assert "was interrupted when all files were written; it is done. Now try again" in said_to_user(
        project.whet("adopt", "skill-run", "--to", "sums")
    )
    assert project.whet("adopt", "skill-run", "--undo").returncode == 0
    assert skill.read_text() == SKILL


def test_a_memory_file_keeps_its_line_ends_and_a_link_to_it_stays_a_link(project: Project) -> None:
    memory = project.path / "CLAUDE.md"
    memory.rename(project.path / "AGENTS.md")
    memory.symlink_to("AGENTS.md")
    adoption = whet.adopt(
        project.path / "memory-run", options=whet.AdoptOptions(run=project.path / "memory-run", to=memory)
    )
    assert adoption.certified
    assert memory.is_symlink()
    assert f"- Be kind.\r\n{HELPFUL}\r\n".encode() in memory.read_bytes()
    whet.adopt(project.path / "memory-run", undo=True)
    assert memory.read_bytes() == b"# House\r\n\r\n- Be kind.\r\n"


def test_a_skill_that_has_changed_is_not_written_over(project: Project) -> None:
    skill = project.path / "sums" / "SKILL.md"
    skill.write_text(SKILL + "- My own rule.\n")
    refused = project.whet("adopt", "skill-run", "--to", "sums")
    assert refused.returncode == 2
    assert "has changed since the run started" in refused.stderr
    assert "  whet skill diff skill-run start " in refused.stderr
    assert "  git merge-file " in refused.stderr
    assert skill.read_text() == SKILL + "- My own rule.\n"
    skill.write_text(SKILL)
    assert project.whet("adopt", "skill-run", "--to", "sums").returncode == 0
    skill.write_text("Mine.")
    undo = project.whet("adopt", "skill-run", "--undo")
    assert undo.returncode == 2
    assert "SKILL.md: has changed since it was adopted; the original is in skill-run/adopted" in undo.stderr


def test_what_is_not_certified_is_adopted_only_when_that_is_asked_for(project: Project) -> None:
    refused = project.whet("adopt", "nothing", "--to", "sums")
    assert refused.returncode == 2
    assert "nothing was certified, so there is nothing to adopt; --uncertified takes the best" in refused.stderr
    named = project.whet("adopt", "skill-run", "--to", "sums", "--version", "start")
    assert "is not certified: nothing shows that it is better" in named.stderr
    certificate = project.path / "skill-run" / "certificate.json"
    certificate.write_text(certificate.read_text().replace('"verdict": "certified"', '"verdict": "futile"'))
    forged = project.whet("adopt", "skill-run", "--to", "sums")
    assert "certificate.json: does not hold: " in forged.stderr
    with pytest.raises(UserError, match="not a run of whet sharpen"):
        whet.adopt(project.path / "sums")


def test_a_run_knows_where_its_skill_lay(sharpened: Project) -> None:
    (sharpened.path / "sums").rename(sharpened.path / "moved")
    try:
        gone = sharpened.whet("adopt", "skill-run")
    finally:
        (sharpened.path / "moved").rename(sharpened.path / "sums")
    assert gone.returncode == 2
    assert f"{sharpened.path}/sums: is not there any more; expected --to" in gone.stderr
