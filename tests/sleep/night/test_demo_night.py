"""A whole night: sessions become a rule, the rule is proved on tasks of the history, staged, adopted and taken back."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support.sleep_world import hash_everything
from support.whet_program import Project, new_project
from whet.sleep.demo.night import play_night
from whet.sleep.demo.world import CHECK, World


@dataclass(frozen=True)
class Night:
    world: World
    report: str
    before: dict[str, str]
    """The state of the home when the night began."""
    told: list[str]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("demo")
    before: dict[str, str] = {}
    told: list[str] = []

    def watch(line: str) -> None:
        if not told:
            before.update(hash_everything(folder / "home"))
        told.append(line)

    world, report = asyncio.run(play_night(folder, watch))
    return Night(world, " ".join(report.split()), before, told)


@pytest.fixture
def developer(night: Night) -> Iterator[Project]:
    with new_project(night.world.repository) as project:
        world = night.world
        folders = {"WHET_SLEEP_HOME": str(world.store), "XDG_STATE_HOME": str(world.store.with_name("state"))}
        yield replace(project, env={"HOME": str(world.home), **folders})


def test_the_recurring_correction_is_the_only_proposal(night: Night) -> None:
    assert ": 1 proposal to review (certified)" in night.report
    assert f'+4 lines: "Always run `{CHECK}` before you say you are done."' in night.report
    assert "3 sessions asked for it: claude-code" in night.report
    assert re.search(r"score 0/(\d+) → \1/\1; work \1/\1 → \1/\1 on 6 exam tasks; at least \+", night.report)
    assert [line for line in night.told if line.startswith("shop: ")] == [
        f"shop: Always run `{CHECK}` before you say you are done."
    ]


def test_home_and_repository_are_as_they_were(night: Night) -> None:
    assert hash_everything(night.world.home) == night.before


def test_adopting_and_rolling_back_leaves_every_byte_as_it_was(night: Night, developer: Project) -> None:
    memory = night.world.repository / "AGENTS.md"
    before = memory.read_bytes()
    assert developer.whet("sleep", "adopt", "1").returncode == 0
    assert f"- Always run `{CHECK}` before you say you are done.\n".encode() in memory.read_bytes()
    assert developer.whet("sleep", "rollback", "1").returncode == 0
    assert memory.read_bytes() == before


def test_the_certificate_of_the_night_holds(night: Night, developer: Project) -> None:
    (run,) = night.world.store.glob("nights/*/r*/run")
    checked = developer.whet("certify", "--check", str(run))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "'work' is not worse by more than 30 points" in checked.stdout


def test_the_next_night_tries_nothing_that_is_decided(night: Night, developer: Project) -> None:
    model = f"scripted:{night.world.script}"
    planned = developer.whet("sleep", "run", "--dry-run", "--agent", "loop", "--model", model)
    assert planned.stdout.splitlines()[0] == "5 sessions; 0 rules to try; nothing is run yet"
    again = developer.whet("sleep", "run", "--agent", "loop", "--model", model)
    assert (again.returncode, again.stderr) == (0, "")
    assert "cost        0 rollouts" in again.stdout


def test_tasks_of_the_bank_are_ordinary_tasks(night: Night, developer: Project, tmp_path: Path) -> None:
    folder = next(path for path in night.world.store.glob("bank/shop-*/*") if (path / "task.toml").is_file())
    checked = developer.whet("tasks", "check", str(folder))
    assert checked.stdout.startswith(f"proved     {folder.name}  solution 1, nothing 0")
    log = ["git", "-C", str(night.world.repository), "status", "--porcelain"]
    assert subprocess.run(log, capture_output=True, text=True, check=True).stdout == ""
