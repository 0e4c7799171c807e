"""`whet sleep status | show | diff | adopt | reject | rollback`: what a person sees and types in the morning."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import whet
from support.proposals_world import NOW, RULE, ProposalsWorld
from support.whet_program import Project, new_project, said_to_user
from whet.sleep.report import NightRecord, Outcome


@pytest.fixture
def world(tmp_path: Path) -> ProposalsWorld:
    made = ProposalsWorld(tmp_path)
    with made.store:
        made.stage()
        made.store.put("night", "n", NightRecord(id="n", started=NOW, proposals=("1",), outcome=Outcome.PROPOSED))
    return made


@pytest.fixture
def project(world: ProposalsWorld) -> Iterator[Project]:
    with new_project(world.repository) as project:
        yield replace(project, env={"WHET_SLEEP_HOME": str(world.folder / "sleep")})


def test_a_morning(project: Project, world: ProposalsWorld) -> None:
    before = world.contents
    status = project.whet("sleep", "status")
    assert status.stdout.startswith(
        f"whet sleep, night of {NOW.astimezone():%-d %b}: 1 proposal to review (certified)\n"
    )
    shown = project.whet("sleep", "show", "1").stdout
    assert shown.startswith(f"proposal 1: staged, certified, made {NOW.astimezone():%-d %b %Y %H:%M}\n")
    diff = project.whet("sleep", "diff", "1").stdout
    assert f"+- {RULE}\n" in diff
    assert diff in shown
    adopted = project.whet("sleep", "adopt", "1", "--target", "AGENTS.md,GEMINI.md")
    assert (adopted.returncode, adopted.stderr) == (0, "")
    assert adopted.stdout.endswith("undo with: whet sleep rollback 1\n")
    assert "nothing to review, proposal 1 is adopted" in project.whet("sleep", "status").stdout
    rolled_back = project.whet("sleep", "rollback", "1")
    assert "GEMINI.md: is as it was before\n" in rolled_back.stdout
    assert world.contents == before
    rejected = project.whet("sleep", "reject", "1", "--because", "we use both")
    assert "proposal 1: rejected; it comes again only if new sessions support it" in rejected.stdout
    assert "nothing to review, proposal 1 is rejected" in project.whet("sleep", "status").stdout


def test_status_does_not_wait_for_agents_and_models(project: Project) -> None:
    program = (
        "import sys, whet.cli; sys.argv = ['whet', 'sleep', 'status']\n"
        "try: whet.cli.main()\n"
        "finally: assert not {'aiohttp', 'whet.gateway', 'whet.agents'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", program], env=project.environ(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_mistakes_are_one_line(project: Project, world: ProposalsWorld) -> None:
    assert said_to_user(project.whet("sleep", "show", "7")) == "whet: there is no proposal '7'; known: 1"
    world.gemini.write_text("Mine")
    assert "changes that are not committed; commit them, or use --force" in said_to_user(
        project.whet("sleep", "adopt", "1")
    )
    journal = world.folder / "sleep" / "adoptions.jsonl"
    journal.write_text("garbage\n")
    for words in (("status",), ("adopt", "1"), ("rollback", "1")):
        assert "adoptions.jsonl:1: is damaged, so it is not known what was adopted; nothing was changed" in (
            said_to_user(project.whet("sleep", *words)).replace("\n", " ")
        )


def test_python_decides_as_the_command_line_does(world: ProposalsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_SLEEP_HOME", str(world.folder / "sleep"))
    before = world.contents
    adopted = whet.adopt_proposal("1", ["GEMINI.md"])
    assert [change.place.named for change in adopted.changes] == [world.gemini]
    assert [one.state for one in whet.proposals()] == ["adopted"]
    whet.roll_back_proposal("1")
    assert world.contents == before
    assert whet.reject_proposal("1", "we use both").state == "rejected"
