"""`whet skill` as a user types it."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sharpen_world import HELPFUL, SKILL, USELESS, Adds, World
from support.whet_program import Project, new_project, said_to_user


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("skill-verb")
    asyncio.run(World(folder).sharpen(Adds(USELESS, HELPFUL)))
    with new_project(folder) as project:
        yield project


def test_versions_are_listed_shown_and_compared(project: Project) -> None:
    first, start, useless, helpful = project.whet("skill", "log", "out").stdout.splitlines()
    assert first.split() == ["version", "parent", "training,", "to", "beat", "exam", "what", "was", "changed"]
    assert start.split()[1:] == ["start"]
    assert useless.split()[1:] == [start.split()[0], "25.0%", "≤", "25.0%", "add", '"-', 'Smile."']
    assert helpful.split()[1:8] == ["best", "leader", start.split()[0], "100.0%", ">", "25.0%", "certified"]
    shown = project.whet("skill", "show", "out", "best").stdout
    assert "proposed by adds" in shown
    assert "training tasks: 100.0% > 25.0%: accepted" in shown
    assert shown.endswith(f"\n\n{SKILL}{HELPFUL}\n")
    assert project.whet("skill", "diff", "out", "start", "best").stdout.splitlines()[-1] == f"+{HELPFUL}"
    assert project.whet("skill", "diff", "out", "best", "leader").stdout == ""


def test_a_sharpen_run_is_listed_and_shown_with_its_verdict_versions_and_parts(project: Project) -> None:
    (line,) = [line for line in project.whet("runs", ".").stdout.splitlines() if line.startswith("out ")]
    assert line.split()[1] == "sharpen"
    assert "  certified, at least +" in line
    shown = project.whet("show", "out").stdout
    assert shown.startswith("certified: ")
    assert "\n  exam 1: " in shown
    assert project.whet("skill", "log", "out").stdout in shown
    following = shown.partition("\nnext:\n")[2]
    assert f"whet show {Path('out/search')}\n" in following
    assert following.endswith("  whet adopt out\n")
    begun = project.path / "begun"
    begun.mkdir()
    shutil.copy(project.path / "out/sharpen.json", begun)
    assert project.whet("show", "begun").stdout.startswith("begun: this run has not finished\n")


def test_a_part_that_may_be_left_out_is_not_called_certified(project: Project) -> None:
    file = next(file for file in (project.path / "out" / "skills").glob("*.json") if '"certified"' in file.read_text())
    text = file.read_text()
    file.write_text(text.replace('"margin": 0.0', '"margin": 0.1'))
    shown = project.whet("skill", "show", "out", "best").stdout
    file.write_text(text)
    assert ": not needed after " in shown


def test_what_goes_with_a_skill_is_shown_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "sums" / "AGENTS.md").write_text("Count twice.\n")
    asyncio.run(world.sharpen(Adds()))
    with new_project(tmp_path) as project:
        shown = project.whet("skill", "show", "out", "start").stdout
    assert shown.endswith(f"\n\n{SKILL}\nAGENTS.md, which goes with it:\n\nCount twice.\n")


def test_a_version_is_exported_once(project: Project) -> None:
    done = project.whet("skill", "export", "out", "start", "--out", "copied")
    assert done.stdout == "copied/sums\n"
    assert (project.path / "copied" / "sums" / "SKILL.md").read_text() == SKILL
    again = project.whet("skill", "export", "out", "best", "--out", "copied")
    assert said_to_user(again) == "whet: --out: copied/sums is there already; expected a folder without it"
    assert (project.path / "copied" / "sums" / "SKILL.md").read_text() == SKILL


def test_mistakes_are_told_in_one_line(project: Project, tmp_path: Path) -> None:
    wrong = said_to_user(project.whet("skill", "show", "out", "bets"))
    assert "begins with 'bets'; did you mean 'best'?" in wrong
    assert "not a run of whet sharpen" in said_to_user(project.whet("skill", "log", str(tmp_path)))
