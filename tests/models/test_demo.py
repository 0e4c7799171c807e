"""The demonstration, cut short: the small model itself learns from rules that its judges' checks were made into."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.models_world import smollm2_fixture as smollm2_fixture
from support.whet_program import EXAMPLES, REPOSITORY, Project, new_project
from whet.models import PulledModel
from whet.skill import read_skill

RULES = ('Use "Captain" in every answer.', 'End every answer with "OVER".', 'Begin every answer with "Aye!".')
FEW = {"train": 5, "val": 5, "test": 1}
"""Tasks of each split, of which the model knows the answers."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    shutil.copytree(EXAMPLES / "demo", tmp_path / "examples" / "demo")
    shutil.copy(REPOSITORY / "whet.toml", tmp_path)
    with new_project(tmp_path) as project:
        yield project


def sharpen_command(project: Project) -> list[str]:
    """What the script of the demonstration runs, without where it writes."""
    script = (project.path / "examples/demo/demo.sh").read_text().replace("\\\n", "").replace("$here", "examples/demo")
    found = re.search(r"^run whet (sharpen .*) --budget (\d+) --out", script, re.MULTILINE)
    assert found is not None
    return [*shlex.split(found[1]), "--budget", found[2]]


def test_its_budget_has_room_for_an_early_exam_and_a_last_one(project: Project) -> None:
    told = project.whet(*sharpen_command(project), "--dry-run")
    assert told.returncode == 0, told.stderr
    pairs = re.search(r"exams \d+: (\d+) pairs", told.stdout)
    assert pairs is not None, told.stdout
    assert int(pairs[1]) >= 40


def test_its_traps_are_the_first_skill_and_one_rule(project: Project) -> None:
    demo = project.path / "examples/demo"
    first = read_skill(demo / "ship-answers").body
    traps = (demo / "traps.txt").read_text().splitlines()
    assert [read_skill(demo / name).body for name in ("useless", "harmful")] == [f"{first}{trap}\n" for trap in traps]


def test_the_small_model_learns_what_its_judges_ask_for(project: Project, smollm2: PulledModel) -> None:
    file = project.path / "examples/demo/questions.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    few = [row for split, number in FEW.items() for row in [one for one in rows if one["split"] == split][:number]]
    project.rows("examples/demo/questions.jsonl", *few)
    *command, _ = sharpen_command(project)
    told = project.whet(*command, "70", "--proposer", "criteria", "--force", "--out", "out")
    assert told.returncode == 0, told.stderr
    leader = read_skill(project.path / "out/leader/ship-answers").body
    assert sum(rule in leader for rule in RULES) >= 2, told.stdout
    assert "leads now" in told.stdout
