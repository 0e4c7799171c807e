"""`whet sharpen` as a user types it, also when it is killed."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sharpen_world import HARMFUL, HELPFUL, SPLITS, USELESS, World, exchanges, write_script
from whet_program import Project, new_project, until

from whet.errors import UserError
from whet.runs.store import DATABASE

PARTS = ("search", "exam", "test")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    World(tmp_path)
    (tmp_path / "rules.txt").write_text(f"{USELESS}\n{HELPFUL}\n{HARMFUL}\n")
    with new_project(tmp_path) as project:
        yield project


COMMAND = ["sharpen", "sums", "tasks.jsonl", "--agent", "chat", "--model", "scripted:script.toml"]
OPTIONS = ["--proposer", "rules:rules.txt", "--budget", "300"]


def made(out: Path) -> dict[str, list[int]]:
    parts = [exchanges(out / part) for part in PARTS if (out / part / DATABASE).is_file()]
    return {rollout: calls for part in parts for rollout, calls in part.items()}


def until_begun(out: Path, number: int) -> None:
    """Wait until so many rollouts were begun."""

    def begun() -> bool:
        # A store that is being made is not one yet.
        with suppress(UserError):
            return len(made(out)) >= number
        return False

    until(begun)


def test_killed_again_and_again_it_says_in_the_end_what_it_would_have_said(project: Project) -> None:
    write_script(project.path, range(max(side.stop for side in SPLITS.values())), delay=0.05)
    told = project.whet(*COMMAND, *OPTIONS, "--out", "whole")
    assert told.returncode == 0, told.stderr
    more: list[str] = []
    for number in (3, 30, 45, 80):
        with project.start(*COMMAND, *OPTIONS, "--out", "out", *more) as whet:
            until_begun(project.path / "out", number)
            whet.kill()
            whet.communicate()
            assert whet.returncode == -signal.SIGKILL
        more = ["--resume"]
    resumed = project.whet(*COMMAND, *OPTIONS, "--out", "out", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.replace("; out\n", "; whole\n") == told.stdout
    whole, again = made(project.path / "whole"), made(project.path / "out")
    assert again.keys() == whole.keys()
    assert sum(len([calls for calls in attempts if calls]) for attempts in again.values()) <= len(whole) + 4 * 4
    for name in ("best", "leader"):
        skill = Path(name, "sums", "SKILL.md")
        assert (project.path / "out" / skill).read_text() == (project.path / "whole" / skill).read_text()


def test_a_wrong_proposer_or_too_few_tasks_are_told_in_one_line(project: Project) -> None:
    wrong = project.whet(*COMMAND, "--proposer", "rules", "--out", "out")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "--proposer is 'rules'; expected rules:FILE" in wrong.stderr
    lines = (project.path / "tasks.jsonl").read_text().splitlines()
    (project.path / "tasks.jsonl").write_text("\n".join(lines[:4]) + "\n")
    few = project.whet(*COMMAND, *OPTIONS, "--out", "out")
    assert few.returncode == 2
    assert "there are 4 training, 0 validation and 0 test tasks; expected at least 5 with split 'val'" in few.stderr
    assert not (project.path / "out").exists()
